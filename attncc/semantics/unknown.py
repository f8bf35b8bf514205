"""What to say about a name that isn't there, or that stands for something else than its place asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import resources
from ..diagnostics import Edit, Label, did_you_mean
from ..ir import Expr
from ..source import SourceFile, Span
from ..syntax import ast
from ..syntax.mistakes import OPERANDS
from ..syntax.printer import expression
from . import builtins, foreign
from .names import Binding, Scope, Table, Tensor, a, reserved
from .report import brief

_DECLARE_IT = (
    "nothing is captured from outside: declare a `const` (known when built) or an `input` (given at each call)"
)
_DECLARE_OR_CALL_IT = (
    "declare a `const` or an `input`; for the library's mask of that name, write `import masks` below `attn 1`, "
    "and call it"
)


def value(name: ast.Name, scope: Scope, noun: str = "value") -> None:
    """A name where a value (or a tensor) should stand, and that no declaration above explains."""
    mask, function = scope.masks.get(name.name), builtins.FUNCTIONS.get(name.name)
    if mask is not None or function is not None:
        what, signature = (mask.kind, mask.signature) if mask else ("function", function.signature if function else "")
        message = f"`{name.name}` is a {what}, not a {noun}"
        complete = name.span if signature.endswith("()") else None
        scope.report.error("A106", message, name.span, help=f"call it: write `{signature}`", instead=complete)
    elif name.name in scope.later:
        _too_early(name, scope)
    elif scope.first_time(name.name) or name.name in builtins.FOREIGN_VALUES:  # what replaces those stands at each use
        known = (*scope.declared(), *(builtins.VALUES if noun == "value" else ()))
        advice = builtins.FOREIGN_VALUES.get(name.name) or did_you_mean(name.name, known) or _DECLARE_IT
        advice = _DECLARE_OR_CALL_IT if advice == _DECLARE_IT and _is_in_library(name.name) else advice
        message = f"there is no {noun} named `{name.name}` here"
        scope.report.error("A101", message, name.span, help=advice, instead=name.span)


def function(node: ast.Call, scope: Scope, args: Sequence[Expr] | None) -> None:
    """A call of a name that is neither built in nor that of a mask or function in view; `args`: None after an error."""
    name = node.function
    binding = scope.find(name)
    if binding is not None or name.name in builtins.VALUES:
        _called(node, binding, scope)
    elif not scope.report.lacks_masks:
        known = (*scope.masks, *builtins.FUNCTIONS)
        message = f"there is no function or mask named `{name.name}` here"
        again = not scope.first_time(name.name)
        if instead := foreign.instead(node, [arg.type for arg in args or ()]):
            scope.report.error("A102", message, name.span, help=instead.help, instead=instead.edit)
            return
        if again:
            return
        if _is_in_library(name.name):
            help, edit = "the library has it: write `import masks` below `attn 1`", _import_of_masks(name.span.source)
            scope.report.error("A102", message, name.span, help=help, instead=edit)
            return
        advice = did_you_mean(name.name, scope.masks if foreign.is_elsewhere(name.name) else known)
        notes = [] if advice else [f"there are: {', '.join(known)}"]
        help = advice or f"define it: `fn {name.name}(x) = ...`, or `mask {name.name}(x) = ...` for a condition"
        scope.report.error("A102", message, name.span, notes=notes, help=help, instead=name.span)


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
        instead=node.span,
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
        instead=node.span if all(axis.tag for axis in tensor.input.axes) else None,
    )


def bare_table(node: ast.Name, table: Table, scope: Scope) -> None:
    """A const array's name without an index."""
    scope.report.error(
        "A106",
        f"`{node.name}` is a const array, not a value",
        node.span,
        labels=[Label(table.node.span, "declared here")],
        help=f"index it, as in `{node.name}[h]`",
        instead=Edit(node.span, f"{node.name}[h]"),
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
    label, edit = f"{a(kind)} without axes", None if kind == "parameter" else node.span
    scope.report.error("A106", message, node.tensor.span, label, labels=labels, help=advice, instead=edit)


def _called(node: ast.Call, binding: Binding | None, scope: Scope) -> None:
    name = node.function
    kind = binding.kind if binding is not None else "built-in value"
    advice = f"write `{name.name}`"
    edit: Edit | Span | None = None if node.arguments else node.span
    if binding is not None and isinstance(binding.meaning, Tensor | Table):
        usual = binding.meaning.usual_indices if isinstance(binding.meaning, Tensor) else "h"
        indices = ", ".join(expression(argument) for argument in node.arguments) or usual
        advice = f"write `{name.name}[{brief(indices, '...')}]` to index a tensor"
        edit = Edit(node.span, f"{name.name}[{indices}]")
    scope.report.error("A106", f"`{name.name}` is {a(kind)} and can't be called", name.span, help=advice, instead=edit)


def _too_early(name: ast.Name, scope: Scope) -> None:
    """Nothing where the declaration itself is refused: that is the mistake."""
    declared = scope.later[name.name]
    if reserved(name.name, "let"):
        return
    what, advice = "above its declaration", "move the declaration up"
    if declared.start < name.span.start:
        advice = OPERANDS.get(name.name) or "every name has one meaning; call the new value by another name"
        what = "in its own declaration"
    labels = [Label(declared, "declared here")]
    scope.report.error("A105", f"`{name.name}` is used {what}", name.span, labels=labels, help=advice)


def _is_in_library(name: str) -> bool:
    return name in re.findall(r"^mask (\w+)\(", resources.read("specs", "masks.attn"), re.MULTILINE)


def _import_of_masks(source: SourceFile) -> Edit | None:
    """The import, below the version."""
    version = re.search(r"^\s*attn\s+1\b", source.text, re.MULTILINE)
    return version and Edit(Span(source, version.end(), version.end()), "\n\nimport masks")
