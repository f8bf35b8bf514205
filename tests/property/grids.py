"""Random masks of images and videos: predicates over rows and columns of positions, and what 2-D tiles of them keep."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.tiles import analyse_tiles_2d, analyse_windows
from attncc.analysis.tiles_2d.fixed import corners
from attncc.evaluate import Array, Environment, evaluate
from attncc.ir import Expr, Keep, Variant, apply, const

from .joined import JOINED, Kind
from .masks import Random, mask_of, pick
from .places import distance_of, place_of

WIDTHS = (4, 6, 8, 12, 16, 20, 24)


def grid_variant(random: Random, width: int, *, joined: bool = False) -> Variant:
    """A few keep lines over places on a 2-D grid of this width, most of them bounds of distances. `joined`: two of
    three are comparisons that say more together than each alone."""
    kinds = _BOUNDS + 6 * JOINED if joined else _BOUNDS
    lines = tuple(Keep(_line(random, width, 1, kinds)) for _ in range(int(random.integers(1, 4))))
    return Variant("grid", statements=lines)


def _line(random: Random, width: int, depth: int, kinds: tuple[Kind, ...]) -> Expr:
    def inner() -> Expr:
        return _line(random, width, depth - 1, kinds)

    kind = random.random()
    if depth and kind < 0.15:
        return apply("or", inner(), inner())
    if depth and kind < 0.3:
        return apply("and", inner(), inner())
    if depth and kind < 0.35:
        return apply("not", inner())
    if depth and kind < 0.4:
        return apply("select", *(inner() for _ in range(3)))
    return pick(random, kinds)(random, width)


def _within(random: Random, width: int) -> Expr:
    distance, reach = distance_of(random, width)
    return apply("le", apply("abs", distance), const(int(random.integers(0, reach))))


def _one_sided(random: Random, width: int) -> Expr:
    distance, reach = distance_of(random, width)
    order = pick(random, ("le", "lt", "ge", "gt"))
    return apply(order, distance, const(int(random.integers(-reach, reach))))


def _squared(random: Random, width: int) -> Expr:
    first, second = (distance_of(random, width)[0] for _ in range(2))
    total = apply("mul", first, first)
    if random.random() < 0.5:
        total = apply("add", total, apply("mul", second, second))
    return apply("le", total, const(int(random.integers(0, 80))))


def _summed(random: Random, width: int) -> Expr:
    first, second = (apply("abs", distance_of(random, width)[0]) for _ in range(2))
    return apply("le", apply(pick(random, ("add", "max", "min")), first, second), const(int(random.integers(0, 9))))


def _divided(random: Random, width: int) -> Expr:
    distance, reach = distance_of(random, width)
    moved = apply("add", distance, const(int(random.integers(0, reach))))
    part = apply(pick(random, ("floordiv", "mod")), moved, const(int(random.integers(2, reach + 2))))
    return apply(pick(random, ("eq", "ne", "le", "ge")), part, const(int(random.integers(-1, 3))))


def _listed(random: Random, width: int) -> Expr:
    distance, reach = distance_of(random, width)
    listed = {int(x) for x in random.integers(-reach, reach, int(random.integers(2, 7)))}
    listed |= {x + 1 for x in listed}
    return apply("or", *(apply("eq", distance, const(x)) for x in sorted(listed)))


def _of_one_side(random: Random, width: int) -> Expr:
    axis, unit = pick(random, (("row", 1), ("column", 1), ("position", width)))
    place = place_of(random, pick(random, ("q_pos", "kv_idx")), width, axis)
    return apply(pick(random, ("lt", "ge", "ne")), place, const(int(random.integers(0, 5)) * unit))


def _numbered(random: Random, width: int) -> Expr:
    """Blocks of rows and columns, numbered along their rows: of a query and a key, or short of each other."""
    rows, columns = (int(size) for size in random.integers(1, 6, 2))
    across = -(-width // columns) - int(random.random() < 0.2)  # too few: numbers of two blocks are one

    def number(side: str) -> Expr:
        row, column = (place_of(random, side, width, axis) for axis in ("row", "column"))
        of_rows = apply("mul", apply("floordiv", row, const(rows)), const(across))
        return apply("add", of_rows, apply("floordiv", column, const(columns)))

    moved = apply("add", number("kv_idx"), const(int(random.integers(-1, 2)) * int(random.integers(1, 9))))
    return apply(pick(random, ("eq", "eq", "ne", "ge")), number(pick(random, ("q_idx", "q_pos"))), moved)


def _half(random: Random, width: int) -> Expr:
    """A distance beside a float, such as half a window."""
    distance, reach = distance_of(random, width)
    half = apply("div", const(float(random.integers(-reach, 2 * reach))), const(2.0))
    sides = [apply("to_float", apply(pick(random, ("abs", "neg")), distance)), half]
    if random.random() < 0.3:
        sides.reverse()
    return apply(pick(random, ("lt", "le", "gt", "ge", "eq", "ne")), *sides)


_BOUNDS = (
    _within, _within, _within, _one_sided, _one_sided, _squared, _summed, _divided, _listed, _of_one_side, _numbered,
    _half, *JOINED,
)  # fmt: skip


@dataclass(frozen=True)
class Tiles2D:
    """The tiles of a sequence of queries, or of keys: their corners, and their positions one tile after the other."""

    first: Array
    last: Array
    order: Array
    starts: Array

    @classmethod
    def of(cls, length: int, block: int, columns: int, width: int) -> Tiles2D:
        first, last = corners(length, block, columns, width)
        tiles = [_positions(int(a), int(b), width) for a, b in zip(first, last, strict=True)]
        sizes = np.array([tile.size for tile in tiles])
        return cls(first, last, np.concatenate(tiles), np.cumsum(sizes) - sizes)


def _positions(first: int, last: int, width: int) -> Array:
    rows, columns = np.arange(first // width, last // width + 1), np.arange(first % width, last % width + 1)
    found: Array = (rows[:, None] * width + columns).ravel()
    return found


@dataclass(frozen=True)
class OnGrid:
    """A mask on a 2-D grid, its tiles, and what brute force says of them."""

    variant: Variant
    grid_2d: Grid2D
    blocks: tuple[int, int]
    known: Environment
    mask: Array
    q: Tiles2D
    kv: Tiles2D

    @classmethod
    def of(cls, variant: Variant, grid_2d: Grid2D, known: Environment, random: Random) -> OnGrid:
        """In blocks of a few rows of the grid."""
        sides = (("q_len", grid_2d.q_columns), ("kv_len", grid_2d.kv_columns))
        block_q, block_kv = (columns * int(pick(random, (1, 2, 4, 8))) for _, columns in sides)
        q, kv = (
            Tiles2D.of(int(known.symbols[name]), block, columns, grid_2d.width)
            for (name, columns), block in zip(sides, (block_q, block_kv), strict=True)
        )
        return cls(variant, grid_2d, (block_q, block_kv), known, mask_of(variant, known), q, kv)

    @property
    def kept(self) -> Array:
        """How many pairs of each tile are kept: int64 [q tiles, kv tiles]."""
        return self._counted(self.mask)

    def _counted(self, pairs: Array) -> Array:
        ordered = pairs[np.ix_(self.q.order, self.kv.order)].astype(np.int64)
        found: Array = np.add.reduceat(np.add.reduceat(ordered, self.q.starts, axis=0), self.kv.starts, axis=1)
        return found

    def check_tiles_2d(self, name: str) -> None:
        """No kept pair is dropped, by tile or by bounds of either side, and nothing is called full that isn't."""
        q, kv, kept = self.q, self.kv, self.kept
        rules = analyse_tiles_2d(self.variant, *self.blocks, self.grid_2d, "q")
        ends = {"q_first": q.first[:, None], "q_last": q.last[:, None], "kv_first": kv.first, "kv_last": kv.last}

        def value(rule: Expr) -> Array:
            return np.broadcast_to(evaluate(rule, self.known.with_symbols(**ends)), kept.shape)

        assert rules.q_bounds is not None
        assert not kept[~value(rules.any_kept)].any(), name
        assert not kept[(kv.last < value(rules.kv_begin)) | (kv.first >= value(rules.kv_end))].any(), name
        rows = rules.q_bounds
        assert not kept[(ends["q_last"] < value(rows.q_begin)) | (ends["q_first"] >= value(rows.q_end))].any(), name
        assert (kept == self._counted(np.ones_like(self.mask)))[value(rules.all_kept)].all(), name

    def check_windows(self, name: str) -> None:
        """Each kept pair of a block of queries lies in its window."""
        rules = analyse_windows(self.variant, *self.blocks, replace(self.grid_2d, window=True))
        if rules is None or rules.columns is None:
            return
        keys = np.arange(self.mask.shape[1])
        seen = self.known.with_symbols(q_first=self.q.first[:, None], q_last=self.q.last[:, None])
        begin, end, left, right = (evaluate(rule, seen) for rule in (rules.kv_begin, rules.kv_end, *rules.columns))
        column = keys % self.grid_2d.width
        inside = (begin <= keys) & (keys < end) & (left <= column) & (column < right)
        kept = np.add.reduceat(self.mask[self.q.order], self.q.starts, axis=0) > 0
        assert not (kept & ~inside).any(), name


def environment(q_len: int, kv_len: int) -> Environment:
    """One head of one dense sequence."""
    return Environment({
        "b": 0, "h": 0, "kv_h": 0, "num_heads": 1, "num_kv_heads": 1, "head_dim": 64, "q_len": q_len, "kv_len": kv_len,
        "q_offset": kv_len - q_len,
    })  # fmt: skip


def random_grid(random: Random, width: int) -> Grid2D:
    columns = [size for size in (1, 2, 4, 8) if width % size == 0]
    return Grid2D(width, int(pick(random, tuple(columns))), int(pick(random, tuple(columns))))
