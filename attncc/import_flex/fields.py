"""The `__init__` of dataclasses and named tuples, which Python writes from their fields, and so does this module."""

from __future__ import annotations

import ast
from typing import TypeVar

_Statement = TypeVar("_Statement", bound=ast.stmt)
_NO_FIELDS = ("ClassVar", "InitVar")
_AFTER_INIT = "__post_init__"


def last_word(node: ast.expr) -> str:
    """`lru_cache` of `@functools.lru_cache(maxsize=None)`."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_made_by_fields(node: ast.ClassDef) -> bool:
    """Whether Python writes the `__init__` of a class."""
    own = any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body)
    words = [*map(last_word, node.decorator_list), *(last_word(base) for base in node.bases)]
    return not own and ("dataclass" in words or "NamedTuple" in words)


def init_by_fields(node: ast.ClassDef) -> ast.FunctionDef | None:
    """That `__init__`. None where the fields of another class come before the class's own."""
    if node.bases and list(map(last_word, node.bases)) != ["NamedTuple"]:
        return None
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and _is_field(item)]
    arguments = ast.arguments([], [ast.arg("self")], None, [], [], None, [])
    body: list[ast.stmt] = []
    for item in fields:
        assert isinstance(item.target, ast.Name)
        name, default = item.target.id, _default(item.value)
        parameter = ast.arg(name, item.annotation)
        if default is None and arguments.defaults:  # behind `field(default_factory=…)`
            arguments.kwonlyargs.append(parameter)
            arguments.kw_defaults.append(None)
        else:
            arguments.args.append(parameter)
            arguments.defaults += [] if default is None else [default]
        target = ast.Attribute(ast.Name("self", ast.Load()), name, ast.Store())
        body.append(_at(item, ast.Assign([target], ast.Name(name, ast.Load()))))
        ast.copy_location(parameter, item)
    if any(isinstance(item, ast.FunctionDef) and item.name == _AFTER_INIT for item in node.body):
        after = ast.Attribute(ast.Name("self", ast.Load()), _AFTER_INIT, ast.Load())
        body.append(_at(node, ast.Expr(ast.Call(after, [], []))))
    return _at(node, ast.FunctionDef(name="__init__", args=arguments, body=body or [ast.Pass()], decorator_list=[]))


def _is_field(item: ast.AnnAssign) -> bool:
    annotation = item.annotation.value if isinstance(item.annotation, ast.Subscript) else item.annotation
    return isinstance(item.target, ast.Name) and last_word(annotation) not in _NO_FIELDS


def _default(value: ast.expr | None) -> ast.expr | None:
    """3 of `width: int = 3` and of `width: int = field(default=3)`."""
    if not isinstance(value, ast.Call) or last_word(value) != "field":
        return value
    return next((item.value for item in value.keywords if item.arg == "default"), None)


def _at(place: ast.stmt, node: _Statement) -> _Statement:
    """A statement and what is in it, as if it stood at this place."""
    return ast.fix_missing_locations(ast.copy_location(node, place))
