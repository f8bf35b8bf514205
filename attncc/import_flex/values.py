"""What Python names stand for while a file is read: terms, captured values, functions, lists, modules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..source import Span
from .terms import Captured, Term
from .text import PythonText


class Scope:
    """The names of a module, a class or a call, and the scope around it."""

    def __init__(self, text: PythonText, parent: Scope | None = None, label: str = "") -> None:
        self.text = text
        self.parent = parent
        self.label = label  # for messages: the name of the function
        self.names: dict[str, Value] = {}
        self.score: str | None = None  # in a score_mod's own scope: its first parameter

    @property
    def root(self) -> Scope:
        return self if self.parent is None else self.parent.root

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None


@dataclass(frozen=True, eq=False)
class Function:
    """A `def` or a lambda with the names that it sees. `bound` are arguments that come before those of a call."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    scope: Scope
    defaults: Mapping[str, Value]
    bound: tuple[Value, ...] = ()

    @property
    def parameters(self) -> tuple[ast.arg, ...]:
        """The positional parameters that a call gives."""
        return tuple((*self.node.args.posonlyargs, *self.node.args.args)[len(self.bound) :])

    @property
    def required(self) -> int:
        """How many arguments a call must give: how FlexAttention tells a mask_mod (4) from a score_mod (5)."""
        return sum(parameter.arg not in self.defaults for parameter in self.parameters)


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the file: the names in its body."""

    name: str
    scope: Scope


@dataclass(frozen=True, eq=False)
class Module:
    """An imported file."""

    scope: Scope


@dataclass(frozen=True)
class Library:
    """Something that no file of the user's defines, by its dotted path: `torch.exp`, `math`, `builtins.len`."""

    path: str

    @property
    def short(self) -> str:
        return self.path.removeprefix("builtins.")


@dataclass(frozen=True, eq=False)
class Items:
    """A list or tuple of known length."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Nothing:
    """None."""


@dataclass(frozen=True)
class Like:
    """The dtype of a term: `score.dtype`."""

    term: Term


@dataclass(frozen=True)
class Bad:
    """What is wrong with it has been said."""


@dataclass(frozen=True, eq=False)
class Later:
    """A name that an import brings: looked up when it is first used."""

    load: Callable[[], Value] = field(repr=False)


Value = Term | Captured | Function | Class | Module | Library | Items | Text | Nothing | Like | Bad | Later


@dataclass(frozen=True)
class Given:
    """The arguments of a call, and where it stands."""

    values: tuple[Value, ...]
    keywords: Mapping[str, Value]
    span: Span

    @property
    def every(self) -> tuple[Value, ...]:
        return (*self.values, *self.keywords.values())


BAD = Bad()
NOTHING = Nothing()

_NOUNS: dict[type, str] = {
    Function: "a function", Class: "a class", Module: "a module", Items: "a list",
    Text: "a string", Captured: "a captured value", Nothing: "None", Like: "a dtype", Library: "no number",
}  # fmt: skip


def noun(value: Value) -> str:
    """What a value is, for messages."""
    return _NOUNS.get(type(value), "a number")


def parts(value: Value) -> tuple[Value, ...]:
    """A value, or what a list holds, lists in it too."""
    return tuple(part for item in value.items for part in parts(item)) if isinstance(value, Items) else (value,)
