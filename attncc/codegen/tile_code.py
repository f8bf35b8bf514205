"""What the mask analysis proved, as CUDA: loop bounds for a q block and the kind of a tile."""

from __future__ import annotations

from ..schedule.plan import KernelPlan
from .expressions import Lowering
from .functions import Body, Fields
from .integers import BITWISE
from .line_marks import Line
from .nodes import INT, LONG, Level, Node, cast, int_literal, leaf
from .structs import make_function

BOUNDS = ("kv_begin", "full_begin", "full_end", "kv_end")

_KV_BOUNDS = """\
// The keys that matter to the rows q_first..q_last: all kept pairs lie in [kv_begin, kv_end), and all pairs in
// [full_begin, full_end) are kept.
struct KvBounds {
    int kv_begin, full_begin, full_end, kv_end;
};
"""


def bounds_needed(plan: KernelPlan) -> bool:
    return bool(plan.variant.keeps) and plan.skip != "never"


def kind_needed(plan: KernelPlan) -> bool:
    return bool(plan.variant.keeps) and plan.uses_tile_kind


def kv_bounds(plan: KernelPlan, lowering: Lowering, fields: Fields) -> str:
    """`struct KvBounds` and `kv_bounds(params, ctx, q_first, q_last)`."""
    nodes = [fields.interner.intern(_position(lowering.lower(getattr(plan.rules, name)))) for name in BOUNDS]
    body = Body(fields, Level.ELEMENT, [(node, None) for node in nodes])
    for name, node in zip(BOUNDS, nodes, strict=True):
        body.add(f"const int {name} = {body.value(node)};")
    head = "KvBounds kv_bounds(const Params& params, const Context& ctx, int q_first, int q_last)"
    return _KV_BOUNDS + "\n" + make_function(head, [*body.lines, Line(f"return {{{', '.join(BOUNDS)}}};")])


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


def _position(node: Node) -> Node:
    """A bound as an int. One that the ranges leave 64 bits wide is clamped to the keys first: it means the same."""
    if node.ctype == INT:
        return node
    length = cast(leaf(INT, "ctx.kv_len"), LONG)
    least = BITWISE["max"].node(LONG, node, cast(int_literal(0), LONG))
    return cast(BITWISE["min"].node(LONG, least, length), INT)
