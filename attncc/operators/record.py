"""What is known of one operator or function. Every phase reads its part from here, and none keeps a table of its own.

A part that an operator must have has no default, so a record without it can't be made. Parts that need types of a later
phase (interval rules of ints, C text that depends on ranges) are registered there by the operator's name; those of
`tests/unit/operators` fail until they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from .ranges import Range


class Type(Enum):
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"

    __hash__ = object.__hash__  # an Enum's own is Python code, and each node of the IR asks for it


# -------------------------------------------------------------------- derivatives


class Quantity(Protocol):
    """A float expression that a derivative is made of."""

    def __add__(self, other: Quantity | float) -> Quantity: ...
    def __radd__(self, other: float) -> Quantity: ...
    def __sub__(self, other: Quantity | float) -> Quantity: ...
    def __rsub__(self, other: float) -> Quantity: ...
    def __mul__(self, other: Quantity | float) -> Quantity: ...
    def __rmul__(self, other: float) -> Quantity: ...
    def __truediv__(self, other: Quantity | float) -> Quantity: ...
    def __rtruediv__(self, other: float) -> Quantity: ...
    def __neg__(self) -> Quantity: ...

    def apply(self, op: str) -> Quantity:
        """A function of one float, by the name of its operator."""

    def compare(self, op: str, other: Quantity | float) -> Condition:
        """A comparison, by the name of its operator."""


class Condition(Protocol):
    def then(self, a: Quantity | float, b: Quantity | float) -> Quantity:
        """`a if self else b`."""


@dataclass(frozen=True)
class Where:
    """A derivative that counts only where a condition holds (or where it doesn't): 0 elsewhere, never a product with
    0, since it may be infinite there."""

    condition: Condition
    value: Quantity | float
    holds: bool = True


# By one argument. None: it has no derivative, as the condition of a choice.
Partial = Quantity | float | Where | None

# -------------------------------------------------------------------- parts


@dataclass(frozen=True, slots=True)
class Cuda:
    """The C text: a symbol such as `+`, or the name of a function, which `include` (of templates/include/attncc)
    defines unless C does. `hint` is what its value is called where that gets a name."""

    text: str
    hint: str
    include: str = ""


@dataclass(frozen=True, kw_only=True)
class OnFloats:
    """What an operator does with floats.

    `numpy` keeps the dtype of its arguments, float32 or float64. `derivative` takes the arguments and the value, and
    gives one partial derivative, or as many as there are arguments; None where the value is no float. `cost` counts
    instructions, roughly; `seldom` those that few calls run. `never_negative`: no value is below 0.
    `at_most`: no value is above it, nor below minus it.
    """

    numpy: Callable[..., Any]
    derivative: Callable[..., Partial | tuple[Partial, ...]] | None
    cuda: Cuda | None  # None: a rule of codegen/expressions.py
    cost: int
    seldom: int = 0
    never_negative: bool = False
    at_most: float = math.inf


@dataclass(frozen=True, kw_only=True)
class OnInts:
    """What an operator does with ints (64 bits, wrapping).

    `range` gives the ends of the true result from those of the arguments, before any wrapping; None where the value is
    no int. `wraps`: it has a second C function `wrapping_NAME`, for where that result may leave 64 bits. `grows`: it
    never falls as its one argument grows, so that its ends over a tile are those of the argument; all others have an
    interval rule in analysis/mask/intervals.py.
    """

    numpy: Callable[..., Any]
    range: Callable[..., Range] | None
    cuda: Cuda | None  # None: a rule of codegen/integers.py
    cost: int = 1
    wraps: bool = False
    grows: bool = False


@dataclass(frozen=True, kw_only=True)
class OnBools:
    """What an operator does with bools. Truth rules are those of analysis/algebra/algebra.py and truth.py."""

    numpy: Callable[..., Any]
    cuda: Cuda | None  # None: a rule of codegen/expressions.py
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Function:
    """How an operator is called in `.attn` text, with a line for people."""

    parameters: str
    doc: str
    least: int = 1
    most: int | None = 1  # None: any number; the operator then joins two at a time


@dataclass(frozen=True, kw_only=True)
class Operator:
    """`arity` is the number of arguments, -1 for two or more. `gives` is the type of the value; None: that of the last
    argument, which also says whether `on_ints`, `on_floats` or `on_bools` applies. It is written `infix` or called as
    `function`; neither: only the compiler makes it. `torch` are the functions of torch (methods, those of
    torch.nn.functional and of NumPy too) that mean just this."""

    name: str
    arity: int
    on_ints: OnInts | None = None
    on_floats: OnFloats | None = None
    on_bools: OnBools | None = None
    gives: Type | None = None
    infix: str = ""
    function: Function | None = None
    torch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """A record whose parts don't fit each other would only fail in a later phase."""
        assert self.on_ints or self.on_floats or self.on_bools, f"{self.name}: takes nothing"
        assert self.function is None or all(part.cuda for part in self.parts), f"{self.name}: what it is in CUDA"
        if self.on_floats is not None:
            differentiable = self.gives in (None, Type.FLOAT)
            assert differentiable == (self.on_floats.derivative is not None), f"{self.name}: derivative"
        if self.on_ints is not None:
            assert (self.gives in (None, Type.INT)) == (self.on_ints.range is not None), f"{self.name}: range"
            assert not self.on_ints.grows or self.arity == 1, f"{self.name}: grows"

    def takes(self, kind: Type) -> bool:
        """Whether it works on arguments of this type."""
        return self._part(kind) is not None

    @property
    def parts(self) -> tuple[OnInts | OnFloats | OnBools, ...]:
        return tuple(part for part in (self.on_ints, self.on_floats, self.on_bools) if part is not None)

    def result(self, kind: Type) -> Type:
        """The type of the value, given that of the last argument."""
        return self.gives or kind

    def on(self, kind: Type) -> OnInts | OnFloats | OnBools:
        """What it does, given the type of the last argument."""
        part = self._part(kind)
        if part is None:
            raise TypeError(f"{self.name} takes no {kind.value}")
        return part

    def _part(self, kind: Type) -> OnInts | OnFloats | OnBools | None:
        return self.on_ints if kind is Type.INT else self.on_floats if kind is Type.FLOAT else self.on_bools

    @property
    def is_float_function(self) -> bool:
        """Whether it is called with one float, and has no other form."""
        return self.function is not None and self.arity == 1 and self.on_ints is None
