"""What the mask analysis proved, as CUDA: loop bounds for a q block and the kind of a tile."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.algebra.algebra import FALSE
from ..analysis.mask.tiles import all_hold
from ..ir import Expr
from ..kernels.registry import forward_facts
from ..schedule.plan import KernelPlan
from .expressions import Lowering
from .functions import Body, Fields
from .integers import ALIKE
from .line_marks import Line
from .nodes import INT, LONG, Level, Node, cast, int_literal, leaf
from .structs import make_function

# The bounds of each inner loop, in order.
BOUNDS: dict[str, tuple[str, ...]] = {
    "kv": ("kv_begin", "full_begin", "full_end", "kv_end"),
    "q": ("q_begin", "full_begin", "full_end", "q_end"),
}
COLUMN_BOUNDS = "column_begin", "column_end"  # where tiles are windows

_WHAT = {
    "kv": "The keys that matter to the rows q_first..q_last",
    "q": "The rows that matter to the keys kv_first..kv_last",
}


def bound(plan: KernelPlan, name: str) -> Expr:
    """One of the bounds of the plan's inner loop."""
    found: Expr = getattr(plan.rules.q_bounds or plan.rules, name)
    return found


def bounds_needed(plan: KernelPlan) -> bool:
    return bool(plan.variant.keeps) and plan.skip != "never"


def kind_needed(plan: KernelPlan) -> bool:
    """Whether tiles are tested: by the kernel, or by the pre-pass that makes lists for it."""
    return bool(plan.variant.keeps) and plan.tests_tiles


def loop_bounds(plan: KernelPlan, lowering: Lowering, fields: Fields) -> str:
    """`struct KvBounds` and `kv_bounds(params, ctx, q_first, q_last)`, or the same with q and kv exchanged."""
    inner, outer = ("kv", "q") if plan.rules.q_bounds is None else ("q", "kv")
    columns = plan.rules.columns or ()
    names = BOUNDS[inner] + (COLUMN_BOUNDS if columns else ())
    length = "kv_len" if inner == "kv" else "q_len"
    found = [*(bound(plan, name) for name in BOUNDS[inner]), *columns]
    nodes = [fields.interner.intern(_position(lowering.lower(expr), length)) for expr in found]
    body = Body(fields, Level.ELEMENT, [(node, None) for node in nodes])
    for name, node in zip(names, nodes, strict=True):
        body.add(f"const int {name} = {body.value(node)};")
    struct = f"{inner.capitalize()}Bounds"
    head = f"{struct} {inner}_bounds(const Params& params, const Context& ctx, int {outer}_first, int {outer}_last)"
    return (
        f"// {_WHAT[inner]}: all kept pairs lie in [{inner}_begin, {inner}_end), and all pairs in\n"
        "// [full_begin, full_end) are kept.\n"
        f"struct {struct} {{\n    int {', '.join(names)};\n}};\n\n"
        + make_function(head, [*body.lines, Line(f"return {{{', '.join(names)}}};")])
    )


def tile_kind(plan: KernelPlan, lowering: Lowering, fields: Fields) -> str:
    """`tile_kind(params, ctx, q_first, q_last, kv_first, kv_last)`: both ends included."""
    some, every = (fields.interner.intern(lowering.lower(rule)) for rule in (plan.rules.any_kept, plan.rules.all_kept))
    body = Body(fields, Level.ELEMENT, [(some, None), (every, None)])
    for name, node in (("any_kept", some), ("all_kept", every)):
        body.add(f"const bool {name} = {body.value(node)};")
    body.add("return !any_kept ? EMPTY : all_kept ? FULL : PARTIAL;")
    arguments = "int q_first, int q_last, int kv_first, int kv_last"
    head = f"TileKind tile_kind(const Params& params, const Context& ctx, {arguments})"
    return make_function(head, body.lines, ["What the tile q_first..q_last x kv_first..kv_last holds, at most."])


def tests_hold(plan: KernelPlan, tests: Sequence[Expr], lowering: Lowering, fields: Fields) -> str:
    """`tests_hold(params, ctx, q_first, q_last, kv_first, kv_last)`: with both ends. Empty where it can't be told."""
    tests_once = forward_facts(plan).tests_once
    rule = all_hold(plan.variant, plan.block_q // plan.warps, tests) if tests_once else FALSE
    if rule is FALSE:
        return ""
    root = fields.interner.intern(lowering.lower(rule))
    body = Body(fields, Level.ELEMENT, [(root, None)])
    body.add(f"return {body.value(root)};")
    arguments = "int q_first, int q_last, int kv_first, int kv_last"
    head = f"bool tests_hold(const Params& params, const Context& ctx, {arguments})"
    comment = "Whether it is known that `keep` holds for all pairs of some rows of a warp and a range of keys."
    return make_function(head, body.lines, [comment])


def _position(node: Node, length_name: str) -> Node:
    """A bound as an int. One that the ranges leave 64 bits wide is clamped to the length first: it means the same."""
    if node.ctype == INT:
        return node
    length = cast(leaf(INT, f"ctx.{length_name}"), LONG)
    least = ALIKE["max"].node(LONG, node, cast(int_literal(0), LONG))
    return cast(ALIKE["min"].node(LONG, least, length), INT)
