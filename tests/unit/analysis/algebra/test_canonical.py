"""What a keep line says of one pair, in terms that can be bounded."""

from __future__ import annotations

import pytest

from attncc.ir import show

from ..tile_cases import box_of, variant_of


def normal(*lines: str) -> str:
    variant = variant_of(*lines)
    _, canonical = box_of(variant, 32, 32)
    return show(canonical.of(variant.keeps[0].condition))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("abs(q_idx - kv_idx) <= 8", "((kv_idx >= (q_idx - 8)) and (kv_idx <= (q_idx + 8)))"),
        ("min(q_idx, kv_idx) < 5", "((q_idx <= 4) or (kv_idx <= 4))"),
        ("max(q_idx, kv_idx) < 5", "((q_idx <= 4) and (kv_idx <= 4))"),
        ("-max(q_idx, kv_idx) < -5", "((q_idx >= 6) or (kv_idx >= 6))"),
        ("(kv_idx if q_idx < 3 else 2 * kv_idx) < 6", "((kv_idx <= 5) if (q_idx <= 2) else (kv_idx <= 2))"),
        ("q_idx % 4 == kv_idx % 4", "(((q_idx - kv_idx) % 4) == 0)"),
        ("q_idx % 4 != kv_idx % 4", "(((q_idx - kv_idx) % 4) != 0)"),
        ("abs(q_idx - kv_idx) % 4 == 0", "(((q_idx - kv_idx) % 4) == 0)"),
        ("(kv_idx + 10) // 64 <= kv_idx // 64", "((((kv_idx % 64) + 10) // 64) <= 0)"),
    ],
)
def test_comparisons_are_taken_apart(text: str, form: str) -> None:
    assert normal(f"keep if {text}") == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("(q_idx - kv_idx) // 8 < 4", "(kv_idx >= (q_idx - 31))"),
        ("-((q_idx - kv_idx) // 8) <= 2", "(kv_idx <= (q_idx + 16))"),
        ("3 * ((q_idx - kv_idx) // 8) <= 7", "(kv_idx >= (q_idx - 23))"),
        ("(q_idx - kv_idx + 6) // 13 == 0", "((kv_idx >= (q_idx - 6)) and (kv_idx <= (q_idx + 6)))"),
        ("(q_idx - kv_idx + 6) // 13 != 0", "((kv_idx <= (q_idx - 7)) or (kv_idx >= (q_idx + 7)))"),
        ("(q_idx - kv_idx) // 8 <= h", "(kv_idx >= (q_idx - ((h * 8) + 7)))"),
        ("(q_idx - kv_idx) * (q_idx - kv_idx) <= 40", "((kv_idx >= (q_idx - 6)) and (kv_idx <= (q_idx + 6)))"),
        ("(q_idx - kv_idx) * (q_idx - kv_idx) > 36", "((kv_idx <= (q_idx - 7)) or (kv_idx >= (q_idx + 7)))"),
        ("(q_idx - kv_idx) * (q_idx - kv_idx) < 0", "false"),
        ("(q_idx - kv_idx) * (q_idx - kv_idx) >= 0", "true"),
    ],
)
def test_quotients_and_squares_of_distances_are_bounds(text: str, form: str) -> None:
    assert normal(f"keep if {text}") == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("any(kv_idx == q_idx + i - 2 for i in range(5))", "((kv_idx >= (q_idx - 2)) and (kv_idx <= (q_idx + 2)))"),
        ("q_idx == kv_idx + 1 or kv_idx == q_idx", "((kv_idx >= (q_idx - 1)) and (kv_idx <= q_idx))"),
        ("kv_idx == q_idx or kv_idx == q_idx - 2", "((kv_idx == q_idx) or (kv_idx == (q_idx - 2)))"),
        ("not (kv_idx != q_idx and kv_idx != q_idx - 1)", "((kv_idx >= (q_idx - 1)) and (kv_idx <= q_idx))"),
        ("kv_idx == 3 or kv_idx == 4", "((kv_idx == 3) or (kv_idx == 4))"),
    ],
)
def test_distances_that_are_listed_are_ranges(text: str, form: str) -> None:
    """Of both sides: a list of a few keys, or of entries, is told one by one."""
    assert normal(f"keep if {text}") == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("q_idx - kv_idx <= 129 / 2", "(kv_idx >= (q_idx - 64))"),
        ("129 / 2 > q_idx - kv_idx", "(kv_idx >= (q_idx - 64))"),
        ("q_idx - kv_idx < 128 / 2", "(kv_idx >= (q_idx - 63))"),
        ("-2.5 <= q_idx - kv_idx", "(kv_idx <= (q_idx + 2))"),
        ("q_idx - kv_idx > -3.0", "(kv_idx <= (q_idx + 2))"),
        ("q_idx - kv_idx == 2.0", "(kv_idx == (q_idx - 2))"),
        ("q_idx - kv_idx == 2.5", "false"),
        ("q_idx - kv_idx != 2.5", "true"),
        ("abs(q_idx - kv_idx) < 6.5", "((kv_idx >= (q_idx - 6)) and (kv_idx <= (q_idx + 6)))"),
    ],
)
def test_constant_floats_lie_between_ints(text: str, form: str) -> None:
    assert normal(f"keep if {text}") == form


@pytest.mark.parametrize("limit", ["16777216.0", "-1e30", "0.5 * kv_idx"])
def test_floats_without_all_ints_stay(limit: str) -> None:
    """In fp32 16777217 is 16777216."""
    assert "to_float" in normal(f"keep if q_idx - kv_idx <= {limit}")


@pytest.mark.parametrize("other", ["q_idx - kv_idx == 3", "two", "q_idx - kv_idx == 0 or two"])
def test_a_range_that_holds_what_else_is_listed_stays(other: str) -> None:
    """Ranges that lets, or masks, have united already."""
    near = "let near = any(q_idx - kv_idx == i for i in range(5))"
    two = "let two = any(q_idx - kv_idx == i + 2 for i in range(2))"
    assert normal(near, two, f"keep if near or {other}") == normal(near, "keep if near")


def test_a_clamp_that_moves_alone_stays() -> None:
    """The centre of a neighbourhood: its own interval is as good as three comparisons, and shorter."""
    assert normal("keep if clamp(q_idx, 3, 60) - kv_idx <= 3") == "(kv_idx >= (min(max(q_idx, 3), 60) - 3))"


def test_lets_are_written_out() -> None:
    lines = ("let distance = q_pos - kv_idx", "let near = distance < 8", "keep if near and distance >= 0")
    written = "keep if q_pos - kv_idx < 8 and q_pos - kv_idx >= 0"
    assert normal(*lines) == normal(written)


def test_long_sums_of_choices_stay_whole() -> None:
    """Sixteen choices would be 65536 comparisons."""
    form = normal("let n = sum(1 if q_idx % (i + 2) == kv_idx % (i + 2) else 0 for i in range(16))", "keep if n > 3")
    assert form.count("<=") + form.count(">=") == 1
