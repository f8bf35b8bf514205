"""What the lines of a mask say together, in rows and columns."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.mask.plain import plain, plain_on, widths
from attncc.ir import show
from tests.unit.analysis.tile_cases import environment, mask_of, variant_of

COLUMNS = "keep if abs(q_idx % 64 - kv_idx % 64) <= 6"
ROW_BOUNDS = "(((kv_idx // 64) >= ((q_idx // 64) - 6)) and ((kv_idx // 64) <= ((q_idx // 64) + 6)))"


def first_line(*lines: str) -> str:
    return show(plain_on(variant_of(*lines), 64).keeps[0].condition)


@pytest.mark.parametrize(
    "line",
    [
        "keep if abs(q_idx - kv_idx) <= 6 * 64 + 6",
        "keep if abs(q_idx - kv_idx) <= 6 * 64 + 20",
        "keep if abs(q_idx - kv_idx) < 7 * 64 - 6",
        "keep if q_idx // 64 * 64 - 384 <= kv_idx < q_idx // 64 * 64 + 448",
    ],
)
def test_columns_tell_what_a_distance_says_of_rows(line: str) -> None:
    assert first_line(line, COLUMNS) == ROW_BOUNDS


def test_what_the_other_lines_say_already_is_true() -> None:
    """A diamond around a square."""
    rows = "keep if abs(q_idx // 64 - kv_idx // 64) <= 6"
    assert (
        first_line("keep if abs(q_idx // 64 - kv_idx // 64) + abs(q_idx % 64 - kv_idx % 64) <= 12", rows, COLUMNS)
        == "true"
    )


@pytest.mark.parametrize(
    "line",
    [
        "keep if abs(q_idx - kv_idx) <= 6 * 64 + 5",  # of the farthest rows 11 columns
        "keep if abs(q_idx - kv_idx) <= 6 * 64 + 59",  # of one row more, too
        "keep if q_idx >= kv_idx",
        "keep if abs(q_idx // 64 - kv_idx // 64) + abs(q_idx % 64 - kv_idx % 64) <= 6",
        "keep if abs(q_idx // 64 - kv_idx // 64) <= 6",
    ],
)
def test_what_takes_rows_and_columns_together_stays(line: str) -> None:
    variant = variant_of(line, COLUMNS)
    assert plain_on(variant, 64) is variant


def test_a_mask_that_keeps_nothing_is_false() -> None:
    assert first_line("keep if kv_idx % 64 - q_idx % 64 + 100 * (kv_idx // 64 - q_idx // 64) >= 7", COLUMNS) != "false"
    lines = ("keep if abs(q_idx - kv_idx - 64 * 9) <= 6", "keep if abs(q_idx // 64 - kv_idx // 64) <= 3", COLUMNS)
    assert first_line(*lines) == "false"


def test_lengths_that_are_no_multiples_leave_positions_among_the_keys() -> None:
    """Where they are, the last key of a query's row is known; elsewhere rows begin anywhere."""
    variant = variant_of("keep if abs(q_pos - kv_idx) <= 6 * 64 + 6", "keep if abs(q_pos % 64 - kv_idx % 64) <= 6")
    assert plain(variant) is variant
    aligned = plain_on(variant, 64)
    for q_len, kv_len in ((640, 1024), (1024, 640)):
        known = environment(q_len, kv_len)
        assert (mask_of(aligned, known) == mask_of(variant, known)).all()
    assert (mask_of(aligned, environment(100, 1000)) != mask_of(variant, environment(100, 1000))).any()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("keep if q_idx // 64 == kv_idx // 64", (64,)),
        ("keep if q_idx // 64 % 24 == kv_idx // 64 % 24", (1536, 64)),
        ("keep if q_idx % 1536 // 64 >= kv_idx % 64 // 8", (1536, 64, 8)),
        ("keep if (q_pos - kv_idx) % 6 == 0", (6,)),
        ("keep if q_idx // 5000 == kv_idx // 5000", ()),
        ("keep if q_idx >= kv_idx", ()),
    ],
)
def test_widths_are_what_positions_are_taken_apart_by(line: str, found: tuple[int, ...]) -> None:
    assert widths(variant_of(line)) == found


def test_of_many_lines_none_is_looked_at_beside_all_others() -> None:
    lines = [f"keep if abs(q_idx - kv_idx + {i}) <= 6 * 64 + 6" for i in range(40)]
    variant = variant_of(*lines, COLUMNS)
    assert plain_on(variant, 64) is variant


def test_a_short_sequence_keeps_the_same_in_plain_words() -> None:
    variant = variant_of("keep if abs(q_idx - kv_idx) <= 2 * 8 + 2", "keep if abs(q_idx % 8 - kv_idx % 8) <= 2")
    found = plain(variant)
    assert found is not variant
    for q_len, kv_len in ((1, 1), (7, 30), (41, 19)):
        known = environment(q_len, kv_len)
        assert np.array_equal(mask_of(found, known), mask_of(variant, known))


def test_the_lines_of_the_file_are_those_of_the_variant_that_was_given() -> None:
    """Of two equal masks at different lines each keeps its own."""
    lines = ("keep if abs(q_idx - kv_idx) <= 6 * 64 + 6", COLUMNS)
    first, second = variant_of(*lines), variant_of("", *lines)
    assert first == second
    for variant in (first, second):
        assert [keep.span for keep in plain_on(variant, 64).keeps] == [keep.span for keep in variant.keeps]


NUMBER = "({0} // 512 * 8 + {0} % 64 // 8)"


@pytest.mark.parametrize("op", ["==", "!="])
def test_equal_numbers_of_blocks_are_equal_rows_and_columns(op: str) -> None:
    """Of blocks that are numbered along their rows; not where two of them have one number."""
    q, kv = NUMBER.format("q_idx"), NUMBER.format("kv_idx")
    rows = "((((kv_idx // 64) // 8) {0} ((q_idx // 64) // 8))"
    columns = "(((kv_idx % 64) // 8) {0} ((q_idx % 64) // 8)))"
    joined = f"{rows} {'and' if op == '==' else 'or'} {columns}"
    assert first_line(f"keep if {q} {op} {kv}") == joined.format(op)
    shared = variant_of(f"keep if {q.replace('* 8', '* 7')} {op} {kv.replace('* 8', '* 7')}")
    assert plain_on(shared, 64) is shared
