"""The derivative of the score lines, as CUDA: one function gives the final score and how it moves."""

from __future__ import annotations

from ..analysis.gradient import final_score, gradient
from ..schedule.plan import KernelPlan
from .expressions import Lowering
from .functions import Body, Fields
from .nodes import Level
from .structs import make_function

_STRUCT = """\
// The score after all score lines, and its derivative by the score before them.
struct ScoreGradient {
    float score, slope;
};
"""


def score_gradient(plan: KernelPlan, lowering: Lowering, fields: Fields) -> str:
    """`struct ScoreGradient`, and where there are score lines `score_gradient(params, ctx, row, kv_idx, score)`."""
    if not plan.variant.scores:
        return _STRUCT
    roots = (final_score(plan.variant), gradient(plan.variant).score)
    score, slope = (fields.interner.intern(lowering.lower(root)) for root in roots)
    body = Body(fields, Level.ELEMENT, [(score, None), (slope, None)])
    texts = [body.value(node) for node in (score, slope)]
    body.add(f"return {{{', '.join(texts)}}};")
    arguments = "const Params& params, const Context& ctx, const Row& row, int kv_idx, float score"
    sources = [item.span.one_line for item in plan.variant.scores if item.span is not None]
    return _STRUCT + "\n" + make_function(f"ScoreGradient score_gradient({arguments})", body.lines, sources)
