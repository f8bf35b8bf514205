"""A covering design: few rows in which every wanted pair of values of two factors occurs together at least once.

A mistake in a kernel nearly always needs one or two particular values (this head dim, that mask at this length), seldom
three at once, so covering all pairs finds what the full product would, in a few hundred runs instead of millions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def pairs_of(row: Row) -> set[Pair]:
    """The pairs of (factor, value) that a row covers."""
    return set(combinations(sorted(row.items(), key=lambda item: item[0]), 2))


def pairs_to_cover(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool], wanted: Callable[[Row], bool]
) -> list[Pair]:
    """All wanted pairs that `allowed` lets stand together; both see rows of two factors."""
    names = sorted(factors)
    every = (((a, x), (b, y)) for a, b in combinations(names, 2) for x in factors[a] for y in factors[b])
    return [pair for pair in every if allowed(dict(pair)) and wanted(dict(pair))]


def cover(
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool] = lambda row: True,
    wanted: Callable[[Row], bool] = lambda pair: True,
    seed: int = 0,
    tries: int = 8,
) -> list[Row]:
    """Rows that cover every pair that is `allowed` and `wanted`, built greedily: each is the best of a few random ones.

    Each try starts from a pair still missing, then gives each further factor, in random order, the value that covers
    most missing pairs. The same seed gives the same rows.
    """
    chance = random.Random(seed)
    missing = dict.fromkeys(
        pairs_to_cover(factors, allowed, wanted)
    )  # a set that keeps its order, so that seeds repeat
    rows = []
    while missing:
        candidates = [_candidate(factors, allowed, missing, chance) for _ in range(tries)]
        best = max(candidates, key=lambda row: len(pairs_of(row) & missing.keys()))
        for pair in pairs_of(best):
            missing.pop(pair, None)
        rows.append({name: best[name] for name in factors})
    return rows


def _candidate(
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Row], bool],
    missing: Collection[Pair],
    chance: random.Random,
) -> Row:
    row: Row = dict(chance.choice(tuple(missing)))
    for name in chance.sample(sorted(set(factors) - set(row)), len(factors) - len(row)):
        values = [value for value in factors[name] if allowed({**row, name: value})]
        chance.shuffle(values)
        row[name] = max(values, key=lambda value: _gain(row, name, value, missing))
    return row


def _gain(row: Row, name: str, value: Any, missing: Collection[Pair]) -> int:
    new = (name, value)
    return sum((min(new, old, key=_name), max(new, old, key=_name)) in missing for old in row.items())


def _name(item: tuple[str, Any]) -> str:
    return item[0]
