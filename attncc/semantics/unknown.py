"""What to say about a name that isn't there, or that stands for something else than its place asks for."""

from __future__ import annotations

import re

from .. import resources
from ..diagnostics import Label, did_you_mean
from ..syntax import ast
from . import builtins
from .names import Binding, Scope, Tensor, a

_DECLARE_IT = (
    "nothing is captured from outside: declare a `const` (known when built) or an `input` (given at each call)"
)


def value(name: ast.Name, scope: Scope, noun: str = "value") -> None:
    """A name where a value (or a tensor) should stand, and that no declaration above explains."""
    mask, function = scope.masks.get(name.name), builtins.FUNCTIONS.get(name.name)
    if mask is not None or function is not None:
        what, signature = ("mask", mask.signature) if mask else ("function", function.signature if function else "")
        message = f"`{name.name}` is a {what}, not a {noun}"
        scope.report.error("A106", message, name.span, help=f"call it: write `{signature}`")
    elif name.name in scope.later:
        _too_early(name, scope)
    else:
        known = (*scope.declared(), *builtins.VALUES)
        advice = builtins.FOREIGN_VALUES.get(name.name) or did_you_mean(name.name, known) or _DECLARE_IT
        scope.report.error("A101", f"there is no {noun} named `{name.name}` here", name.span, help=advice)


def function(name: ast.Name, scope: Scope) -> None:
    """A name that is called, and is neither a mask in view nor a built-in function."""
    binding = scope.find(name)
    if binding is not None or name.name in builtins.VALUES:
        _called(name, binding, scope)
    elif not scope.report.lacks_masks:
        known = (*scope.masks, *builtins.FUNCTIONS)
        advice = builtins.FOREIGN_FUNCTIONS.get(name.name) or _from_library(name.name) or did_you_mean(name.name, known)
        scope.report.error(
            "A102",
            f"there is no function or mask named `{name.name}` here",
            name.span,
            notes=[] if advice else [f"there are: {', '.join(known)}"],
            help=advice or _DEFINE_IT,
        )


_DEFINE_IT = "define it as a mask, `mask name(parameters) = ...`, or write its expression here"


def axis(node: ast.Name, scope: Scope) -> None:
    """A word in an axis's place that is neither a tag nor a const declared above."""
    if node.name in scope.later:
        _too_early(node, scope)
        return
    consts = [name for name, binding in scope.declared().items() if binding.kind == "const"]
    advice = _AXES_ELSEWHERE.get(node.name) or did_you_mean(node.name, (*builtins.TAGS, *consts))
    scope.report.error(
        "A101",
        f"`{node.name}` is neither an axis tag nor a const",
        node.span,
        notes=[f"tags: {', '.join(builtins.TAGS)}"],
        help=advice or "write a tag, a const, a number, or `_` for any length",
    )


_AXES_ELSEWHERE = {
    **dict.fromkeys(("b", "B", "batch_size", "sequence"), "write the tag `batch`"),
    **dict.fromkeys(("h", "H", "heads", "num_heads", "q_head"), "write the tag `head`"),
    **dict.fromkeys(("kv_h", "kv_heads", "num_kv_heads"), "write the tag `kv_head`"),
    **dict.fromkeys(("q_idx", "q_len", "queries"), "write the tag `q`"),
    **dict.fromkeys(("kv_idx", "kv_len", "k", "keys"), "write the tag `kv`, or `pos` to index it by `q_pos` too"),
    **dict.fromkeys(("q_pos", "position", "seq", "seq_len", "N", "L", "S"), "write the tag `pos`"),
}


def bare_tensor(node: ast.Name, tensor: Tensor, scope: Scope) -> None:
    """A tensor's name without indices."""
    scope.report.error(
        "A106",
        f"`{node.name}` is a tensor, not a value",
        node.span,
        labels=[Label(tensor.node.span, "declared here")],
        help=f"index it: `{node.name}[{tensor.usual_indices}]`",
    )


def indexed_value(node: ast.Index, binding: Binding | None, scope: Scope) -> None:
    """Indices behind a name that stands for a single value (None: a built-in one)."""
    name = node.tensor.name
    kind = binding.kind if binding is not None else "built-in value"
    advice = f"write `{name}`, or declare an input with axes"
    labels = [Label(binding.span, "declared here")] if binding is not None else []
    if binding is not None and kind == "parameter":
        advice = f"give `{name}` an input that has axes"
        given = getattr(binding.meaning, "span", None)
        labels = [Label(given, "this value is given")] if given is not None else []
    message = f"`{name}` is one value and can't be indexed"
    scope.report.error("A106", message, node.tensor.span, f"{a(kind)} without axes", labels=labels, help=advice)


def _called(name: ast.Name, binding: Binding | None, scope: Scope) -> None:
    kind = binding.kind if binding is not None else "built-in value"
    indexed = f"write `{name.name}[...]` to index a tensor"
    advice = indexed if kind in ("input", "parameter") else f"write `{name.name}`"
    scope.report.error("A106", f"`{name.name}` is {a(kind)} and can't be called", name.span, help=advice)


def _too_early(name: ast.Name, scope: Scope) -> None:
    scope.report.error(
        "A105",
        f"`{name.name}` is used above its declaration",
        name.span,
        labels=[Label(scope.later[name.name], "declared here")],
        help="move the declaration up",
    )


def _from_library(name: str) -> str:
    library = re.findall(r"^mask (\w+)\(", resources.read("specs", "masks.attn"), re.MULTILINE)
    return "the library has it: write `import masks` below `attn 1`" if name in library else ""
