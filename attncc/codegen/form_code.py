"""The cheap form of the score lines as CUDA: what multiplies a product, and what is added."""

from __future__ import annotations

from ..analysis.score.score_form import ScoreForm
from .expressions import Lowering
from .floats import float_literal
from .functions import Body, Fields
from .line_marks import Line
from .nodes import FLOAT, Level, Node, call
from .structs import make_function

_REACH = call("product_reach", 2, cost=8, hint="reach")
_NAMES = ("linear", "cubic", "quintic", "septic")
_BIASES = ("RowBias", "SlopedBias", "CurvedBias")  # by their degree in kv_idx


def functions(form: ScoreForm, near: ScoreForm | None, lowering: Lowering, fields: Fields) -> str:
    """`score_form_holds(…)` of a tile, `score_factor(params, ctx)` and `score_bias(params, ctx, row, kv_idx)`.

    `near`: the same with fewer terms, for smaller products, if there is one: `near_score_factor`.
    """
    parts = [part(form, lowering, fields) for part in (_holds, _factor, _bias)]
    return "\n\n".join([*parts, *([] if near is None else [_factor(near, lowering, fields, "near_score_factor")])])


def _holds(form: ScoreForm, lowering: Lowering, fields: Fields) -> str:
    root = fields.interner.intern(lowering.lower(form.holds))
    body = Body(fields, Level.ELEMENT, [(root, None)])
    value = body.value(root)
    body.add(f"return {value};" if root.is_leaf else f"return __all_sync(~0u, {value});")
    arguments = "int q_first, int q_last, int kv_first, int kv_last"
    head = f"bool score_form_holds(const Params& params, const Context& ctx, {arguments})"
    return make_function(head, body.lines, ["Whether a warp's part of a tile has the form below."])


def _factor(form: ScoreForm, lowering: Lowering, fields: Fields, name: str = "score_factor") -> str:
    nodes = [lowering.lower(term) for term in form.terms]
    if len(nodes) > 1:
        nodes = [node.called(term) for node, term in zip(nodes, _NAMES, strict=False)]
    reach = _REACH.node(FLOAT, lowering.lower(form.argument), float_literal(form.reach))
    roots = [fields.interner.intern(node) for node in (*nodes, reach)]
    body = Body(fields, Level.ELEMENT, [(root, None) for root in roots[: -1 if len(nodes) == 1 else None]])
    terms = ", ".join(body.value(root) for root in roots[:-1])
    holds = f", {body.value(roots[-1])}" if len(nodes) > 1 else ""
    comment = f"What the score lines make of a product is product * {name} + score_bias, in natural units."
    head = f"ScoreFactor<{len(nodes)}> {name}(const Params& params, const Context& ctx)"
    return make_function(head, [*body.lines, Line(f"return {{{{{terms}}}{holds}}};")], [comment])


def _bias(form: ScoreForm, lowering: Lowering, fields: Fields) -> str:
    grown = [form.step, form.curve][: form.degree]
    roots: list[Node] = [fields.interner.intern(lowering.lower(part)) for part in (form.bias, *grown)]
    body = Body(fields, Level.ELEMENT, [(root, None) for root in roots])
    values = ", ".join(body.value(root) for root in roots)
    head = "ScoreBias score_bias(const Params& params, const Context& ctx, const Row& row, int kv_idx)"
    function = make_function(head, [*body.lines, Line(f"return {{{values}}};")])
    return f"using ScoreBias = {_BIASES[form.degree]};\n{function}"
