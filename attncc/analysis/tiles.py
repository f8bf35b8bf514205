"""From a variant to the rules of its tiles: what `grid`, the executor and the kernels evaluate."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir import Apply, Expr, Load, Type, Variant, apply, const, walk
from .algebra import FALSE, TRUE, Algebra
from .bounds import KvRange, Solver
from .box import Box
from .canonical import Canonical
from .lookups import ZoneTables
from .ranges import INT64
from .rules import TileRules
from .terms import NEAR
from .values import WRAPS


def analyse(variant: Variant, block_q: int, block_kv: int) -> TileRules:
    """Sound rules for tiles of at most block_q x block_kv pairs; docs/analysis.md gives the argument.

    Bounds inference over boxes, in the manner of Halide (Ragan-Kelley et al., PLDI 2013, section 4.2), of predicates.
    """
    mask = _lower(variant, block_q, block_kv)
    rules = _rules(mask)
    if rules.full_end != const(0) and _rows_never_empty(variant, block_kv):
        rules = replace(rules, rows_never_empty=True)
    wide = mask.wide_inputs()
    if not wide or WRAPS not in mask.box.reasons.values():
        return rules
    return _where(_all_near(wide), _rules(_lower(variant, block_q, block_kv, near=True)), rules)


def _rules(mask: _Mask) -> TileRules:
    truth, bounds = mask.box.truth(mask.kept), Solver(mask.box).of(mask.kept)
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
        zone_maps=tuple(mask.box.zones.used.values()),
        bounds_suffice=blind or (bounds.live.exact and bounds.full.exact),
        decides=not blind or bounds.live.begin is not None or bounds.live.end is not None,
        rows_never_empty=False,
        undecided=tuple((index, reason) for index, keep in enumerate(mask.keeps) for reason in mask.reasons(keep)),
    )


def _where(condition: Expr, rules: TileRules, otherwise: TileRules) -> TileRules:
    """The rules where a uniform condition holds, else the others, which are sound always.

    Where the rules need no test of single tiles, none is added for the sake of the others.
    """
    if rules.bounds_suffice:
        otherwise = replace(otherwise, any_kept=TRUE, all_kept=FALSE, bounds_suffice=True)

    def chosen(name: str) -> Expr:
        a, b = getattr(rules, name), getattr(otherwise, name)
        found: Expr = a if a == b else apply("select", condition, a, b)
        return found

    return replace(
        otherwise,
        any_kept=chosen("any_kept"),
        all_kept=chosen("all_kept"),
        kv_begin=chosen("kv_begin"),
        kv_end=chosen("kv_end"),
        full_begin=chosen("full_begin"),
        full_end=chosen("full_end"),
        zone_maps=tuple(dict.fromkeys(rules.zone_maps + otherwise.zone_maps)),
        bounds_suffice=rules.bounds_suffice,
        decides=rules.decides or otherwise.decides,
        undecided=rules.undecided,
    )


@dataclass(frozen=True)
class _Mask:
    """The keep lines of a variant in normal form, and their conjunction, over one tile size."""

    box: Box
    keeps: tuple[Expr, ...]
    kept: Expr

    def reasons(self, keep: Expr) -> list[str]:
        known = self.box.reasons
        return list(dict.fromkeys(known[node] for node in walk(keep) if node in known))

    def wide_inputs(self) -> list[Expr]:
        """The 64-bit inputs among the keep lines, where they don't vary over a tile."""
        algebra = self.box.algebra
        loads = [node for node in walk(self.kept) if isinstance(node, Load) and node.type is Type.INT]
        return [load for load in loads if algebra.uniform(load) and algebra.range(load) == INT64]


def _lower(variant: Variant, block_q: int, block_kv: int, *, near: bool = False) -> _Mask:
    algebra = Algebra(variant, block_q, block_kv, near=near)
    canonical = Canonical(algebra, variant.lets)
    keeps = tuple(canonical.of(keep.condition) for keep in variant.keeps)
    box = Box(variant, algebra, block_q, block_kv, ZoneTables.for_tiles(block_q, block_kv))
    return _Mask(box, keeps, algebra.both(*keeps))


def _all_near(inputs: list[Expr]) -> Expr:
    """What the rules of a `near` algebra presume, to be tested at run time."""
    tests = [(apply("ge", load, const(NEAR.low)), apply("le", load, const(NEAR.high))) for load in inputs]
    return apply("and", *(test for pair in tests for test in pair))


def _clamped(algebra: Algebra, found: KvRange) -> tuple[Expr, Expr]:
    """The range within the keys: 0 <= begin, end <= kv_len."""
    zero, kv_len = algebra.number(0), algebra.symbol("kv_len")
    end = kv_len if found.end is None else algebra.min(algebra.max(found.end, zero), kv_len)
    if found.begin is None or end is zero:
        return zero, end
    return algebra.min(algebra.max(found.begin, zero), kv_len), end


# -------------------------------------------------------------------- rows that can't be empty


def _rows_never_empty(variant: Variant, block_kv: int) -> bool:
    """Whether each row alone has a range of keys in which all are kept, at least one of them below kv_len >= 1."""
    mask = _lower(variant, 1, block_kv)
    algebra, full = mask.box.algebra, Solver(mask.box).of(mask.kept).full
    ends = [] if full.end is None else [full.end]
    begins = [] if full.begin is None else [full.begin]
    first, past_last = algebra.number(0), algebra.symbol("kv_len")
    pairs = [(first, end) for end in ends] + [(begin, past_last) for begin in begins]
    return all(_below(algebra, begin, end) for begin, end in [*pairs, *((b, e) for b in begins for e in ends)])


def _below(algebra: Algebra, a: Expr, b: Expr) -> bool:
    """Whether a < b is proven: b an extreme of ends or a one of begins, both may be chosen."""
    for expr, other, least in ((b, a, "min"), (a, b, "max")):
        if isinstance(expr, Apply) and expr.op in ("min", "max", "select"):
            arms = expr.args[1:] if expr.op == "select" else expr.args
            each = [_below(algebra, other, arm) if expr is b else _below(algebra, arm, other) for arm in arms]
            return all(each) if expr.op in (least, "select") else any(each)
    return algebra.range(algebra.sub(b, a)).low >= 1
