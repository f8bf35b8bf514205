"""Tile rules evaluated on one sequence: which tiles of a q x kv grid are EMPTY, PARTIAL or FULL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from ..evaluate import Array, Environment, evaluate
from ..ir import Input, Variant
from ..problem import Problem
from ..problem.arrays import repeat_axis
from ..problem.inputs import merges
from .rules import TileKind, TileRules, sorted_name


@dataclass(frozen=True)
class TileGrid:
    """The tiles of one sequence. `kinds` is uint8 [num_heads, q tiles, kv tiles] of TileKind, or [1, …] where it is the
    same for all heads; the last tile of an axis may be shorter than its block."""

    kinds: NDArray[np.uint8]
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int

    @property
    def q_sizes(self) -> NDArray[np.int64]:
        """Rows of each q tile."""
        return _sizes(self.q_len, self.block_q)

    @property
    def kv_sizes(self) -> NDArray[np.int64]:
        """Keys of each kv tile."""
        return _sizes(self.kv_len, self.block_kv)

    def q_rows(self, tile: int) -> slice:
        return slice(tile * self.block_q, min((tile + 1) * self.block_q, self.q_len))

    def kv_rows(self, tile: int) -> slice:
        return slice(tile * self.block_kv, min((tile + 1) * self.block_kv, self.kv_len))

    def count(self, kind: TileKind, num_heads: int) -> int:
        """Tiles of a kind over all heads."""
        return self.over_heads(np.count_nonzero(self.kinds == kind), num_heads)

    def over_heads(self, count: SupportsInt, num_heads: int) -> int:
        """A count over the heads that the grid tells apart, for all heads."""
        repeats: int = num_heads // self.kinds.shape[0]
        return int(count) * repeats


def uniform_grid(kind: TileKind, q_len: int, kv_len: int, block_q: int, block_kv: int) -> TileGrid:
    """A grid whose tiles are all of one kind."""
    shape = (1, -(-q_len // block_q), -(-kv_len // block_kv))
    return TileGrid(np.full(shape, kind, np.uint8), q_len, kv_len, block_q, block_kv)


def tile_grid(
    rules: TileRules, environment: Environment, block_q: int, block_kv: int, *, single_tiles: bool = True
) -> TileGrid:
    """Classifies all tiles of a sequence by the loop bounds and, unless `single_tiles` is false, tile by tile.

    `environment` is what `BoundCall.environment` or `BoundMask.environments` gives, with the tables that the rules
    read among its inputs (`rule_tables`).
    """
    q_len, kv_len = int(environment.symbols["q_len"]), int(environment.symbols["kv_len"])
    q_first, kv_first = np.arange(0, q_len, block_q)[:, None], np.arange(0, kv_len, block_kv)
    q_last, kv_last = np.minimum(q_first + block_q, q_len) - 1, np.minimum(kv_first + block_kv, kv_len) - 1
    tiles = environment.with_symbols(q_first=q_first, q_last=q_last, kv_first=kv_first, kv_last=kv_last)
    begin, full_begin, full_end, end = (evaluate(bound, tiles) for bound in rules.bounds[-4:])  # of the inner loop
    first, last = (kv_first, kv_last) if rules.q_bounds is None else (q_first, q_last)
    any_kept = (last >= begin) & (first < end)
    all_kept = (first >= full_begin) & (last < full_end)
    if single_tiles:
        any_kept = any_kept & evaluate(rules.any_kept, tiles)
        all_kept = all_kept | evaluate(rules.all_kept, tiles)
    kinds = np.where(any_kept, np.where(all_kept, TileKind.FULL, TileKind.PARTIAL), TileKind.EMPTY).astype(np.uint8)
    heads = kinds.shape[0] if kinds.ndim == 3 else 1
    kinds = np.broadcast_to(kinds, (heads, q_first.size, kv_first.size))
    return TileGrid(kinds, q_len, kv_len, block_q, block_kv)


def rule_tables(rules: TileRules, variant: Variant, problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """What pre-passes find for the rules, by name, from a call's whole inputs: zone maps, and whether claims hold.

    A packed axis stays whole, and `batch` comes back as a repeated axis, so that tables are indexed like the input.
    """
    found: dict[str, Array] = {}
    for zone in rules.zone_maps:
        declared, array = variant.input(zone.input), np.asarray(inputs[zone.input])
        starts = np.arange(0, array.shape[-1], zone.block)
        for name, extreme in ((zone.min_name, np.minimum), (zone.max_name, np.maximum)):
            table = extreme.reduceat(array, starts, axis=-1) if array.size else array[..., : starts.size]
            found[name] = _by_sequence(declared, problem, table)
    for claimed in rules.claims:
        declared = variant.input(claimed)
        holds = never_falls(declared, problem, np.asarray(inputs[claimed]))
        found[sorted_name(claimed)] = _by_sequence(declared, problem, holds)
    return found


def never_falls(declared: Input, problem: Problem, array: Array) -> Array:
    """Whether each line of an input's last axis is nondecreasing: over the positions in use, within each sequence."""
    if declared.axes[-1].tag == "pos" and not problem.packed:
        array = array[..., : problem.kv_len]
    falls = array[..., 1:] < array[..., :-1]
    if problem.packed and merges(declared):
        starts = problem.q_starts if declared.axes[-1].tag == "q" else problem.kv_starts
        places = np.asarray(starts)
        falls = falls & ~np.isin(np.arange(1, array.shape[-1]), places)
    return np.asarray(~falls.any(axis=-1))


def _by_sequence(declared: Input, problem: Problem, table: Array) -> Array:
    if problem.packed and merges(declared):
        return repeat_axis(table, [axis.tag for axis in declared.axes].index("batch"), problem.batch)
    return table


def _sizes(length: int, block: int) -> NDArray[np.int64]:
    first = np.arange(0, length, block)
    return np.minimum(first + block, length) - first
