"""What the mask analysis proves, as data: `TileRules`. Plans carry it, kernels and the executor evaluate it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from ..ir import Expr, Load, Symbol, walk


class TileKind(IntEnum):
    """A tile is a box of q x kv positions, clipped to q_len and kv_len."""

    EMPTY = 0  # no pair is kept
    PARTIAL = 1  # anything; always a legal answer
    FULL = 2  # every pair is kept


@dataclass(frozen=True)
class MinMaxTable:
    """Minimum and maximum of an input over blocks of its last axis (with length `block`; the last may be shorter).

    Computed by a pre-pass before the kernel. Rules read it as the loads `<input>__min` and `<input>__max`, indexed
    like the input, but with a block number on the last axis: ceil(length / block) entries.
    """

    input: str
    block: int

    @property
    def min_name(self) -> str:
        return f"{self.input}__min"

    @property
    def max_name(self) -> str:
        return f"{self.input}__max"


def sorted_name(input_name: str) -> str:
    """The load that says whether an input's hint `nondecreasing` is true: a bool, indexed without the last axis.

    A pre-pass before the kernel finds it, for the positions in use: of a packed axis, within each sequence.
    """
    return f"{input_name}__sorted"


@dataclass(frozen=True)
class QBounds:
    """For kernels that go over rows for each block of keys: ints over `kv_first` and `kv_last` alone.

    Every kept pair of the keys has q_begin <= q_idx < q_end, and every pair of theirs with full_begin <= q_idx <
    full_end is kept. They are clamped: 0 <= q_begin, q_end <= q_len, and full_begin >= full_end means none.
    """

    q_begin: Expr
    q_end: Expr
    full_begin: Expr
    full_end: Expr


@dataclass(frozen=True)
class TileRules:
    """Sound rules for the tiles of one variant: expressions over uniform symbols, inputs, min/max tables and the tile.

    `any_kept` and `all_kept` are bools over `ir.TILE_SYMBOLS`: a tile with `not any_kept` is EMPTY, one with
    `all_kept` is FULL. The bounds are ints over `q_first` and `q_last` alone (never the kv symbols), for the rows of
    one q block: every kept pair has kv_begin <= kv_idx < kv_end, and every pair with full_begin <= kv_idx < full_end
    is kept. They are already clamped: 0 <= kv_begin, kv_end <= kv_len, and full_begin >= full_end means none.
    """

    any_kept: Expr
    all_kept: Expr
    kv_begin: Expr
    kv_end: Expr
    full_begin: Expr
    full_end: Expr
    min_max_tables: tuple[MinMaxTable, ...]
    bounds_suffice: bool  # tile_kind finds nothing that the bounds of the inner loop miss: kernels leave it out
    decides: bool  # the rules can tell some tile from PARTIAL
    rows_never_empty: bool  # proven: every row with 0 <= q_idx < q_len keeps some key (given kv_len >= 1)
    undecided: tuple[tuple[int, str], ...]  # (index into variant.keeps, reason): why a tile may stay PARTIAL
    q_bounds: QBounds | None = None  # where rows are the inner loop
    sorted_hints: tuple[str, ...] = ()  # inputs whose hint `nondecreasing` the rules test, as `sorted_name` says
    columns: tuple[Expr, Expr] | None = None  # of a 2-D grid, where tiles are windows: begin <= kv_idx % width < end

    @cached_property  # each of a kernel's facts asks
    def reads_keys(self) -> bool:
        """Whether the test of a tile reads tensors at its keys."""
        loads = [node for node in walk(self.any_kept, self.all_kept) if isinstance(node, Load)]
        names = {part.name for part in walk(*loads) if isinstance(part, Symbol)}
        return not names.isdisjoint(("kv_first", "kv_last"))

    @cached_property
    def test_reads(self) -> frozenset[str]:
        """Names of the inputs and tables that the test of a tile reads."""
        return _inputs(self.any_kept, self.all_kept)

    @cached_property
    def bounds_read(self) -> frozenset[str]:
        """The same of all bounds."""
        return _inputs(*self.bounds)

    @property
    def bounds(self) -> tuple[Expr, ...]:
        """Those of keys, and of rows where there are."""
        rows = self.q_bounds
        of_rows = () if rows is None else (rows.q_begin, rows.full_begin, rows.full_end, rows.q_end)
        return self.kv_begin, self.full_begin, self.full_end, self.kv_end, *of_rows

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.any_kept, self.all_kept, *self.bounds


def _inputs(*roots: Expr) -> frozenset[str]:
    return frozenset(node.input for node in walk(*roots) if isinstance(node, Load))
