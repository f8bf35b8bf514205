"""What to write where a mod asks Python for a value that depends on the pair."""

from __future__ import annotations

import ast
from collections.abc import Iterator

FLOW = "write torch.where(condition, a, b) in place of `if`, & | ~ in place of `and` `or` `not`"
LOOKED_UP = "make a dict that an index looks up a tensor, outside of the mod: torch.tensor(list(the_dict.values()))"
_TORCH_NAMES = {
    "max": "maximum", "min": "minimum", "fabs": "abs", "pow": "pow", "erf": "erf", "isnan": "isnan", "log": "log",
    "exp": "exp", "exp2": "exp2", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tanh": "tanh", "log2": "log2",
    "floor": "floor", "ceil": "ceil",
}  # fmt: skip


def for_flow(text: str) -> str:
    """Advice for an expression of the mod, by what in it asks Python: `math.exp`, `max`, `.item()`, `in`, a chain of
    comparisons. That for `if`, `and`, `or`, `not` for all others, and for text that is no expression by itself."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return FLOW
    return next((said for node in ast.walk(tree) for said in _of(node)), FLOW)


def _of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        yield from _of_call(node.func)
    elif isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
        yield "write (x == 1) | (x == 2) in place of `x in (1, 2)`"
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        yield "write (a <= x) & (x < b) in place of `a <= x < b`"


def _of_call(called: ast.expr) -> Iterator[str]:
    if isinstance(called, ast.Name) and called.id in ("max", "min"):
        yield f"write torch.{_TORCH_NAMES[called.id]}(a, b) in place of `{called.id}(a, b)`"
    elif isinstance(called, ast.Attribute) and called.attr in ("item", "tolist"):
        yield f"leave `.{called.attr}()` out: a tensor without axes is a number and an index as it is"
    elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "math":
        name = _TORCH_NAMES.get(called.attr)
        yield f"write torch.{name} in place of `math.{called.attr}`" if name else "use torch's functions, not math's"
