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
from . import builtins
from .report import Report

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Mask:
    """A named mask, and the masks of its file, which its body may call."""

    node: ast.Mask
    visible: Mapping[str, Mask]

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


# An expression, a tensor, or None: after a wrong declaration, and for a parameter of a mask that is checked by itself.
Meaning = ir.Expr | Tensor | None


@dataclass(frozen=True)
class Binding:
    """What a name means in one body, and how messages call it: a const, an input, a let, a parameter, ..."""

    kind: str
    meaning: Meaning
    span: Span


class Scope:
    """The names that one body (of a variant or of a mask) has declared so far, and the masks that it may call.

    `later` holds every name that the body declares anywhere, so that one used too early gets a message of its own.
    """

    def __init__(self, masks: Mapping[str, Mask], later: Mapping[str, Span], report: Report) -> None:
        self.masks = masks
        self.report = report
        self.used: set[str] = set()
        self.later = later
        self._bindings: dict[str, Binding] = {}

    def declare(self, name: ast.Name, kind: str, meaning: Meaning) -> None:
        """Binds a name. One that is taken or reserved is reported and keeps the meaning that it had."""
        reason = reserved(name.name, kind)
        if reason:
            self.report.error(
                "A104", f"`{name.name}` can't be the name of {a(kind)}: {reason}", name.span, help="choose another name"
            )
        elif not self._taken(name, kind):
            self._bindings[name.name] = Binding(kind, meaning, name.span)

    def find(self, name: ast.Name) -> Binding | None:
        """The binding of a name that a body has declared; built-in values and masks aren't among them."""
        self.used.add(name.name)
        return self._bindings.get(name.name)

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
            span, called = mask.node.name.span, "a mask"
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

    # ---------------------------------------------------------------- what to say about a name that isn't there

    def unknown_value(self, name: ast.Name, noun: str = "value") -> None:
        """Reports a name that stands where a value (or a tensor) should, and that no declaration above explains."""
        if name.name in self.masks:
            mask = self.masks[name.name]
            self.report.error(
                "A106", f"`{name.name}` is a mask, not a {noun}", name.span, help=f"call it: write `{mask.signature}`"
            )
        elif name.name in builtins.FUNCTIONS:
            function = builtins.FUNCTIONS[name.name]
            self.report.error(
                "A106",
                f"`{name.name}` is a function, not a {noun}",
                name.span,
                help=f"call it: write `{function.signature}`",
            )
        elif name.name in self.later:
            self._too_early(name)
        else:
            known = (*self._bindings, *builtins.VALUES)
            advice = did_you_mean(name.name, known) or builtins.FOREIGN_VALUES.get(name.name, "")
            self.report.error(
                "A101", f"there is no {noun} named `{name.name}` here", name.span, help=advice or _DECLARE_IT
            )

    def unknown_function(self, name: ast.Name) -> None:
        """Reports a name that is called, and is neither a mask in view nor a built-in function."""
        if name.name in self._bindings or name.name in builtins.VALUES:
            called = self._bindings[name.name].kind if name.name in self._bindings else "built-in value"
            advice = (
                f"write `{name.name}[...]` to index a tensor"
                if called in ("input", "parameter")
                else f"write `{name.name}`"
            )
            self.report.error("A106", f"`{name.name}` is {a(called)} and can't be called", name.span, help=advice)
            return
        known = (*self.masks, *builtins.FUNCTIONS)
        advice = builtins.FOREIGN_FUNCTIONS.get(name.name, "") or did_you_mean(name.name, known)
        masks = ", ".join(sorted(self.masks)) or "none"
        self.report.error(
            "A102",
            f"there is no function or mask named `{name.name}` here",
            name.span,
            notes=[f"masks in view: {masks}", f"functions: {', '.join(builtins.FUNCTIONS)}"],
            help=advice,
        )

    def _too_early(self, name: ast.Name) -> None:
        self.report.error(
            "A105",
            f"`{name.name}` is used above its declaration",
            name.span,
            labels=[Label(self.later[name.name], "declared here")],
            help="move the declaration up",
        )


_DECLARE_IT = (
    "nothing is captured from outside: declare it as a `const` (known when built) or an `input` (given at each call)"
)


def reserved(name: str, kind: str) -> str:
    """Why a name can't be given to this kind of thing, or an empty string."""
    if name.startswith("_") or "__" in name:
        return "names that begin with `_` or hold `__` are the compiler's own"
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
    named = (item for item in statements if isinstance(item, ast.Const | ast.Input | ast.Let))
    return {item.name.name: item.name.span for item in named}


def one_of(
    word: ast.Name, choices: Mapping[str, T], what: str, report: Report, advice: Mapping[str, str] = {}
) -> T | None:
    """The choice that a word names; A113, with the closest choice, if it is none of them."""
    if word.name in choices:
        return choices[word.name]
    close = advice.get(word.name) or did_you_mean(word.name, choices) or f"write one of {', '.join(choices)}"
    report.error(
        "A113", f"`{word.name}` is not {what}", word.span, notes=[f"there are: {', '.join(choices)}"], help=close
    )
    return None


def a(kind: str) -> str:
    """A noun with its article, for messages."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
