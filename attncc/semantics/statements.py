"""The rules of single statements, and those between the statements of a variant."""

from __future__ import annotations

from .. import ir
from ..diagnostics import Label
from ..evaluate import Environment, evaluate
from ..ir import Expr, Type
from ..source import Span
from ..syntax import ast
from . import builtins, constants, low_scores
from .names import Scope, Tensor
from .report import Report
from .types import to_float

SINK_HELP = "a sink is one logit for each query head: declare `input sink_logit: f32[head]`"
_SCALE_READS = ("head_dim", "q_len", "kv_len")

# -------------------------------------------------------------------- keep


def check_keep(score: tuple[Span, Span] | None, report: Report) -> bool:
    """Whether a `keep` leaves the score alone; A301 if it reads it, at the first place, which stands for the second."""
    if score is None:
        return True
    read_at, source = score
    labels = [Label(source, "this reads `score`")] if source != read_at else []
    help = constants.MASK_BEFORE_SCORE
    report.error("A301", "`keep if` can't read `score`", read_at, labels=labels, help=help)
    return False


# -------------------------------------------------------------------- scale, sink, dropout


def fits_scale(value: Expr, statement: ast.Scale, inputs: list[ir.Input], report: Report) -> bool:
    """Whether a scale is made of consts, scalar inputs, head_dim and lengths alone; A217 if not."""
    learnable = {item.name for item in inputs if item.learnable}
    for node in ir.walk(value):
        if isinstance(node, ir.Load):
            name, fits = node.input, not node.indices and node.input not in learnable
        elif isinstance(node, ir.Symbol | ir.Local):
            name, fits = node.name, node.name in _SCALE_READS
        else:
            continue
        if not fits:
            what = f"the learnable `{name}`" if name in learnable else f"`{name}`"
            report.error(
                "A217",
                f"`scale` can't read {what}",
                node.span or statement.span,
                notes=["it is one number for a sequence: of consts, scalar inputs, `head_dim`, `q_len` and `kv_len`"],
                help="`score = score * ...` may read everything, and has gradients",
            )
            return False
    return True


def check_sink(statement: ast.Sink, tensor: Tensor, report: Report) -> None:
    """A sink is an input of floats with the one axis `head`."""
    if tensor.input.type is Type.FLOAT and tensor.input.axes == (ir.Axis(tag="head"),):
        return
    shape = f"[{', '.join(map(str, tensor.input.axes))}]" if tensor.input.axes else ", a scalar"
    report.error(
        "A216",
        f"a sink can't be {tensor.input.dtype}{shape}",
        statement.input.span,
        labels=[Label(tensor.node.span, "declared here")],
        help=SINK_HELP,
    )


def dropout_rate(statement: ast.Dropout, rate: Expr, report: Report) -> Expr | None:
    """The rate as a float Const or a scalar Load; None for no dropout (a rate of 0) and after an error."""
    if isinstance(rate, ir.Load) and rate.type is Type.FLOAT and not rate.indices:
        return rate
    if isinstance(rate, ir.Const) and rate.type is not Type.BOOL:
        return to_float(rate) if _check_rate(statement, float(rate.value), report) and rate.value else None
    report.error(
        "A215",
        "a dropout rate is a number, a const, or a scalar input of floats",
        statement.rate.span,
        help="declare `input rate: f32` and write `dropout rate`, or write a number such as 0.1",
    )
    return None


def _check_rate(statement: ast.Dropout, rate: float, report: Report) -> bool:
    if not 0 <= rate < 1:
        report.error(
            "A215",
            f"a dropout rate can't be {rate:g}",
            statement.rate.span,
            help="it is the share that is dropped: 0 <= rate < 1",
        )
        return False
    kept = round(256 * (1 - rate))
    if rate and kept in (0, 256):
        share = "everything" if kept else "nothing"
        report.error(
            "A215",
            f"with a dropout rate of {rate:g}, {share} would be kept",
            statement.rate.span,
            notes=[f"a pair is kept in t of 256 cases, and t = round(256 * (1 - {rate:g})) is {kept}"],
            help="rates from 0.002 to 0.998 work; for no dropout, remove the line",
        )
        return False
    return True


# -------------------------------------------------------------------- the whole variant


def warn(variant: ir.Variant, node: ast.Variant, scope: Scope, report: Report) -> None:
    """Warnings about what has no effect, or costs digits."""
    for keep in variant.keeps:
        _warn_of_constant(keep, variant, report)
    _warn_of_unused(scope, report)
    _warn_of_no_gradient(variant, node, report)
    low_scores.warn(variant, node, report)


def check_normalizer(node: ast.Variant, normalize: str, report: Report) -> None:
    """A sink takes part in a row sum, so there must be one; A218."""
    sinks = [item for item in node.statements if isinstance(item, ast.Sink)]
    lines = [item for item in node.statements if isinstance(item, ast.Normalize)]
    if sinks and lines and normalize != "softmax":
        report.error(
            "A218",
            f"a sink needs a row sum, and `normalize {normalize}` has none",
            sinks[0].span,
            labels=[Label(lines[0].span, builtins.NORMALIZERS[normalize])],
            help="use `normalize softmax`, or remove the sink",
        )


def _warn_of_constant(keep: ir.Keep, variant: ir.Variant, report: Report) -> None:
    lets = (item.value for item in ir.needs(variant, keep.condition))
    if keep.span is None or any(isinstance(node, ir.Load | ir.Symbol) for node in ir.walk(keep.condition, *lets)):
        return
    if evaluate(keep.condition, Environment({}, lets=variant.lets)):
        report.warning(
            "A302", "this line keeps every pair", keep.span, "always true", help="remove it, if that is meant"
        )
    else:
        report.warning(
            "A302",
            "this line keeps no pair, so every output is 0",
            keep.span,
            "always false",
            help="compare with `q_pos`, `kv_idx` or an input",
        )


def _warn_of_unused(scope: Scope, report: Report) -> None:
    for name, binding in scope.declared().items():
        if name not in scope.used:
            report.warning("A120", f"the {binding.kind} `{name}` is never used", binding.span, help="remove it")


def _warn_of_no_gradient(variant: ir.Variant, node: ast.Variant, report: Report) -> None:
    reached = ir.reads(variant, *(score.value for score in variant.scores)) | {variant.sink}
    words = {item.name.name: item.properties for item in node.statements if isinstance(item, ast.Input)}
    for item in variant.inputs:
        if item.learnable and item.name not in reached:
            span = next(word.span for word in words[item.name] if word.name == "learnable")
            report.warning(
                "A224",
                f"the gradient of `{item.name}` is always 0",
                span,
                "learnable",
                help="neither `score = ...` nor `sink` reads it",
            )
