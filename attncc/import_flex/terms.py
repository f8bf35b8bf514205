"""What a mod computes, as an expression without types: the form between Python and `.attn`.

Terms are trees, except that a `Named` may be read several times. The dtypes of captured tensors are found later, from
how the terms use them, so an operator keeps torch's name until then (`and` is that of bools or that of bits).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from ..diagnostics import Diagnostic
from ..operators import OPERATORS as LANGUAGE
from ..source import Span


@dataclass(frozen=True, eq=False)
class Captured:
    """A value from outside the mod that isn't known here: it becomes an input.

    `origin` says in Python where it comes from, `dtype` (of `.attn`) is what its definition shows, `why` is what kept
    it from being followed. `plain` is a number by its annotation; `auto` means that its name was made up. `shape` are
    the lengths of a tensor's axes, None for one that isn't known; None where not even their number is.
    """

    name: str
    span: Span
    origin: str
    dtype: str | None = None
    plain: bool = False
    learnable: bool = False
    auto: bool = False
    why: Diagnostic | None = None
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Term:
    """`varies`: it depends on the pair (or on the variable of a loop), so that it can't be given from outside.
    `depth`: levels of the expression, through names too.
    """

    span: Span = field(repr=False)
    varies: bool = field(init=False, repr=False)
    depth: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        own = isinstance(self, Symbol | Score | Variable)
        object.__setattr__(self, "varies", own or any(child.varies for child in self.children))
        object.__setattr__(self, "depth", 1 + max((child.depth for child in self.children), default=0))

    @property
    def children(self) -> tuple[Term, ...]:
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Number(Term):
    """`text` is how it was written, where `.attn` writes it so too."""

    value: int | float | bool
    text: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Symbol(Term):
    """b, h, q_idx or kv_idx."""

    name: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Score(Term):
    """The score after so many score lines."""

    version: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Variable(Term):
    """The variable of the `Reduce` around it."""

    name: str


class Role(Enum):
    """What gave a value its name."""

    OUTER = "an assignment outside the mod, or a parameter of a factory"
    LOCAL = "an assignment in the mod"
    ARGUMENT = "a parameter of a function that the mod calls"


@dataclass(frozen=True, eq=False, kw_only=True)
class Named(Term):
    """A value with a name. `order` counts them as they are made."""

    name: str
    value: Term
    role: Role
    order: int

    @property
    def children(self) -> tuple[Term, ...]:
        return (self.value,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Element(Term):
    """A captured scalar (no indices), or an element of a captured tensor."""

    captured: Captured
    indices: tuple[Term, ...] = ()

    @property
    def children(self) -> tuple[Term, ...]:
        return self.indices


@dataclass(frozen=True, eq=False, kw_only=True)
class Compare(Term):
    """`a < b <= c`: len(operands) == len(ops) + 1."""

    ops: tuple[str, ...]
    operands: tuple[Term, ...]

    @property
    def children(self) -> tuple[Term, ...]:
        return self.operands


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Term):
    """`any(body for variable in range(count))`, likewise `all` and `sum`."""

    function: str
    body: Term
    variable: Variable
    count: Term

    @property
    def children(self) -> tuple[Term, ...]:
        return (self.body, self.count)


@dataclass(frozen=True, eq=False, kw_only=True)
class Apply(Term):
    """An operator of `OPERATORS`."""

    op: str
    args: tuple[Term, ...]

    @property
    def children(self) -> tuple[Term, ...]:
        return self.args


FUNCTIONS = tuple(name for name, item in LANGUAGE.items() if item.function is not None)

# Python's operators, then the functions that `.attn` has, then conversions. `to_like` takes the dtype of its second.
OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "truncdiv", "mod", "pow", "neg"),
    *("and", "or", "xor", "invert", "shl", "shr"),
    *("logical_and", "logical_or", "logical_not", "py_and", "py_or", "py_not"),
    *(*FUNCTIONS, "clamp", "where"),
    *("to_int", "to_float", "to_bool", "to_like"),
)


def walk(*roots: Term) -> Iterator[Term]:
    """Every node below the roots, parents before children; a `Named` each time that it is read, its value once."""
    entered: set[Named] = set()
    stack = list(reversed(roots))
    while stack:
        term = stack.pop()
        yield term
        if isinstance(term, Named):
            if term in entered:
                continue
            entered.add(term)
        stack.extend(reversed(term.children))


def bare(term: Term) -> Term:
    """What stands behind a name."""
    while isinstance(term, Named):
        term = term.value
    return term


def is_number(term: Term, value: int | float | bool) -> bool:
    """Whether a term is this very number; True isn't 1."""
    return isinstance(term, Number) and type(term.value) is type(value) and term.value == value
