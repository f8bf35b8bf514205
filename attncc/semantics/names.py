"""Names and what they stand for. The world is closed: no shadowing, nothing captured, one meaning for each name."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from .. import ir
from ..diagnostics import Label, did_you_mean
from ..source import Span
from ..syntax import ast
from ..syntax.mistakes import OPERANDS
from . import builtins
from .report import Report

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Mask:
    """A named mask or function, and those of its file, which its body may call."""

    node: ast.Mask | ast.Function
    visible: Mapping[str, Mask]

    @property
    def kind(self) -> str:
        return "mask" if isinstance(self.node, ast.Mask) else "function"

    @property
    def name(self) -> str:
        return self.node.name.name

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(parameter.name for parameter in self.node.parameters)})"


@dataclass(frozen=True)
class Tensor:
    """An input with axes; it has a value only where it is indexed."""

    input: ir.Input
    node: ast.Input

    @property
    def usual_indices(self) -> str:
        """Indices that fit, for messages: `b, kv_idx`."""
        return ", ".join(
            builtins.TAGS[axis.tag].indexed_by[0] if axis.tag else "0" if axis.length == 1 else f"i{place}"
            for place, axis in enumerate(self.input.axes)
        )


@dataclass(frozen=True)
class Table:
    """A const array; it has a value only where it is indexed."""

    values: tuple[int | float | bool, ...]
    node: ast.Table


# None: after a wrong declaration, and for a parameter of a mask that is checked by itself.
Meaning = ir.Expr | Tensor | Table | None


@dataclass(frozen=True)
class Binding:
    """What a name means in one body, and how messages call it: a const, an input, a let, a parameter, ..."""

    kind: str
    meaning: Meaning
    span: Span


class Scope:
    """The names that one body (of a variant, mask or function) has declared so far, and the masks that it may call.

    `later` holds every name that the body declares anywhere, so that one used too early gets a message of its own.
    """

    def __init__(self, masks: Mapping[str, Mask], later: Mapping[str, Span], report: Report) -> None:
        self.masks = masks
        self.report = report
        self.used: set[str] = set()
        self.later = later
        self._unknown: set[str] = set()
        self._bindings: dict[str, Binding] = {}

    def declare(self, name: ast.Name, kind: str, meaning: Meaning) -> None:
        """Binds a name. After an error with a name its uses are let pass, or keep the meaning that they had."""
        if reason := reserved(name.name, kind):
            message = f"`{name.name}` can't be the name of {a(kind)}: {reason}"
            changed = OPERANDS.get(name.name, "") if kind == "let" else ""
            self.report.error("A104", message, name.span, help=changed or "choose another name")
            meaning = None
        elif self._taken(name, kind):
            meaning = None
        self._bindings.setdefault(name.name, Binding(kind, meaning, name.span))

    def find(self, name: ast.Name) -> Binding | None:
        """The binding of a name that a body has declared; built-in values and masks aren't among them."""
        self.used.add(name.name)
        return self._bindings.get(name.name)

    def first_time(self, name: str) -> bool:
        """Whether an unknown name wasn't asked about before: a declaration that is missing is one mistake."""
        known = name in self._unknown
        self._unknown.add(name)
        return not known

    @contextmanager
    def loop(self, variable: ast.Name, value: int) -> Iterator[None]:
        """Binds the variable of an unrolled loop for one iteration."""
        before = dict(self._bindings)
        self.declare(variable, "loop variable", ir.Const(ir.Type.INT, value, span=variable.span))
        yield
        self._bindings = before

    def declared(self) -> Mapping[str, Binding]:
        return self._bindings

    def _taken(self, name: ast.Name, kind: str) -> bool:
        other = self._bindings.get(name.name)
        span, called = (other.span, a(other.kind)) if other else (None, "")
        if mask := self.masks.get(name.name):
            span, called = mask.node.name.span, a(mask.kind)
        if span is None:
            return False
        self.report.error(
            "A103",
            f"`{name.name}` is already the name of {called}",
            name.span,
            f"{kind} of the same name",
            labels=[Label(span, "declared here")],
            help="every name has one meaning; choose another name",
        )
        return True


def reserved(name: str, kind: str) -> str:
    """Why a name can't be given to this kind of thing, or an empty string."""
    if kind == "variant" and keyword.iskeyword(name):
        return "it is a keyword of Python, and variants are imported there by their name"
    if kind == "input" and keyword.iskeyword(name):
        return "it is a keyword of Python, and inputs are keyword arguments there"
    if kind == "input" and name in builtins.CALL_ARGUMENTS:
        return "calls have an argument of that name"
    if kind not in ("variant", "schedule"):
        return _built_in(name)
    return ""


def _built_in(name: str) -> str:
    """What a name means in every expression, if it does."""
    if name in builtins.VALUES:
        return f"it is a built-in value, {builtins.VALUES[name].doc}"
    words: dict[str, Collection[str]] = {
        "it is a built-in function": builtins.FUNCTIONS,
        "it is an axis tag": builtins.TAGS,
        "it is a type": {*builtins.DTYPES, *builtins.CONST_TYPES},
    }
    return next((reason for reason, taken in words.items() if name in taken), "")


def declares(statements: tuple[ast.Statement, ...]) -> dict[str, Span]:
    """Every name that the statements of a body declare, and where."""
    named = (item for item in statements if isinstance(item, ast.Const | ast.Table | ast.Input | ast.Let))
    return {item.name.name: item.name.span for item in named}


def one_of(
    word: ast.Name, choices: Mapping[str, T], what: str, report: Report, advice: Mapping[str, str] = {}
) -> T | None:
    """The choice that a word names; A113, with the closest choice, if it is none of them."""
    if word.name in choices:
        return choices[word.name]
    close = advice.get(word.name) or did_you_mean(word.name, choices)
    every = ", ".join(choices)
    notes = [f"there are: {every}"] if close else []
    help = close or f"write one of {every}"
    report.error("A113", f"`{word.name}` is not {what}", word.span, notes=notes, help=help, instead=word.span)
    return None


def a(kind: str) -> str:
    """A noun with its article, for messages."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
