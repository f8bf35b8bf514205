"""Remainders of distances: forms that are one comparison, and what distances that come around once leave of them."""

from __future__ import annotations

import pytest

from attncc.analysis.algebra.algebra import Algebra
from attncc.analysis.algebra.canonical import Canonical
from attncc.analysis.grid_2d import Grid2D
from attncc.ir import Apply, Expr, show
from tests.unit.analysis.tile_cases import variant_of

D = "let d = kv_idx - q_idx"


def forms(*lines: str, grid_2d: Grid2D | None = None) -> list[Expr]:
    variant = variant_of(D, *(f"keep if {line}" for line in lines))
    algebra = Algebra(variant, 1, 1, grid_2d=grid_2d)
    canonical = Canonical(algebra, variant.lets, grid_2d)
    return [canonical.of(keep.condition) for keep in variant.keeps]


@pytest.mark.parametrize(
    "lines",
    [
        ("(d + 6) % 64 <= 12", "(6 - d) % 64 <= 12", "not (d + 6) % 64 > 12", "(q_idx - kv_idx + 70) % 64 < 13"),
        ("(d + 6) % 64 <= 12", "min(d % 64, -d % 64) <= 6", "abs((d + 32) % 64 - 32) <= 6"),
        ("(d + 6) % 64 <= 12", "(kv_idx % 64 - q_idx % 64 + 6) % 64 <= 12", "58 <= (d + 64) % 64 or d % 64 < 7"),
        (
            "d % 8 <= 2",
            "d % 8 == 0 or d % 8 == 1 or d % 8 == 2",
            "any(kv_idx % 8 == (q_idx + i) % 8 for i in range(3))",
        ),
        ("d % 8 == 5", "d % 8 > 4 and d % 8 < 6", "(d + 2) % 8 >= 7"),
        ("d % 8 != 5", "not d % 8 == 5", "d % 8 < 5 or d % 8 > 5"),
        ("d % 2 == 0 and -4 <= d and d <= 6", "any(d == 2 * i - 4 for i in range(6))"),
    ],
)
def test_one_form(lines: tuple[str, ...]) -> None:
    parts = [set(found.args) if found.op == "and" else {found} for found in forms(*lines) if isinstance(found, Apply)]
    assert parts == [parts[0]] * len(lines)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("d % 8 <= 2", "(((kv_idx - q_idx) % 8) <= 2)"),
        ("d % 8 >= 3", "((((kv_idx - q_idx) + 5) % 8) <= 4)"),
        ("d % 8 <= 7 and d % 8 >= 0", "true"),
        ("d % 8 <= 2 and d % 8 >= 5", "false"),
        ("(d + 1) % 8 <= 2 and d % 8 <= 5", "(((kv_idx - q_idx) % 8) <= 1)"),
        # Two arcs that have two others in common, and three that don't touch: as they are.
        ("d % 8 <= 5 and (d + 4) % 8 <= 5", "((((kv_idx - q_idx) % 8) <= 5) and ((((kv_idx - q_idx) + 4) % 8) <= 5))"),
        ("d % 9 == 1 or d % 9 == 4", "((((kv_idx - q_idx) % 9) == 1) or (((kv_idx - q_idx) % 9) == 4))"),
        # Of one side alone it is a column, which has bounds.
        ("kv_idx % 64 >= 3 and kv_idx % 64 <= 9", "(((kv_idx % 64) >= 3) and ((kv_idx % 64) <= 9))"),
    ],
)
def test_arcs(line: str, expected: str) -> None:
    assert [show(form) for form in forms(line)] == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("d % 8 == 0", "(kv_column_idx == q_column_idx)"),
        ("d % 8 == 3", "(((kv_column_idx - q_column_idx) % 8) == 3)"),  # 3 or -5
        ("d % 8 == 3 and kv_idx % 8 == 7", "((((kv_column_idx - q_column_idx) % 8) == 3) and (kv_column_idx == 7))"),
        ("d % 8 <= 2", "(((kv_column_idx - q_column_idx) % 8) <= 2)"),
        ("(kv_idx % 8 - q_idx % 8 + 20) % 40 <= 12", "false"),
        ("(kv_idx % 8 - q_idx % 8 + 20) % 40 <= 15", "(kv_column_idx <= (q_column_idx - 5))"),
        ("(kv_idx % 8 - q_idx % 8 + 20) % 40 >= 27", "(kv_column_idx >= (q_column_idx + 7))"),
    ],
)
def test_distances_that_come_around_once(line: str, expected: str) -> None:
    """Columns of a grid of 8 are at most 7 apart."""
    (found,) = forms(line, grid_2d=Grid2D(8, 1, 1))
    assert show(found) == expected
