"""The variant of the kernel over a prefix that all sequences of a call share: see `kernels.shared_prefix`."""

from __future__ import annotations

from dataclasses import replace

from ..analysis.mask.tiles import analyse
from ..ir import Axis, Expr, Input, Keep, Load, Type, Variant, apply, const, root_of, substituted, symbol, with_root
from ..schedule.plan import Build
from ..schedule.schedule import Schedule
from .shared_prefix import GROUP, LENGTHS, Q_LEN

_ANY_TILE = 128, 128  # what all tiles keep doesn't depend on their size
_ADDED = (Input(LENGTHS, "i32", (Axis(),)), Input(Q_LEN, "i32", ()), Input(GROUP, "i32", ()))


def over_prefix(variant: Variant) -> Variant:
    """The variant as the kernel over the prefix computes it: one sequence with a head for each key head, whose rows are
    those of all sequences, queries, and query heads of the key head, in this order. Its keys are the prefix.

    Of each row `b`, `h`, `q_idx`, `q_pos`, `q_len` and `kv_len` are what they are in the call. Every query stands
    behind the prefix, so what such rows keep of it in any case needs no mask: causal masks go. The sink is for the
    second launch. The scale must not depend on the sequence.
    """
    meaning = _meaning()
    statements = (with_root(item, substituted(root_of(item), meaning)) for item in variant.statements)
    inputs = (
        replace(item, axes=tuple(Axis(length=axis.length) for axis in item.axes), nondecreasing=False, learnable=False)
        for item in variant.inputs
    )
    scale = None if variant.scale is None else substituted(variant.scale, meaning)
    changed = replace(
        variant, inputs=(*inputs, *_ADDED), statements=tuple(statements), sink=None, scale=scale, span=None
    )
    kept = tuple(item for item in changed.statements if not (isinstance(item, Keep) and _holds(changed, item)))
    return replace(changed, statements=kept)


def _meaning() -> dict[Expr, Expr]:
    """What a built-in name of the call is to the kernel over the prefix."""
    row, prefix = symbol("q_idx"), symbol("kv_len")
    group, q_len = Load(Type.INT, GROUP, ()), Load(Type.INT, Q_LEN, ())
    query = apply("floordiv", row, group)
    b, q_idx = apply("floordiv", query, q_len), apply("mod", query, q_len)
    # Keys of the sequence between the prefix and its first query. `max` tells the analysis that there are 0 or more.
    between = apply("max", apply("sub", apply("sub", Load(Type.INT, LENGTHS, (b,)), q_len), prefix), const(0))
    return {
        symbol("b"): b,
        symbol("h"): apply("add", apply("mul", symbol("kv_h"), group), apply("mod", row, group)),
        symbol("q_idx"): q_idx,
        symbol("q_pos"): apply("add", prefix, apply("max", apply("add", between, q_idx), const(0))),
        symbol("q_len"): q_len,
        symbol("kv_len"): apply("add", prefix, apply("add", between, q_len)),
        symbol("num_heads"): apply("mul", symbol("num_kv_heads"), group),
    }


def _holds(variant: Variant, keep: Keep) -> bool:
    """Whether a line of the changed variant is known to keep all pairs."""
    alone = (item for item in variant.statements if item is keep or not isinstance(item, Keep))
    rules = analyse(replace(variant, statements=tuple(alone)), *_ANY_TILE)
    return (rules.full_begin, rules.full_end) == (const(0), symbol("kv_len"))


def prefix_schedule(variant: Variant, build: Build) -> Schedule:
    """What is set of the kernel over the prefix: few rows share many keys out, and no table is made for its mask."""
    settings = (("split_kv", ("auto",)), ("skip", ("never",)))
    return Schedule("over_prefix", variant.name, build.pass_name, build.target, settings)
