"""Tile rules evaluated on one sequence: which tiles of a q x kv grid are EMPTY, PARTIAL or FULL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from ...evaluate import Array, Environment, evaluate
from ...ir import TILE_SYMBOLS, Input, Variant
from ...problem import Problem
from ...problem.arrays import repeat_axis
from ...problem.inputs import merged
from ..rules import TileKind, TileRules, sorted_name

SLAB = 1 << 22  # tiles, over all heads, that are classified at once
ROWS = (
    64  # q tiles in a rectangle of `pieces`: where bounds move with the rows, few columns stay that they don't decide
)


@dataclass(frozen=True)
class Tally:
    """The tiles of one sequence, counted over all heads."""

    q_len: int
    block_q: int
    block_kv: int
    kinds: Mapping[TileKind, int]
    live_keys: int  # of the tiles that aren't EMPTY
    live_rows: int
    used_keys: int  # of the kv tiles that some q tile of the head needs
    used_tiles: int  # how many these are
    used_rows: int  # of the q tiles that need some kv tile of the head
    used_q_tiles: int  # how many these are

    @property
    def live(self) -> int:
        return self.kinds[TileKind.PARTIAL] + self.kinds[TileKind.FULL]


@dataclass(frozen=True)
class TileGrid:
    """A rectangle of one sequence's tiles, all of them if nothing else is said. `kinds` is uint8 [num_heads, q tiles,
    kv tiles] of TileKind, or [1, …] where it is the same for all heads; it begins at the tile (q_tile, kv_tile). The
    last tile of an axis may be shorter than its block."""

    kinds: NDArray[np.uint8]
    q_len: int
    kv_len: int
    block_q: int
    block_kv: int
    q_tile: int = 0
    kv_tile: int = 0

    @property
    def q_sizes(self) -> NDArray[np.int64]:
        """Rows of each q tile."""
        return _sizes(self.q_len, self.block_q, self.q_tile, self.kinds.shape[1])

    @property
    def kv_sizes(self) -> NDArray[np.int64]:
        """Keys of each kv tile."""
        return _sizes(self.kv_len, self.block_kv, self.kv_tile, self.kinds.shape[2])

    @property
    def tiles(self) -> tuple[range, range]:
        """The numbers of its q tiles and of its kv tiles."""
        _, down, across = self.kinds.shape
        return range(self.q_tile, self.q_tile + down), range(self.kv_tile, self.kv_tile + across)

    @property
    def is_uniform(self) -> bool:
        """Whether it is one value repeated: what is counted of it needs no look at each tile."""
        return self.kinds.size > 0 and not any(self.kinds.strides)

    def q_rows(self, tile: int) -> slice:
        """The rows of one of its q tiles."""
        start = (self.q_tile + tile) * self.block_q
        return slice(start, min(start + self.block_q, self.q_len))

    def kv_rows(self, tile: int) -> slice:
        start = (self.kv_tile + tile) * self.block_kv
        return slice(start, min(start + self.block_kv, self.kv_len))

    def count(self, kind: TileKind, num_heads: int) -> int:
        """Tiles of a kind over all heads."""
        if self.is_uniform:
            return self.over_heads(self.kinds.size * (self.kinds.flat[0] == kind), num_heads)
        return self.over_heads(np.count_nonzero(self.kinds == kind), num_heads)

    def over_heads(self, count: SupportsInt, num_heads: int) -> int:
        """A count over the heads that the grid tells apart, for all heads."""
        repeats: int = num_heads // max(self.kinds.shape[0], 1)
        return int(count) * repeats


def tally(pieces: Iterable[TileGrid], num_heads: int) -> Tally:
    """Counts the tiles of one sequence; those that no piece holds are EMPTY. There is at least one piece."""
    kinds = dict.fromkeys(TileKind, 0)
    live_keys = live_rows = 0
    used: NDArray[np.bool_] | None = None
    for piece in pieces:
        if used is None:
            used = np.zeros((num_heads, -(-piece.kv_len // piece.block_kv)), bool)
            rows = np.zeros((num_heads, -(-piece.q_len // piece.block_q)), bool)
        for kind in (TileKind.PARTIAL, TileKind.FULL):
            kinds[kind] += piece.count(kind, num_heads)
        live = (piece.kinds[:, :1, :1] if piece.is_uniform else piece.kinds) != TileKind.EMPTY
        by_keys, by_rows = (_broadcast_sum(live, axis, piece.kinds.shape) for axis in (1, 2))
        live_keys += piece.over_heads(by_keys.sum(axis=0) @ piece.kv_sizes, num_heads)
        live_rows += piece.over_heads(by_rows.sum(axis=0) @ piece.q_sizes, num_heads)
        used[:, piece.kv_tile :][:, : piece.kinds.shape[2]] |= np.repeat(by_keys > 0, num_heads // len(live), axis=0)
        rows[:, piece.q_tile :][:, : piece.kinds.shape[1]] |= np.repeat(by_rows > 0, num_heads // len(live), axis=0)
    if used is None:
        raise ValueError("no pieces")
    kinds[TileKind.EMPTY] = num_heads * -(-piece.q_len // piece.block_q) * used.shape[1] - sum(kinds.values())
    used_keys = int(used.sum(axis=0) @ _sizes(piece.kv_len, piece.block_kv, 0, used.shape[1]))
    blocks = piece.block_q, piece.block_kv
    used_rows = int(rows.sum(axis=0) @ _sizes(piece.q_len, piece.block_q, 0, rows.shape[1]))
    of_keys, of_rows = (used_keys, int(used.sum())), (used_rows, int(rows.sum()))
    return Tally(piece.q_len, *blocks, kinds, live_keys, live_rows, *of_keys, *of_rows)


def _broadcast_sum(live: NDArray[np.bool_], axis: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """The sum over one axis of what has this shape, or 1 on both axes of tiles, once repeated to it."""
    counts = live.sum(axis=axis) * (shape[axis] // max(live.shape[axis], 1))
    return np.broadcast_to(counts, (shape[0], shape[3 - axis]))


def uniform_grid(kind: TileKind, q_len: int, kv_len: int, block_q: int, block_kv: int) -> TileGrid:
    """A grid whose tiles are all of one kind."""
    shape = (1, -(-q_len // block_q), -(-kv_len // block_kv))
    return TileGrid(np.broadcast_to(np.uint8(kind), shape), q_len, kv_len, block_q, block_kv)


def tile_grid(
    rules: TileRules, environment: Environment, block_q: int, block_kv: int, *, single_tiles: bool = True
) -> TileGrid:
    """Classifies all tiles of a sequence by the loop bounds and, unless `single_tiles` is false, tile by tile.

    `environment` is what `BoundCall.environment` or `BoundMask.environments` gives, with the tables that the rules
    read among its inputs (`rule_tables`).
    """
    q_tiles, kv_tiles = _all_tiles(environment, block_q, block_kv)
    return classified(rules, environment, (block_q, block_kv), q_tiles, kv_tiles, single_tiles=single_tiles)


def classified(
    rules: TileRules,
    environment: Environment,
    blocks: tuple[int, int],
    q_tiles: range,
    kv_tiles: range,
    *,
    single_tiles: bool = True,
) -> TileGrid:
    """`tile_grid` of a rectangle of tiles alone."""
    (q_len, kv_len), (block_q, block_kv) = _lengths(environment), blocks
    q_first, kv_first = np.arange(len(q_tiles))[:, None] + q_tiles.start, np.arange(len(kv_tiles)) + kv_tiles.start
    q_first, kv_first = q_first * block_q, kv_first * block_kv
    q_last, kv_last = np.minimum(q_first + block_q, q_len) - 1, np.minimum(kv_first + block_kv, kv_len) - 1
    tiles = environment.with_symbols(q_first=q_first, q_last=q_last, kv_first=kv_first, kv_last=kv_last)
    kinds = tile_kinds(rules, tiles, single_tiles=single_tiles)
    return TileGrid(kinds, q_len, kv_len, block_q, block_kv, q_tiles.start, kv_tiles.start)


def tile_kinds(rules: TileRules, tiles: Environment, *, single_tiles: bool = True) -> NDArray[np.uint8]:
    """What some tiles are, [num_heads or 1, q tiles, kv tiles]. The environment has their ends: those of q as columns,
    [q tiles, 1]."""
    kinds = kinds_of(rules, tiles, single_tiles=single_tiles)
    heads = kinds.shape[0] if kinds.ndim == 3 else 1
    return np.broadcast_to(kinds, (heads, tiles.symbols["q_first"].size, tiles.symbols["kv_first"].size))


def kinds_of(rules: TileRules, tiles: Environment, *, single_tiles: bool = True) -> NDArray[np.uint8]:
    """What some boxes are whose ends broadcast against each other; of a shape that broadcasts to theirs."""
    q_first, q_last, kv_first, kv_last = (tiles.symbols[name] for name in TILE_SYMBOLS)
    begin, full_begin, full_end, end = (evaluate(bound, tiles) for bound in rules.bounds[-4:])  # of the inner loop
    first, last = (kv_first, kv_last) if rules.q_bounds is None else (q_first, q_last)
    any_kept = (last >= begin) & (first < end)
    all_kept = (first >= full_begin) & (last < full_end)
    if single_tiles:
        any_kept = any_kept & evaluate(rules.any_kept, tiles)
        all_kept = all_kept | evaluate(rules.all_kept, tiles)
    return np.where(any_kept, np.where(all_kept, TileKind.FULL, TileKind.PARTIAL), TileKind.EMPTY).astype(np.uint8)


def pieces(
    rules: TileRules, environment: Environment, block_q: int, block_kv: int, *, single_tiles: bool = True
) -> Iterator[TileGrid]:
    """What `tile_grid` gives, in rectangles of bounded memory: some rows of tiles at a time. Of those, columns that the
    loop bounds call EMPTY for every row are left out, and those that they call FULL are one uniform rectangle."""
    blocks, (q_tiles, kv_tiles) = (block_q, block_kv), _all_tiles(environment, block_q, block_kv)
    heads = np.size(environment.symbols.get("h", 0))
    height = max(1, min(ROWS, SLAB // max(len(kv_tiles) * heads, 1)))
    yield TileGrid(np.zeros((1, 0, 0), np.uint8), *_lengths(environment), *blocks)  # where there is no other
    for start in range(0, len(q_tiles), height):
        rows = q_tiles[start : start + height]
        live, full = _key_ranges(rules, environment, blocks, rows, kv_tiles)
        for columns in (range(live.start, full.start), range(full.stop, live.stop)):
            if columns:
                yield classified(rules, environment, blocks, rows, columns, single_tiles=single_tiles)
        if full:
            kinds = np.broadcast_to(np.uint8(TileKind.FULL), (1, len(rows), len(full)))
            yield TileGrid(kinds, *_lengths(environment), *blocks, rows.start, full.start)


def _key_ranges(
    rules: TileRules, environment: Environment, blocks: tuple[int, int], rows: range, kv_tiles: range
) -> tuple[range, range]:
    """By the loop bounds of some rows of tiles: the kv tiles outside which all are EMPTY, those that are all FULL."""
    if rules.q_bounds is not None:
        return kv_tiles, range(kv_tiles.stop, kv_tiles.stop)
    (q_len, kv_len), (block_q, block_kv) = _lengths(environment), blocks
    q_first = (np.arange(len(rows))[:, None] + rows.start) * block_q
    tiles = environment.with_symbols(q_first=q_first, q_last=np.minimum(q_first + block_q, q_len) - 1)
    begin, full_begin, full_end, end = (evaluate(bound, tiles) for bound in rules.bounds)
    first, last = int(np.min(begin)) // block_kv, min(-(-int(np.max(end)) // block_kv), kv_tiles.stop)
    full_first, full_last = -(-int(np.max(full_begin)) // block_kv), int(np.min(full_end)) // block_kv
    full_last = kv_tiles.stop if np.min(full_end) >= kv_len else full_last
    full_first, full_last = max(full_first, first), min(full_last, last)
    if full_first >= full_last:
        return range(first, max(first, last)), range(max(first, last), max(first, last))
    return range(first, last), range(full_first, full_last)


def _all_tiles(environment: Environment, block_q: int, block_kv: int) -> tuple[range, range]:
    q_len, kv_len = _lengths(environment)
    return range(-(-q_len // block_q)), range(-(-kv_len // block_kv))


def _lengths(environment: Environment) -> tuple[int, int]:
    return int(environment.symbols["q_len"]), int(environment.symbols["kv_len"])


def rule_tables(rules: TileRules, variant: Variant, problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """What pre-passes find for the rules, by name, from a call's whole inputs: min/max tables, and whether hints hold.

    A packed axis stays whole, and `batch` comes back as a repeated axis, so that tables are indexed like the input.
    """
    found: dict[str, Array] = {}
    for table in rules.min_max_tables:
        declared, array = variant.input(table.input), np.asarray(inputs[table.input])
        starts = np.arange(0, array.shape[-1], table.block)
        for name, extreme in ((table.min_name, np.minimum), (table.max_name, np.maximum)):
            entries = extreme.reduceat(array, starts, axis=-1) if array.size else array[..., : starts.size]
            found[name] = _by_sequence(declared, problem, entries)
    for hinted in rules.sorted_hints:
        declared = variant.input(hinted)
        holds = never_falls(declared, problem, np.asarray(inputs[hinted])) & (not problem.has_offset)
        found[sorted_name(hinted)] = _by_sequence(declared, problem, holds)
    return found


def never_falls(declared: Input, problem: Problem, array: Array) -> Array:
    """Whether each line of an input's last axis is nondecreasing: over the positions in use, within each sequence."""
    if declared.axes[-1].tag == "pos" and not problem.packs_keys:
        array = array[..., : problem.kv_len]
    falls = array[..., 1:] < array[..., :-1]
    if merged(declared, problem):
        starts = problem.q_starts if declared.axes[-1].tag == "q" else problem.kv_starts
        places = np.asarray(starts)
        falls = falls & ~np.isin(np.arange(1, array.shape[-1]), places)
    return np.asarray(~falls.any(axis=-1))


def _by_sequence(declared: Input, problem: Problem, table: Array) -> Array:
    if merged(declared, problem):
        return repeat_axis(table, [axis.tag for axis in declared.axes].index("batch"), problem.batch)
    return table


def _sizes(length: int, block: int, tile: int, count: int) -> NDArray[np.int64]:
    first = np.arange(tile, tile + count) * block
    return np.minimum(first + block, length) - first
