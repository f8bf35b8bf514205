"""What Python names stand for while a file is read: terms, captured values, functions, lists, modules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..diagnostics import Diagnostic
from ..source import Span
from .terms import Captured, Term
from .text import PythonText

Places = tuple[Term, ...]  # of an element, one for each axis


class Scope:
    """The names of a module, a class or a call, and the scope around it."""

    def __init__(self, text: PythonText, parent: Scope | None = None, label: str = "") -> None:
        self.text = text
        self.parent = parent
        self.label = label  # for messages: the name of the function
        self.names: dict[str, Value] = {}
        self.score: str | None = None  # in a score_mod's own scope: its first parameter
        self.left: list[Way] = []  # ways out of the function before its end, which may or may not be taken

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
class Way:
    """A `return` under an `if` that isn't decided: what it returns, the names that are bound there, and why."""

    result: Value
    names: Mapping[str, Value]
    why: Diagnostic


@dataclass(frozen=True, eq=False)
class Function:
    """A `def` or a lambda with the names that it sees. `bound` are arguments that come before those of a call, for
    methods that are `of_instances` first of all `self`."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    scope: Scope
    defaults: Mapping[str, Value]
    bound: tuple[Value, ...] = ()
    of_instances: bool = False

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
    """A class of the file: the names in its body, then those of the classes that it is made from."""

    name: str
    scope: Scope
    bases: tuple[Value, ...] = ()


@dataclass(eq=False)
class Instance:
    """An object of a class of the file. `names` are its attributes; `known` is False where it may have others or other
    ones than those, as `self` of a method that is named without an object."""

    of: Class
    names: dict[str, Value]
    known: bool = True

    def forget(self) -> None:
        """Something may have changed it."""
        self.names.clear()
        self.known = False


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


@dataclass(frozen=True, eq=False)
class Lookup:
    """A dict with known keys."""

    items: Mapping[int | float | str, Value]


@dataclass(frozen=True, eq=False)
class Block:
    """A tensor with axes inside of a mod; a length is None if it isn't known. `at` gives the element at some places."""

    shape: tuple[int | None, ...]
    at: Callable[[Places], Term | None] = field(repr=False)


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


Value = (
    Term | Captured | Function | Class | Instance | Module | Library | Items | Lookup | Block | Text | Nothing | Like
    | Bad | Later
)  # fmt: skip


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
    Instance: "an object", Lookup: "a dict", Block: "a tensor with axes",
}  # fmt: skip


def noun(value: Value) -> str:
    """What a value is, for messages."""
    return _NOUNS.get(type(value), "a number")


def parts(value: Value) -> tuple[Value, ...]:
    """A value, or what a list or dict holds, lists in it too."""
    match value:
        case Items(items=items):
            return tuple(part for item in items for part in parts(item))
        case Lookup(items=named):
            return tuple(part for item in named.values() for part in parts(item))
    return (value,)
