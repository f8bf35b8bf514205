"""Inputs: their declarations, and the loads that index them."""

from __future__ import annotations

from collections.abc import Mapping

from .. import ir
from ..diagnostics import Label, did_you_mean
from ..ir import Expr, Type
from ..syntax import ast
from . import builtins, names
from .names import Binding, Scope, Tensor
from .report import Report, quoted
from .types import a_type

# What people call the dtypes elsewhere.
_DTYPES_ELSEWHERE = {
    **{name: f"write `{short}`" for short, names in {
        "i32": ("int", "int32"), "i64": ("int64", "long"), "f16": ("half", "fp16", "float16"),
        "bf16": ("bfloat16",), "f32": ("float", "fp32", "float32"), "bool": ("i8", "u8", "int8", "uint8", "i1"),
    }.items() for name in names},
    **dict.fromkeys(("f64", "fp64", "float64", "double"), "there are no doubles; write `f32`"),
}  # fmt: skip

_AXES_ELSEWHERE = {
    **dict.fromkeys(("b", "B", "batch_size", "sequence"), "write the tag `batch`"),
    **dict.fromkeys(("h", "H", "heads", "num_heads", "q_head"), "write the tag `head`"),
    **dict.fromkeys(("kv_h", "kv_heads", "num_kv_heads"), "write the tag `kv_head`"),
    **dict.fromkeys(("q_idx", "q_len", "queries"), "write the tag `q`"),
    **dict.fromkeys(("kv_idx", "kv_len", "k", "keys"), "write the tag `kv`, or `pos` to index it by `q_pos` too"),
    **dict.fromkeys(("q_pos", "position", "seq", "seq_len", "N", "L", "S"), "write the tag `pos`"),
}

# -------------------------------------------------------------------- declarations


def declaration(node: ast.Input, axes: tuple[ir.Axis | None, ...], report: Report) -> Tensor | None:
    """The input that a statement declares, given its lowered axes; None after an error."""
    dtype = names.one_of(
        node.dtype, {name: name for name in builtins.DTYPES}, "a dtype of inputs", report, _DTYPES_ELSEWHERE
    )
    properties = [names.one_of(word, _NAMED_PROPERTIES, "a property of inputs", report) for word in node.properties]
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


_NAMED_PROPERTIES = {name: name for name in builtins.PROPERTIES}


def report_unknown_axis(node: ast.Name, scope: Scope, report: Report) -> None:
    """A word in an axis's place that is neither a tag nor a const declared above."""
    if node.name in scope.later:
        scope.unknown_value(node)
        return
    consts = [name for name, binding in scope.declared().items() if binding.kind == "const"]
    advice = _AXES_ELSEWHERE.get(node.name) or did_you_mean(node.name, (*builtins.TAGS, *consts))
    report.error(
        "A101",
        f"`{node.name}` is neither an axis tag nor a const",
        node.span,
        notes=[f"tags: {', '.join(builtins.TAGS)}"],
        help=advice or "write a tag, a const, a number, or `_` for any length",
    )


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
        report.error(
            "A204",
            f"`{item.name}` takes {len(item.axes)} {plural}, and {len(indices)} came",
            node.span,
            labels=[Label(tensor.node.span, "declared here")],
            help=f"index it as `{item.name}[{_usual(item.axes)}]`",
        )
        return None
    good = [
        _is_int(node.indices[place], index, report) and _fits_axis(node, place, tensor, counted(index, lets), report)
        for place, index in enumerate(indices)
    ]
    return ir.Load(item.type, item.name, tuple(indices), span=node.span) if all(good) else None


def _is_int(node: ast.Expr, index: Expr, report: Report) -> bool:
    if index.type is Type.INT:
        return True
    advice = f"write `floor({quoted(node.span, 'x')})`" if index.type is Type.FLOAT else "an index is an int"
    report.error("A201", "an index must be an int", node.span, f"this is {a_type(index.type)}", help=advice)
    return False


def _fits_axis(node: ast.Index, place: int, tensor: Tensor, name: str | None, report: Report) -> bool:
    """Whether the built-in index `name` (None: some other int) may stand at this place."""
    tag = tensor.input.axes[place].tag
    if tag is None or name is None or name in builtins.TAGS[tag].indexed_by:
        return True
    _report_axis(node, place, tensor, name, report)
    return False


def _report_axis(node: ast.Index, place: int, tensor: Tensor, name: str, report: Report) -> None:
    """A203: an index that counts something else than the axis does."""
    item = tensor.input
    tag = builtins.TAGS[item.axes[place].tag or ""]
    fitting = [quoted(index.span, "...") for index in node.indices]
    fitting[place] = tag.indexed_by[0]
    advice = f"write `{item.name}[{', '.join(fitting)}]`"
    if tag.name == "pos":
        advice = "the positions of keys: write `kv_idx`, or `q_pos` for the query's"
    elif tag.name == "kv" and name in ("q_pos", "q_idx"):
        advice = "to look up queries and keys in one tensor, declare the axis as `pos` and write `q_pos`"
    elif tag.name == "head" and name == "kv_h":
        advice = "write `h`, or declare the axis as `kv_head`"
    report.error(
        "A203",
        f"`{item.name}` is indexed by {builtins.VALUES[name].counts} where its axis is `{tag.name}`",
        node.indices[place].span,
        f"`{name}`" if node.indices[place].span.text != name else "",
        labels=[Label(tensor.node.axes[place].span, f"counts {tag.doc}")],
        help=advice,
    )


def counted(index: Expr, lets: Mapping[str, ir.Let]) -> str | None:
    """The built-in index that an expression is by name, also by the name of a let; None after any arithmetic."""
    while isinstance(index, ir.Local):
        index = lets[index.name].value
    return index.name if isinstance(index, ir.Symbol) and builtins.VALUES[index.name].counts else None


def _usual(axes: tuple[ir.Axis, ...]) -> str:
    return ", ".join(builtins.TAGS[axis.tag].indexed_by[0] if axis.tag else f"i{i}" for i, axis in enumerate(axes))


# -------------------------------------------------------------------- tensors in the wrong place


def report_bare(node: ast.Name, tensor: Tensor, report: Report) -> None:
    """A tensor's name without indices."""
    report.error(
        "A106",
        f"`{node.name}` is a tensor, not a value",
        node.span,
        labels=[Label(tensor.node.span, "declared here")],
        help=f"index it: `{node.name}[{_usual(tensor.input.axes)}]`",
    )


def report_not_indexable(node: ast.Index, binding: Binding, report: Report) -> None:
    """An index on a name that stands for a single value."""
    name, kind = node.tensor.name, binding.kind
    advice = (
        f"give `{name}` an input that has axes"
        if kind == "parameter"
        else f"write `{name}`, or declare an input with axes"
    )
    report.error(
        "A106",
        f"`{name}` is one value and can't be indexed",
        node.tensor.span,
        f"{names.a(kind)} without axes",
        labels=[Label(binding.span, "declared here")],
        help=advice,
    )


def report_not_a_tensor(node: ast.Index, scope: Scope, report: Report) -> None:
    """An index on a name that no declaration above explains."""
    name = node.tensor
    if name.name in builtins.VALUES:
        report.error(
            "A106",
            f"`{name.name}` is one value and can't be indexed",
            name.span,
            "a built-in value",
            help=f"write `{name.name}`",
        )
    else:
        scope.unknown_value(name, "tensor")
