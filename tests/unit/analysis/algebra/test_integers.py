"""Normal forms of int expressions: simpler where that can be proven; that they are equal is a property test."""

from __future__ import annotations

import pytest

from attncc.analysis.mask.box import Box
from attncc.ir import Expr, show

from ..tile_cases import box_of, int_of, variant_of

INPUTS = ("input w: i32", "input n: i64")


def normal(text: str) -> str:
    """The normal form of an int expression of `.attn`."""
    variant = variant_of(*INPUTS, f"keep if ({text}) == n + 12345")
    _, canonical = box_of(variant, 32, 32)
    return show(canonical.of(int_of(variant)))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("q_idx + 3 - q_idx", "3"),
        ("kv_idx + q_idx - 2 * kv_idx", "(q_idx - kv_idx)"),
        ("q_pos", "(q_idx + q_offset)"),
        ("5 - kv_idx", "(5 - kv_idx)"),
        ("-kv_idx", "neg(kv_idx)"),
        ("~kv_idx", "(neg(kv_idx) - 1)"),
        ("kv_idx * w + w * kv_idx", "((kv_idx * w) * 2)"),
    ],
)
def test_sums(text: str, form: str) -> None:
    assert normal(text) == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("(kv_idx + 70) // 64", "(((kv_idx + 6) // 64) + 1)"),
        ("(64 * q_idx + kv_idx) // 64", "(q_idx + (kv_idx // 64))"),
        ("(4 * kv_idx + 3) // 8", "(kv_idx // 2)"),
        ("kv_idx // 4 // 16", "(kv_idx // 64)"),
        ("kv_idx // -4", "(neg(kv_idx) // 4)"),
        ("kv_idx // 1", "kv_idx"),
        ("kv_idx // 2000000000", "0"),
        ("(64 * q_idx + kv_idx) % 64", "(kv_idx % 64)"),
        ("(4 * kv_idx + 3) % 8", "(((kv_idx % 2) * 4) + 3)"),
        ("kv_idx % 64 % 16", "(kv_idx % 16)"),
        ("kv_idx % 2000000000", "kv_idx"),
        ("kv_idx - kv_idx // 64 * 64", "(kv_idx % 64)"),
        ("kv_idx - kv_idx % 64", "((kv_idx // 64) * 64)"),
        ("kv_idx % 512 // 64", "((kv_idx // 64) % 8)"),
        ("kv_idx % 512 // 96", "((kv_idx % 512) // 96)"),
        ("kv_idx % 512 - 64 * (kv_idx // 64 % 8)", "(kv_idx % 64)"),
        ("q_idx - kv_idx - 64 * (q_idx // 64) + 64 * (kv_idx // 64)", "((q_idx % 64) - (kv_idx % 64))"),
        ("(64 * q_idx + kv_idx % 64) // 1024", "(q_idx // 16)"),
        ("(64 * q_idx + kv_idx % 64) % 1024", "((kv_idx % 64) + ((q_idx % 16) * 64))"),
        ("(64 * q_idx + kv_idx % 65) // 1024", "(((q_idx * 64) + (kv_idx % 65)) // 1024)"),
    ],
)
def test_division(text: str, form: str) -> None:
    assert normal(text) == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("kv_idx & 63", "(kv_idx % 64)"),
        ("kv_idx & -64", "((kv_idx // 64) * 64)"),
        ("kv_idx & 48", "(((kv_idx // 16) % 4) * 16)"),
        ("kv_idx >> 5", "(kv_idx // 32)"),
        ("kv_idx << 3", "(kv_idx * 8)"),
        ("kv_idx & 5", "(kv_idx & 5)"),
        ("kv_idx | 0", "kv_idx"),
        ("kv_idx ^ kv_idx", "0"),
        ("kv_idx << 64", "0"),
        ("q_pos >> 70", "((q_idx + q_offset) >> 63)"),
    ],
)
def test_bits(text: str, form: str) -> None:
    assert normal(text) == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("max(kv_idx, 0)", "kv_idx"),
        ("min(kv_idx, kv_len - 1)", "kv_idx"),
        ("min(q_idx, min(kv_idx, q_idx + 1))", "min(q_idx, kv_idx)"),
        ("clamp(kv_idx, -5, 2000000000)", "kv_idx"),
        ("abs(kv_idx)", "kv_idx"),
        ("abs(-1 - kv_idx)", "(kv_idx + 1)"),
        ("kv_idx if q_idx < q_len else 7", "kv_idx"),
    ],
)
def test_extremes_that_are_known(text: str, form: str) -> None:
    assert normal(text) == form


@pytest.mark.parametrize("text", ["kv_idx + n", "n - 1", "kv_idx * n", "-n", "abs(n)", "n << 3"])
def test_what_may_wrap_stays_as_written(text: str) -> None:
    variant = variant_of(*INPUTS, f"keep if {text} == 0")
    box, canonical = box_of(variant, 32, 32)
    found = canonical.of(int_of(variant))
    assert not box.algebra.form(found).terms.keys() - {found}
    assert box.algebra.range(found) == (-(2**63), 2**63 - 1)


def test_nodes_are_shared() -> None:
    variant = variant_of("keep if q_idx // 3 + kv_idx == 1 - (q_idx // 3)")
    box, canonical = box_of(variant, 32, 32)
    first = canonical.of(int_of(variant))
    assert box.algebra.add(box.algebra.symbol("kv_idx"), box.algebra.floordiv(*_third(box))) is first


def _third(box: Box) -> tuple[Expr, Expr]:
    return box.algebra.symbol("q_idx"), box.algebra.number(3)
