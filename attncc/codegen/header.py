"""The comment at the top of a generated file: what it is and what the compiler knew. The same on every machine."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterator

from ..ir import Expr, show, walk
from ..quoting import cuda_comment, printable
from ..schedule.plan import KernelPlan
from ..version import __version__
from .line_marks import WIDTH, shown_path
from .tile_code import BOUNDS, COLUMN_BOUNDS, bound, bounds_needed, kind_needed

_LONGEST_RULE = 250  # characters; the function says it better


def of_plan(plan: KernelPlan) -> str:
    """The header of a kernel that a plan describes."""
    return "\n".join(_comment(_of_plan(plan))) + "\n"


def of_prepass(what: str) -> str:
    """The header of a kernel that serves all variants."""
    return "\n".join(_comment([what, f"Written by attncc {__version__}. Do not edit."])) + "\n"


def _of_plan(plan: KernelPlan) -> Iterator[str]:
    variant = plan.variant
    yield f"{variant.name}, {plan.pass_name} pass: {plan.dtype}, head dim {_head_dims(plan)}, for {plan.target}."
    yield f"Written by attncc {__version__}{_origin(plan)}. Do not edit."
    yield ""
    if variant.documentation:
        yield from _paragraphs(variant.documentation)  # behind the last one is an empty line
    yield from variant.show().split("\n")
    yield ""
    yield from _schedule(plan)
    yield ""
    yield from _tile_rules(plan)


def _paragraphs(text: str) -> Iterator[str]:
    """A text filled anew, its paragraphs kept apart; what is indented keeps its lines."""
    paragraph: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.strip() and not line.startswith(" "):
            paragraph.append(line)
            continue
        if paragraph:
            yield from textwrap.wrap(" ".join(paragraph), WIDTH - 3)
        paragraph = []
        yield line


def _head_dims(plan: KernelPlan) -> str:
    if plan.head_dim == plan.value_head_dim:
        return str(plan.head_dim)
    return f"{plan.head_dim}, of values {plan.value_head_dim}"


def _origin(plan: KernelPlan) -> str:
    span = plan.variant.span
    if span is None:
        return ""
    digest = hashlib.sha256(span.source.text.encode()).hexdigest()[:16]
    return f" from {shown_path(span.source.path)} (sha256 {digest})"


def _schedule(plan: KernelPlan) -> Iterator[str]:
    knobs = [f"{name} = {'auto' if value is None else value}" for name, value in plan.shown_knobs.items()]
    yield "schedule"
    yield f"  {', '.join(knobs[:4])},"
    yield f"  {', '.join(knobs[4:])}"


def _tile_rules(plan: KernelPlan) -> Iterator[str]:
    """What the kernel uses of the rules, as `.attn` expressions."""
    if not plan.variant.keeps:
        yield "tiles: all full, nothing is masked"
        return
    if not bounds_needed(plan):
        yield "tiles: all partial, since skip = never"
        return
    yield "tiles"
    bounds = {name: bound(plan, name) for name in BOUNDS["kv" if plan.rules.q_bounds is None else "q"]}
    columns = dict(zip(COLUMN_BOUNDS, plan.rules.columns or (), strict=False))
    kinds = {name: getattr(plan.rules, name) for name in ("any_kept", "all_kept") if kind_needed(plan)}
    for name, expr in {**bounds, **columns, **kinds}.items():
        rule, where = _rule(expr), "kv_bounds" if name in columns else "tile_kind"
        yield f"  {name} = {rule}" if rule else f"  {name}: see {where}"
    for index, reason in plan.rules.undecided:
        yield f"  keep line {index + 1} may leave a tile partial: {reason}"


def _rule(expr: Expr) -> str:
    """Its text, unless that is long. Rules share parts, and what is shared is written each time: it may be endless."""
    parts: dict[Expr, int] = {}
    for node in walk(expr):
        parts[node] = 1 + sum(parts[child] for child in node.children)
    text = show(expr) if parts[expr] <= _LONGEST_RULE else ""
    return text if len(text) <= _LONGEST_RULE else ""


def _comment(lines: Iterator[str] | list[str]) -> Iterator[str]:
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        parts = textwrap.wrap(printable(line), WIDTH - 3, subsequent_indent=indent, break_long_words=False)
        yield from (f"// {cuda_comment(part)}".rstrip() for part in parts or [""])
