"""From a variant to the rules of its tiles: what `grid`, the executor and the kernels evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...ir import Apply, Expr, Load, Search, Symbol, Type, Variant, apply, const, walk
from ..algebra.algebra import FALSE, TRUE, Algebra
from ..algebra.canonical import Canonical
from ..algebra.ranges import INT64
from ..algebra.terms import NEAR
from ..grid_2d import Grid2D, of_corners
from ..rules import QBounds, TileRules, sorted_name
from .bounds import IndexRange, LoopBounds, Solver
from .box import Box
from .hint_use import HintUse, SortedHints
from .implied import Implied
from .min_max_tables import MOST_ENTRIES, MinMaxTables
from .normal_form import is_large, normal_form
from .plain import plain
from .values import WRAPS, Truth

_ANY_KEYS = 1 << 30  # a range of keys is no longer
_ROW_KEYS = 64  # of tiles of one row. What is asked of them are bounds in keys, which no size of tiles changes
_MOST_PAIRS = 4096  # of limits that are compared, to tell whether a row keeps some key
_MOST_DEEP = 48  # levels of what rules say of a tile: deeper ones take the CUDA compiler minutes
_MOST_SEARCHES = 16  # by the bounds of a block: each is some hundred instructions in every kernel, and takes turns
_COMMON_BLOCK = 256  # whose rules serve all tiles of a large mask: no default tile is larger
_MOST_READ = 64  # entries of inputs, by the test of a tile: in a small one each lookup is exact, but there may be many


@lru_cache(maxsize=256)  # candidates of one tile, and the passes that go over the same, ask for the same rules
def analyse(variant: Variant, block_q: int, block_kv: int, inner: str = "kv", *, searches: bool = True) -> TileRules:
    """Sound rules for tiles of at most block_q x block_kv pairs; docs/analysis.md gives the argument.

    `inner` is what a kernel's inner loop goes over for a block of the other side: `kv`, or `q`, which has `q_bounds`.
    `searches`: whether bounds may be searched for, as where they are asked for once a block, by whole warps.
    Bounds inference over boxes, in the manner of Halide (Ragan-Kelley et al., PLDI 2013, section 4.2), of predicates.
    Rules of larger tiles serve where the test would read very much, and for a large mask, whose analysis takes long.
    """
    searches = searches or not any(item.nondecreasing for item in variant.inputs)  # without hints it is the same
    blocks = _blocks_analysed(variant, block_q, block_kv)
    if blocks != (block_q, block_kv):
        return analyse(variant, *blocks, inner, searches=searches)
    rules = _of_tiles(plain(variant), block_q, block_kv, inner, searches=searches)
    if min(block_q, block_kv) <= MOST_ENTRIES and _entries_read(rules) > _MOST_READ:
        return analyse(variant, 2 * block_q, 2 * block_kv, inner, searches=searches)
    return rules


def _blocks_analysed(variant: Variant, *blocks: int) -> tuple[int, ...]:
    """Blocks whose rules serve for tiles of these. Of a large mask they are the same for nearly all tiles."""
    if not is_large(variant):
        return blocks
    size = _COMMON_BLOCK
    while size < max(blocks):
        size *= 2
    return size, size


def _entries_read(rules: TileRules) -> int:
    return sum(isinstance(node, Load) for node in walk(rules.any_kept, rules.all_kept))


def _of_tiles(variant: Variant, block_q: int, block_kv: int, inner: str, *, searches: bool) -> TileRules:
    hint_use = HintUse.PRESUMED if searches else HintUse.IGNORED
    rules, presumed = _analysed(variant, (block_q, block_kv), inner, hint_use)
    if presumed and _worth_a_test(rules):
        holds = presumed[0] if len(presumed) == 1 else apply("and", *presumed)
        rules = _where(holds, rules, _bounds_alone(variant, (block_q, block_kv), inner))
    elif presumed:
        rules, _ = _analysed(variant, (block_q, block_kv), inner, HintUse.IGNORED)
    if rules.full_end != const(0) and _rows_never_empty(variant):
        rules = replace(rules, rows_never_empty=True)
    return _with_tables(variant, rules)


def _analysed(variant: Variant, blocks: tuple[int, int], inner: str, hint_use: HintUse) -> tuple[TileRules, list[Expr]]:
    """Rules, and what they presume of hints."""
    mask = _lower(variant, *blocks, hint_use)
    rules, presumed = _rules(mask, inner), list(mask.box.hints.presumed)
    wide = mask.wide_inputs()
    if not wide or WRAPS not in mask.box.reasons.values():
        return rules, presumed
    near = _lower(variant, *blocks, hint_use, near=True)
    rules = _where(_all_near(wide), _rules(near, inner), rules)
    return rules, list(dict.fromkeys([*presumed, *near.box.hints.presumed]))


def _worth_a_test(trusting: TileRules) -> bool:
    """Whether hints save the test of single tiles, or find keys, in few searches. Else min/max tables say as much."""
    searches = sum(isinstance(node, Search) for node in walk(*trusting.bounds))
    return searches <= _MOST_SEARCHES and (searches > 0 or trusting.bounds_suffice)


def _bounds_alone(variant: Variant, blocks: tuple[int, int], inner: str) -> TileRules:
    """Where a hint is false: the loop bounds of the lines that don't need it. A path for mistakes is worth no code."""
    rules, _ = _analysed(variant, blocks, inner, HintUse.DENIED)
    return replace(rules, any_kept=TRUE, all_kept=FALSE)


def _with_tables(variant: Variant, rules: TileRules) -> TileRules:
    """With the tables that the rules read, and no others."""
    if not variant.inputs:
        return rules
    read = rules.bounds_read | rules.test_reads
    return replace(
        rules,
        min_max_tables=tuple(table for table in rules.min_max_tables if read & {table.min_name, table.max_name}),
        sorted_hints=tuple(item.name for item in variant.inputs if sorted_name(item.name) in read),
    )


def same_for_all(variant: Variant, block_q: int, block_kv: int, ints: Sequence[Expr]) -> Expr:
    """Whether each of some int expressions is the same for all pairs of a tile; FALSE where that can't be told."""
    mask = _lower(replace(variant, statements=()), block_q, block_kv)
    canonical = Canonical(mask.box.algebra, {})
    intervals = [mask.box.interval(canonical.of(expr)) for expr in ints]
    same = mask.box.algebra.both(*(mask.box.algebra.compare("eq", *interval[:2]) for interval in intervals))
    return FALSE if mask.box.tables.used else same


def all_hold(variant: Variant, block_q: int, conditions: Sequence[Expr]) -> Expr:
    """Whether conditions hold for all pairs of at most block_q rows and any range of keys, over the ends of both.

    What is hinted of inputs is used, and part of the answer. FALSE where that can't be told.
    """
    mask = _lower(variant, block_q, _ANY_KEYS, HintUse.PRESUMED)
    algebra = mask.box.algebra
    canonical = Canonical(algebra, variant.lets)
    found = mask.box.truth(algebra.both(*(canonical.of(condition) for condition in conditions))).all
    return FALSE if mask.box.tables.used else algebra.both(found, *mask.box.hints.presumed)


def analyse_tiles_2d(variant: Variant, block_q: int, block_kv: int, grid_2d: Grid2D, inner: str = "kv") -> TileRules:
    """Rules for 2-D tiles, over their corners; loop bounds for the rows of the grid.

    The bounds are those of the positions from the first corner to the last, the tile's among them.
    `inner`: as `analyse` has it.
    """
    of_bands = analyse(variant, *grid_2d.bands(block_q, block_kv), inner)
    mask = _lower(variant, block_q, block_kv, grid_2d=grid_2d)
    truth = mask.truth()
    return replace(
        of_bands,
        any_kept=of_corners(truth.any, grid_2d),
        all_kept=of_corners(truth.all, grid_2d),
        full_begin=const(0),
        full_end=const(0),
        q_bounds=of_bands.q_bounds and replace(of_bands.q_bounds, full_begin=const(0), full_end=const(0)),
        bounds_suffice=False,
        decides=True,
        undecided=tuple((index, reason) for index, keep in enumerate(mask.keeps) for reason in mask.reasons(keep)),
    )


def analyse_windows(variant: Variant, block_q: int, block_kv: int, grid_2d: Grid2D) -> TileRules | None:
    """Rules for tiles of keys that are windows of a 2-D grid: bounds of its rows, as positions, and of its columns.

    None where some condition takes a key's row and column together: a window would not say what it keeps.
    """
    mask = _lower(variant, block_q, block_kv, grid_2d=grid_2d)
    algebra, width = mask.box.algebra, mask.box.algebra.number(grid_2d.width)
    parts = mask.kept.args if isinstance(mask.kept, Apply) and mask.kept.op == "and" else (mask.kept,)
    read = {part: {node.name for node in walk(part) if isinstance(node, Symbol)} for part in parts}
    if any({"kv_row_idx", "kv_column_idx"} <= names for names in read.values()):
        return None
    of_columns = algebra.both(*(part for part in parts if "kv_column_idx" in read[part]))
    live = Solver(mask.box, "kv", "kv_column_idx", width).of(of_columns).live
    begin, end = (of_corners(bound, grid_2d) for bound in _within(algebra, live, width))
    return replace(
        analyse(variant, block_q // grid_2d.q_columns * grid_2d.width, block_kv),
        any_kept=TRUE,
        all_kept=FALSE,
        full_begin=const(0),
        full_end=const(0),
        bounds_suffice=True,
        decides=True,
        undecided=(),
        columns=(begin, end),
    )


def _rules(mask: _Mask, inner: str) -> TileRules:
    truth, bounds = _test(mask), _bounds(mask, "kv")
    of_loop = bounds if inner == "kv" else _bounds(mask, inner)
    blind = truth.any is TRUE and truth.all is FALSE
    kv_begin, kv_end = _clamped(mask.box.algebra, bounds.live)
    full_begin, full_end = _clamped(mask.box.algebra, bounds.full)
    return TileRules(
        any_kept=truth.any,
        all_kept=truth.all,
        kv_begin=kv_begin,
        kv_end=kv_end,
        full_begin=full_begin,
        full_end=full_end,
        min_max_tables=tuple(mask.box.tables.used.values()),
        bounds_suffice=blind or (of_loop.live.exact and of_loop.full.exact),
        decides=not blind or bounds.live.begin is not None or bounds.live.end is not None,
        rows_never_empty=False,
        undecided=tuple((index, reason) for index, keep in enumerate(mask.keeps) for reason in mask.reasons(keep)),
        q_bounds=_q_bounds(mask.box.algebra, of_loop) if inner == "q" else None,
    )


def _test(mask: _Mask) -> Truth:
    """What is told of single tiles, without lines of which it would be nested too deep."""
    truth = mask.truth()
    if _depth(*truth) <= _MOST_DEEP:
        return truth
    told = [keep for keep in mask.keeps if _depth(*mask.box.truth(keep)) <= _MOST_DEEP]
    for keep in set(mask.keeps) - set(told):
        mask.box.reasons[keep] = "its conditions are nested too deep for a test of each tile"
    return Truth(mask.box.truth(mask.box.algebra.both(*told)).any, FALSE)


def _bounds(mask: _Mask, side: str) -> LoopBounds:
    """The loop bounds, without those of lines of which they would be nested too deep."""
    solver = Solver(mask.box, side)
    bounds = solver.of(mask.kept)
    implied = mask.box.algebra.both(mask.kept, *mask.implied.joint, *mask.implied.single)
    if implied is not mask.kept:
        bounds = LoopBounds(solver.of(implied).live, bounds.full)
    if _depth(*bounds.ends) <= _MOST_DEEP:
        return bounds
    told = [keep for keep in mask.keeps if _depth(*solver.of(keep).ends) <= _MOST_DEEP]
    live, nothing = solver.of(mask.box.algebra.both(*told)).live, mask.box.algebra.number(0)
    return LoopBounds(replace(live, exact=False), IndexRange(None, nothing, exact=False))


def _depth(*roots: Expr) -> int:
    return max((root.depth for root in roots), default=0)


def _q_bounds(algebra: Algebra, found: LoopBounds) -> QBounds:
    return QBounds(*_clamped(algebra, found.live, "q_len"), *_clamped(algebra, found.full, "q_len"))


def _where(condition: Expr, rules: TileRules, otherwise: TileRules) -> TileRules:
    """The rules where a uniform condition holds, else the others, which are sound always.

    Where the rules need no test of single tiles, none is added for the sake of the others.
    """
    if rules.bounds_suffice:
        otherwise = replace(otherwise, any_kept=TRUE, all_kept=FALSE, bounds_suffice=True)

    return replace(
        otherwise,
        **_chosen(condition, rules, otherwise, "any_kept", "all_kept", "kv_begin", "kv_end", "full_begin", "full_end"),
        q_bounds=rules.q_bounds
        and QBounds(**_chosen(condition, rules.q_bounds, otherwise.q_bounds, *QBounds.__dataclass_fields__)),
        min_max_tables=tuple(dict.fromkeys(rules.min_max_tables + otherwise.min_max_tables)),
        bounds_suffice=rules.bounds_suffice,
        decides=rules.decides or otherwise.decides,
        undecided=rules.undecided,
    )


def _chosen(condition: Expr, a: object, b: object, *names: str) -> dict[str, Any]:
    """Fields of `a` where the condition holds, else those of `b`."""
    pairs = {name: (getattr(a, name), getattr(b, name)) for name in names}
    return {
        name: one if one == other else apply("select", condition, one, other) for name, (one, other) in pairs.items()
    }


@dataclass(frozen=True)
class _Mask:
    """The keep lines of a variant in normal form, and their conjunction, over one tile size."""

    box: Box
    keeps: tuple[Expr, ...]
    kept: Expr
    implied: Implied

    def truth(self) -> Truth:
        """Whether a tile may keep some pair, which also asks for what the lines imply, and whether it keeps all."""
        truth = self.box.truth(self.kept)
        return Truth(self.box.truth(self.box.algebra.both(self.kept, *self.implied.joint)).any, truth.all)

    def reasons(self, keep: Expr) -> list[str]:
        known = self.box.reasons
        return list(dict.fromkeys(known[node] for node in walk(keep) if node in known))

    def wide_inputs(self) -> list[Expr]:
        """The 64-bit inputs among the keep lines, where they don't vary over a tile."""
        algebra = self.box.algebra
        loads = [node for node in walk(self.kept) if isinstance(node, Load) and node.type is Type.INT]
        return [load for load in loads if algebra.uniform(load) and algebra.range(load) == INT64]


def _lower(
    variant: Variant,
    block_q: int,
    block_kv: int,
    hint_use: HintUse = HintUse.IGNORED,
    *,
    near: bool = False,
    grid_2d: Grid2D | None = None,
) -> _Mask:
    form = normal_form(variant, block_q, block_kv, near=near, grid_2d=grid_2d)
    tables, hints = MinMaxTables.for_tiles(block_q, block_kv), SortedHints(hint_use)
    return _Mask(Box(variant, form.algebra, block_q, block_kv, tables, hints), form.keeps, form.kept, form.implied)


def _all_near(inputs: list[Expr]) -> Expr:
    """What the rules of a `near` algebra presume, to be tested at run time."""
    tests = [(apply("ge", load, const(NEAR.low)), apply("le", load, const(NEAR.high))) for load in inputs]
    return apply("and", *(test for pair in tests for test in pair))


def _clamped(algebra: Algebra, found: IndexRange, length_name: str = "kv_len") -> tuple[Expr, Expr]:
    """The range within the keys, or the rows."""
    return _within(algebra, found, algebra.symbol(length_name))


def _within(algebra: Algebra, found: IndexRange, length: Expr) -> tuple[Expr, Expr]:
    """The range clamped: 0 <= begin, end <= length."""
    zero = algebra.number(0)
    end = length if found.end is None else algebra.min(algebra.max(found.end, zero), length)
    if found.begin is None or end is zero:
        return zero, end
    return algebra.min(algebra.max(found.begin, zero), length), end


# -------------------------------------------------------------------- rows that can't be empty


@lru_cache(maxsize=64)  # it is said of the mask, whatever tiles are asked about
def _rows_never_empty(variant: Variant) -> bool:
    """Whether each row alone has a range of keys in which all are kept, at least one of them below kv_len >= 1."""
    mask = _lower(variant, 1, _ROW_KEYS)
    algebra, full = mask.box.algebra, Solver(mask.box).of(mask.kept).full
    ends = [] if full.end is None else [full.end]
    begins = [] if full.begin is None else [full.begin]
    first, past_last = algebra.number(0), algebra.symbol("kv_len")
    pairs = [(first, end) for end in ends] + [(begin, past_last) for begin in begins]
    known: dict[tuple[Expr, Expr], bool] = {}
    return all(_below(algebra, *pair, known) for pair in [*pairs, *((b, e) for b in begins for e in ends)])


def _below(algebra: Algebra, a: Expr, b: Expr, known: dict[tuple[Expr, Expr], bool]) -> bool:
    """Whether a < b is proven: b an extreme of ends or a one of begins, both may be chosen. `known`: pairs so far."""
    if (a, b) not in known:
        known[a, b] = len(known) < _MOST_PAIRS and _compared(algebra, a, b, known)
    return known[a, b]


def _compared(algebra: Algebra, a: Expr, b: Expr, known: dict[tuple[Expr, Expr], bool]) -> bool:
    for expr, other, least in ((b, a, "min"), (a, b, "max")):
        if isinstance(expr, Apply) and expr.op in ("min", "max", "select"):
            arms = expr.args[1:] if expr.op == "select" else expr.args
            pairs = [(other, arm) if expr is b else (arm, other) for arm in arms]
            each = (_below(algebra, *pair, known) for pair in pairs)
            return all(each) if expr.op in (least, "select") else any(each)
    return algebra.range(algebra.sub(b, a)).low >= 1
