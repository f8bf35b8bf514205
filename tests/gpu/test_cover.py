"""The covering design itself needs no GPU."""

from __future__ import annotations

from typing import Any

from tests.gpu.cover import cover, pairs_of, pairs_to_cover

FACTORS: dict[str, tuple[Any, ...]] = {
    "spec": tuple(range(12)),
    "length": tuple((n, n + 1) for n in range(9)),
    "loop": ("q_outer", "kv_outer"),
    "splits": (1, 2, 3, 7),
    "layout": ("bhsd", "bshd"),
}


def allowed(row: dict[str, Any]) -> bool:
    return not (row.get("loop") == "kv_outer" and row.get("splits", 1) != 1)


def test_every_feasible_pair_is_covered_by_legal_rows() -> None:
    rows = cover(FACTORS, allowed)
    covered = set().union(*map(pairs_of, rows))
    assert covered >= set(pairs_to_cover(FACTORS, allowed, lambda pair: True))
    assert all(allowed(row) and set(row) == set(FACTORS) for row in rows)
    assert (("loop", "kv_outer"), ("splits", 2)) not in covered


def test_it_is_small_and_repeats() -> None:
    rows = cover(FACTORS, allowed)
    assert len(rows) <= 1.25 * 12 * 9  # the two largest factors alone need 12 * 9
    assert rows == cover(FACTORS, allowed)
    assert rows != cover(FACTORS, allowed, seed=1)


def test_pairs_that_nobody_wants_cost_no_rows() -> None:
    def wanted(pair: dict[str, Any]) -> bool:
        return set(pair) != {"spec", "length"} or pair["spec"] < 3

    rows = cover(FACTORS, allowed, wanted)
    covered = set().union(*map(pairs_of, rows))
    assert covered >= set(pairs_to_cover(FACTORS, allowed, wanted))
    assert len(rows) < 12 * 9 / 1.5
