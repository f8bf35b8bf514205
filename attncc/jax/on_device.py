"""Calls on a GPU: what they need of XLA, decided when a program is traced, and their launches.

XLA allocates everything: beside the results of a call its program has buffers for the workspace and the counter of
blocks, so that all of it may be recorded in CUDA graphs. Rows are filled up with zeros in the program, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

import jax.numpy as jnp

from ..problem.gradients import Results
from ..runtime.call.backward_form import BackwardForm, BackwardPlaces
from ..runtime.call.backward_prepare import BackwardPrepared, prepare_backward
from ..runtime.call.operands import COUNTER, INPUTS, LSE, OPERANDS, OUT
from ..runtime.call.prepare import CallForm, Prepared, prepare
from ..runtime.frameworks.framework import DeviceFramework
from ..runtime.kernel import Kernel
from ..runtime.store.loaded_kernels import KernelLoader, LoadedKernels
from .form import ArrayForm, Bound, Form, is_wide

_ALIGNMENT_MASK = 15
_SEED_MASK = 2**64 - 1


class DeviceCall:
    """One call on one GPU."""

    def __init__(self, columns: Mapping[int, int], buffers: Sequence[ArrayForm]) -> None:
        self.columns = columns  # of operands, by place, whose rows are to be filled up to so many
        self.buffers = tuple(buffers)  # what XLA allocates: the results, then temporary memory

    def finished(self, buffers: Sequence[Any]) -> list[Any]:
        """The call's results, of the buffers once they are written."""
        raise NotImplementedError

    def start(self, stream: int, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Queues the launches on a stream; operands and buffers come by their addresses."""
        raise NotImplementedError


class _ForwardCall(DeviceCall):
    def __init__(self, form: Form, prepared: Prepared, shape: tuple[int, ...]) -> None:
        numbers = {number: place for place, number in enumerate(_operand_numbers(form))}
        new = (prepared.new_out, prepared.new_lse, prepared.new_workspace, prepared.new_counter)
        super().__init__(
            {numbers[operand]: columns for operand, columns in prepared.packs}, [make() for make in new if make]
        )
        self._prepared, self._shape = prepared, shape
        self._numbers, self._values = list(numbers), _values(form)
        self._lse, self._workspace = prepared.new_lse is not None, prepared.new_workspace is not None

    def finished(self, buffers: Sequence[Any]) -> list[Any]:
        return [buffers[0][..., : self._shape[-1]], *buffers[1 : 1 + self._lse]]

    def start(self, stream: int, arguments: Sequence[int], results: Sequence[int]) -> None:
        values, rest = list(self._values), iter(results)
        for number, pointer in zip(self._numbers, arguments, strict=True):
            values[number] = pointer
        values[OUT] = next(rest)
        if self._lse:
            values[LSE] = next(rest)
        workspace = next(rest) if self._workspace else 0
        prepared = self._prepared
        counters = prepared.counters
        if counters is not None:
            values[COUNTER] = counters.of(stream)
            if values[COUNTER] is None:  # recorded in a graph
                values[COUNTER] = next(rest)
                prepared.kernels.driver.zero(prepared.kernels.device.context, values[COUNTER], stream, counters.words)
        _check_aligned(arguments)
        prepared.launches.start(stream, values, workspace)


class _BackwardCall(DeviceCall):
    def __init__(
        self, form: Form, given: Sequence[str], own: Mapping[str, ArrayForm], prepared: BackwardPrepared
    ) -> None:
        places = BackwardPlaces(len(form.variant.inputs))
        results = {"dout": places.dout, "out": OUT, "lse": LSE, "dlse": places.dlse}
        numbers = [*(results[name] for name in given), *_operand_numbers(form)]
        made = [*prepared.new_outputs, *prepared.new_sums]
        workspace = [prepared.new_workspace] if prepared.new_workspace is not None else []
        columns = {numbers.index(operand): columns for _, operand, columns in prepared.packs}
        super().__init__(columns, [make() for make in (*made, *workspace)])
        self._form, self._prepared, self._own, self._numbers = form, prepared, own, numbers
        self._values = [*_values(form), None, None]  # dout and dlse
        self._made = len(made)

    def finished(self, buffers: Sequence[Any]) -> list[Any]:
        gradients = []
        for name, whole in zip(("q", "k", "v"), buffers, strict=False):
            operand = self._own[name]
            gradient = whole[..., : operand.shape[-1]]
            if gradient.shape != operand.shape:  # all sequences share it
                gradient = gradient.astype(jnp.float32).sum(0, keepdims=True).astype(whole.dtype)
            gradients.append(gradient)
        sums = dict(zip(self._prepared.learnable, buffers[3 : self._made], strict=True))
        return gradients + [sums[name].astype(self._own[name].dtype) for name in self._form.learnable]

    def start(self, stream: int, arguments: Sequence[int], results: Sequence[int]) -> None:
        values = list(self._values)
        for number, pointer in zip(self._numbers, arguments, strict=True):
            values[number] = pointer
        values += results[: self._made]
        _check_aligned(arguments)
        self._prepared.launches.start(stream, values, results[-1] if len(results) > self._made else 0)


def forward(form: Form, operands: Sequence[ArrayForm], with_lse: bool, ordinal: int) -> DeviceCall:
    """A forward call on a GPU. AttnccError A5xx where no kernel serves it, A653."""
    bound = form.bound(operands)
    call = form.facts(operands, return_lse=with_lse)
    scale_given = dict(form.statics).get("scale") is not None
    kernels = _loader(form.kernel, False).serving(bound.configuration, ordinal, bound.problem)
    prepared = prepare(_buffers(), kernels, CallForm(call, (), scale_given), bound.problem)
    return _ForwardCall(form, prepared, bound.problem.out_shape)


def backward(form: Form, given: Sequence[str], operands: Sequence[ArrayForm], ordinal: int) -> DeviceCall:
    """A backward call on a GPU. AttnccError A5xx where no kernel serves it, A653."""
    count = len(given)
    own = dict(zip(form.names, operands[count:], strict=True))
    bound: Bound = form.bound(operands[count:])
    results = Results(**{name: array.facts for name, array in zip(given, operands, strict=False)})
    scale_given = dict(form.statics).get("scale") is not None
    call = BackwardForm(form.facts(operands[count:]), results, (), scale_given, form.deterministic)
    kernels: LoadedKernels = _loader(form.kernel, True).serving_backward(
        bound.configuration, ordinal, bound.problem, ordered=form.deterministic
    )
    places = BackwardPlaces(len(form.variant.inputs))
    return _BackwardCall(form, given, own, prepare_backward(_buffers(), kernels, call, bound.problem, places))


@cache
def _loader(kernel: Kernel, of_backward: bool) -> KernelLoader:
    return KernelLoader(kernel.store, backward=of_backward)


class _Whole(ArrayForm):
    """A buffer: where a caller of kernels would see the first columns of its rows, it stays as it is."""

    def __getitem__(self, _: Any) -> _Whole:
        return self


class _XlaBuffers:
    """See `framework.DeviceFramework`, of which `prepare` asks for allocators alone. What they give is what XLA is to
    allocate: arrays come contiguous, so results are, too."""

    def allocator(
        self, shape: tuple[int, ...], dtype: str, ordinal: int, order: tuple[int, ...] | None = None
    ) -> Callable[[], Any]:
        return lambda: _Whole(tuple(shape), dtype)


def _buffers() -> DeviceFramework:
    return cast(DeviceFramework, _XlaBuffers())


def _operand_numbers(form: Form) -> list[int]:
    """The numbers of the operands of a form, as launches count them."""
    inputs = {item.name: INPUTS + number for number, item in enumerate(form.variant.inputs)}
    return [inputs[name] if name in inputs else OPERANDS[name] for name in form.names]


def _values(form: Form) -> list[Any]:
    """What launches take, by operand: the numbers of the call, None for all else."""
    values: list[Any] = [None] * (INPUTS + len(form.variant.inputs))
    for name, value in form.statics:
        if name in OPERANDS and value is not None:
            values[OPERANDS[name]] = value & _SEED_MASK if is_wide(name) else value
    places = {item.name: INPUTS + number for number, item in enumerate(form.variant.inputs)}
    for name, value in form.numbers:
        values[places[name]] = value
    return values


def _check_aligned(arguments: Sequence[int]) -> None:
    """Launches were prepared for arrays at multiples of 16 bytes. XLA allocates so."""
    q, k, v = arguments[:3]
    if (q | k | v) & _ALIGNMENT_MASK:
        raise RuntimeError("a buffer of XLA isn't aligned to 16 bytes")
