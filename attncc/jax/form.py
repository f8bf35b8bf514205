"""A call as JAX traces it: what is static, and which operands are arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..ir import Expr, Input, Load, Search, Symbol, Variant
from ..problem import ArrayFacts, Call, Problem, bind, check_values
from ..problem.call_arguments import ARGUMENTS, NUMBERS, READ, SCALARS, Arguments
from ..problem.facts import numpy_dtype, out_dtype
from ..problem.strides import contiguous
from ..runtime.call.configurations import configuration_of
from ..runtime.kernel import Kernel
from ..runtime.store.store import Configuration

_SEED_WORDS = (2,)  # a seed that is an array comes as its low and high 32 bits, since JAX mostly has no int64


@dataclass(frozen=True)
class ArrayForm:
    """The shape and the element type (NumPy's name) of a contiguous array."""

    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, array: Any) -> ArrayForm:
        return cls(tuple(array.shape), str(array.dtype))

    @property
    def facts(self) -> ArrayFacts:
        return ArrayFacts(self.shape, contiguous(self.shape), self.dtype)


@dataclass(frozen=True)
class Form:
    """What JAX keeps of a call besides its arrays. Operands are q, k, v, then the arrays named in `arrays`."""

    kernel: Kernel
    statics: tuple[tuple[str, Any], ...]  # arguments of every variant that are no arrays, by name
    numbers: tuple[tuple[str, int | float | bool], ...]  # scalar inputs that came as numbers
    arrays: tuple[str, ...]
    return_lse: bool
    deterministic: bool  # the backward pass

    @property
    def variant(self) -> Variant:
        return self.kernel.variant

    @property
    def is_softmax(self) -> bool:
        return self.variant.normalize == "softmax"

    @property
    def names(self) -> tuple[str, ...]:
        """Of all operands."""
        return ("q", "k", "v", *self.arrays)

    @property
    def learnable(self) -> tuple[str, ...]:
        """The arrays that have a gradient."""
        inputs = self.inputs
        return tuple(name for name in self.arrays if name in inputs and inputs[name].learnable)

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        return {item.name: item for item in self.variant.inputs}

    def arguments(self, operands: Sequence[Any], *, return_lse: bool = False) -> Arguments:
        """The call with these for its operands: arrays of some sort, or their facts."""
        q, k, v, *rest = operands
        named = dict(zip(self.arrays, rest, strict=True))
        own = {name: named.pop(name) for name in READ if name in named}
        inputs = {**dict(self.numbers), **named}
        return Arguments(q, k, v, inputs, **own, **dict(self.statics), return_lse=return_lse)

    def facts(self, operands: Sequence[ArrayForm], *, return_lse: bool = False) -> Call:
        """The facts of the call, as `bind` takes them."""
        seen = [_facts(name, form) for name, form in zip(self.names, operands, strict=True)]
        return self.arguments(seen, return_lse=return_lse).facts(lambda _, facts: facts, _scalar)

    def bound(self, operands: Sequence[ArrayForm]) -> Bound:
        """The checked call. AttnccError A6xx for the first argument that doesn't suit."""
        call = self.facts(operands, return_lse=self.return_lse)
        configuration = configuration_of(self.variant.name, self.kernel.configurations, call.q, call.v)
        signature = configuration.signature(self.variant)
        statics = dict(self.statics)
        values: dict[str, Any] = {name: statics.get(name) for name in NUMBERS}
        values |= {name: getattr(call, name) for name in SCALARS}
        values |= {name: statics[name] for name in SCALARS if name in statics}
        problem = bind(signature, call)
        check_values(signature, dict(self.numbers), **values)
        return Bound(configuration, problem)


@dataclass(frozen=True)
class Bound:
    """A checked call: the configuration that serves it, and its sizes."""

    configuration: Configuration
    problem: Problem

    def results(self, q: ArrayForm, *, with_lse: bool) -> list[ArrayForm]:
        """out, and lse."""
        row = "float64" if self.configuration.dtype == "fp64" else "float32"
        lse = [ArrayForm(self.problem.lse_shape, row)] if with_lse else []
        return [ArrayForm(self.problem.out_shape, out_dtype(q.dtype)), *lse]


def is_seed(name: str, form: ArrayForm) -> bool:
    """Whether an operand is a seed in two words."""
    return is_wide(name) and form == ArrayForm(_SEED_WORDS, "uint32")


def is_wide(name: str) -> bool:
    """Whether it is an argument of 64 bits, as seeds are."""
    return name in SCALARS and ARGUMENTS[name].dtypes == ("int64",)


def reads_sequence(variant: Variant) -> bool:
    """Whether a result depends on a sequence's number in the batch, beyond the entries of inputs that belong to it."""
    roots = [item.condition if hasattr(item, "condition") else item.value for item in variant.statements]
    roots += [root for root in (variant.scale, variant.dropout) if root is not None]
    axes = {item.name: [axis.tag for axis in item.axes] for item in variant.inputs}
    return variant.dropout is not None or any(_reads(root, axes) for root in roots)


def _reads(node: Expr, axes: Mapping[str, Sequence[str | None]]) -> bool:
    if isinstance(node, Symbol):
        return node.name == "b"
    children: Sequence[Expr] = node.children
    if isinstance(node, Load | Search):
        own = zip(node.indices, axes[node.input], strict=False)
        indices = [index for index, tag in own if tag != "batch"]
        children = [*indices, *node.children[len(node.indices) :]]
    return any(_reads(child, axes) for child in children)


def _facts(name: str, form: ArrayForm) -> ArrayFacts:
    return ArrayFacts((), (), "int64") if is_seed(name, form) else form.facts


def _scalar(_: str, value: Any) -> ArrayFacts | type:
    return value if isinstance(value, ArrayFacts) else type(value)


def host_array(address: int, name: str, form: ArrayForm) -> Any:
    """NumPy's view of an operand or a result in the CPU's memory."""
    import ctypes

    dtype = numpy_dtype(form.dtype)
    count = int(np.prod(form.shape, dtype=np.int64))
    if not count:
        return np.empty(form.shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    array = np.frombuffer(memoryview(memory), dtype).reshape(form.shape)
    return array.view(np.int64).reshape(()) if is_seed(name, form) else array
