"""Inputs: their declarations, and the loads that index them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, permutations

from .. import ir
from ..diagnostics import Edit, Label
from ..ir import Expr, Type
from ..source import Span
from ..syntax import ast
from ..syntax.printer import expression
from . import builtins, names
from .names import Tensor
from .report import Report, brief, quoted
from .types import a_type

# What people call the dtypes elsewhere.
_DTYPES_ELSEWHERE = {
    **{name: f"write `{short}`" for short, names in {
        "i32": ("int", "int32"), "i64": ("int64", "long"), "f16": ("half", "fp16", "float16"),
        "bf16": ("bfloat16",), "f32": ("float", "fp32", "float32"), "bool": ("i1",),
    }.items() for name in names},
    **dict.fromkeys(("f64", "fp64", "float64", "double"), "there are no doubles; write `f32`"),
    **dict.fromkeys(("i8", "u8", "int8", "uint8"), "there are no ints of 8 bits: take `i32`, or `bool` for flags"),
}  # fmt: skip

_PROPERTIES_ELSEWHERE = {
    **dict.fromkeys(("sorted", "ascending", "increasing", "monotonic"), "write `nondecreasing`"),
    **dict.fromkeys(("decreasing", "nonincreasing", "descending"), "the only order there is: `nondecreasing`"),
    **dict.fromkeys(("requires_grad", "differentiable", "trainable"), "write `learnable`"),
}

# -------------------------------------------------------------------- declarations


def declaration(node: ast.Input, axes: tuple[ir.Axis | None, ...], report: Report) -> Tensor | None:
    """The input that a statement declares, given its lowered axes; None after an error."""
    dtype = names.one_of(
        node.dtype, {name: name for name in builtins.DTYPES}, "a dtype of inputs", report, _DTYPES_ELSEWHERE
    )
    properties = [
        names.one_of(word, _NAMED_PROPERTIES, "a property of inputs", report, _PROPERTIES_ELSEWHERE)
        for word in node.properties
    ]
    if len(node.axes) > builtins.MAX_RANK:
        extra = node.axes[builtins.MAX_RANK].span.to(node.axes[-1].span)
        report.error(
            "A214", f"an input has at most {builtins.MAX_RANK} axes", extra, f"axis {builtins.MAX_RANK + 1} and on"
        )
        return None
    known = tuple(axis for axis in axes if axis is not None)
    if dtype is None or None in properties or len(known) < len(axes):
        return None
    item = ir.Input(
        node.name.name, dtype, known, "nondecreasing" in properties, "learnable" in properties, span=node.span
    )
    _check_properties(node, item, report)
    return Tensor(item, node)


_MOST_GIVEN = 8  # indices that help looks at, where they are too many
_NAMED_PROPERTIES = {name: name for name in builtins.PROPERTIES}


def _check_properties(node: ast.Input, item: ir.Input, report: Report) -> None:
    for place, word in enumerate(node.properties):
        if word.name in (earlier.name for earlier in node.properties[:place]):
            report.error("A219", f"`{word.name}` is said twice", word.span, help="remove one")
        elif word.name == "learnable" and item.type is not Type.FLOAT:
            report.error(
                "A214",
                f"{item.dtype} can't be learnable",
                word.span,
                labels=[Label(node.dtype.span, "the dtype")],
                help="only floats (f16, bf16, f32) have gradients",
            )
        elif word.name == "nondecreasing" and (item.type is not Type.INT or not item.axes):
            report.error(
                "A214",
                "only a tensor of ints can be `nondecreasing`",
                word.span,
                labels=[Label(node.dtype.span, "the dtype")],
                help="it speaks of the last axis of an i32 or i64 tensor",
            )


# -------------------------------------------------------------------- loads


def load(
    node: ast.Index, tensor: Tensor, indices: list[Expr], lets: Mapping[str, ir.Let], report: Report
) -> Expr | None:
    """`tensor[indices]`: the right number of ints, each fit for its axis."""
    item = tensor.input
    if len(indices) != len(item.axes):
        plural = "index" if len(item.axes) == 1 else "indices"
        suited, known = _suited(node, tensor, [counted(index, lets) for index in indices])
        report.error(
            "A204",
            f"`{item.name}` takes {len(item.axes)} {plural}, and {len(indices)} came",
            node.span,
            labels=[Label(tensor.node.span, "declared here")],
            help=f"index it as `{item.name}[{suited}]`",
            instead=node.span if known else None,
        )
        return None
    good = [is_int(written, index, report) for written, index in zip(node.indices, indices, strict=True)]
    if not all(good) or not _fits_axes(node, tensor, [counted(index, lets) for index in indices], report):
        return None
    return ir.Load(item.type, item.name, tuple(indices), span=node.span)


def _suited(node: ast.Index, tensor: Tensor, counts: list[str | None]) -> tuple[str, bool]:
    """As many indices as there are axes, with those that were given where they fit, in their order: of `doc[q_pos]`
    with the axes batch and pos, `b, q_pos`. And whether all of them are known, no name being made up."""
    axes, given = tensor.input.axes, range(len(counts))[:_MOST_GIVEN]
    few = min(len(axes), len(given))
    pairings = [
        [(place, index) for place, index in zip(places, chosen, strict=True) if _fits(axes[place], counts[index])]
        for places in sorted(combinations(range(len(axes)), few), reverse=True)  # mostly outer axes are left out
        for chosen in combinations(given, few)
    ]
    best = max(pairings, key=lambda pairs: (len(pairs), sum(bool(axes[p].tag and counts[i]) for p, i in pairs)))
    texts = {place: quoted(node.indices[index].span, "...") for place, index in best}
    usual = [builtins.TAGS[axis.tag].indexed_by[0] if axis.tag else "" for axis in axes]
    every = [texts.get(place) or usual[place] or f"i{place}" for place in range(len(axes))]
    return ", ".join(every), all(texts.get(place, usual[place]) for place in range(len(axes)))


def is_int(node: ast.Expr, index: Expr, report: Report) -> bool:
    if index.type is Type.INT:
        return True
    text = expression(node)
    advice = f"write `floor({brief(text, 'x')})`" if index.type is Type.FLOAT else "an index is an int"
    edit = Edit(node.span, f"floor({text})") if index.type is Type.FLOAT else None
    kind = f"this is {a_type(index.type)}"
    report.error("A201", "an index must be an int", node.span, kind, help=advice, instead=edit)
    return False


def _fits_axes(node: ast.Index, tensor: Tensor, counts: list[str | None], report: Report) -> bool:
    """Whether each index (a built-in one by name, None for any other int) counts what its axis counts; A203 if not."""
    axes = tensor.input.axes
    wrong = [place for place, name in enumerate(counts) if not _fits(axes[place], name)]
    if not wrong:
        return True
    first, name = wrong[0], counts[wrong[0]] or ""
    written = node.indices[first].span
    help, edit = _fitting(node, tensor, counts, wrong)
    report.error(
        "A203",
        f"`{tensor.input.name}` is indexed by {builtins.VALUES[name].counts} where its axis is `{axes[first].tag}`",
        written,
        "" if written.text == name else f"this is `{name}`",
        labels=[Label(tensor.node.axes[place].span, _axis_label(axes[place])) for place in wrong],
        help=help,
        instead=edit,
    )
    return False


def _fits(axis: ir.Axis, name: str | None) -> bool:
    return axis.tag is None or name is None or name in builtins.TAGS[axis.tag].indexed_by


def _axis_label(axis: ir.Axis) -> str:
    return f"counts {builtins.TAGS[axis.tag or ''].doc}"


def _fitting(
    node: ast.Index, tensor: Tensor, counts: list[str | None], wrong: list[int]
) -> tuple[str, Span | Edit | None]:
    """What to write instead, and where: the same indices in another order, if that fits; else the usual ones where
    they don't."""
    axes = tensor.input.axes
    given = [quoted(index.span, "...") for index in node.indices]
    for order in permutations(range(len(axes))):
        if all(_fits(axis, counts[place]) for axis, place in zip(axes, order, strict=True)):
            return f"write `{node.tensor.name}[{', '.join(given[place] for place in order)}]`", node.span
    special = _ADVICE.get((axes[wrong[0]].tag or "", counts[wrong[0]] or ""))
    if special and len(wrong) == 1:
        by_axis = Edit(tensor.node.axes[wrong[0]].span, "pos")
        return special, by_axis if special is _BOTH_SIDES else node.indices[wrong[0]].span
    for place in wrong:
        given[place] = builtins.TAGS[axes[place].tag or ""].indexed_by[0]
    return f"write `{node.tensor.name}[{', '.join(given)}]`", node.span


_BOTH_SIDES = "to look up queries and keys in one tensor, declare the axis as `pos` and write `q_pos`"

# (axis, index) -> what is probably meant.
_ADVICE = {
    ("kv", "q_pos"): _BOTH_SIDES,
    ("kv", "q_idx"): _BOTH_SIDES,
    ("q", "q_pos"): "write `q_idx`, or declare the axis as `pos`",
    ("head", "kv_h"): "write `h`, or declare the axis as `kv_head`",
    ("kv_head", "h"): "write `kv_h`, or declare the axis as `head`",
}


def counted(index: Expr, lets: Mapping[str, ir.Let]) -> str | None:
    """The built-in index that an expression is by name, also by the name of a let; None after any arithmetic."""
    while isinstance(index, ir.Local):
        index = lets[index.name].value
    return index.name if isinstance(index, ir.Symbol) and builtins.VALUES[index.name].counts else None
