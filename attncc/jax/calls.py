"""Calls as XLA's programs hold them: a number, behind which stands what runs, on the CPU or on a GPU.

The number comes from what is called, so that a program in JAX's persistent cache finds its calls in another process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import jax
import numpy as np

from ..diagnostics import AttnccError, Diagnostic
from ..runtime.call.backward_arguments import BackwardArguments
from . import on_device
from .form import ArrayForm, Form, host_array
from .on_device import DeviceCall
from .xla_ffi import EXECUTE, Frame, handler

TARGET = "attncc_attention"


@dataclass(frozen=True)
class Forward:
    """out, or out and lse, of the operands of a form."""

    form: Form
    operands: tuple[ArrayForm, ...]
    with_lse: bool

    @cached_property
    def results(self) -> list[ArrayForm]:
        return self.form.bound(self.operands).results(self.operands[0], with_lse=self.with_lse)

    @property
    def names(self) -> tuple[str, ...]:
        return self.form.names

    def on_host(self, arrays: Sequence[Any]) -> list[Any]:
        """The results, of NumPy arrays."""
        result = self.form.kernel.run_unrecorded(self.form.arguments(arrays, return_lse=self.with_lse))
        return list(result) if self.with_lse else [result]

    def on_device(self, ordinal: int) -> DeviceCall:
        return on_device.forward(self.form, self.operands, self.with_lse, ordinal)


@dataclass(frozen=True)
class Backward:
    """The gradients of q, k, v and learnable arrays. The operands are those of `given`, then those of the form."""

    form: Form
    given: tuple[str, ...]  # of dout, out, lse, dlse
    operands: tuple[ArrayForm, ...]

    @property
    def results(self) -> list[ArrayForm]:
        own = dict(zip(self.form.names, self.operands[len(self.given) :], strict=True))
        return [own[name] for name in ("q", "k", "v", *self.form.learnable)]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.given, *self.form.names)

    def on_host(self, arrays: Sequence[Any]) -> list[Any]:
        """The results, of NumPy arrays."""
        count = len(self.given)
        results: dict[str, Any] = {
            "out": None,
            "lse": None,
            "dlse": None,
            **dict(zip(self.given, arrays, strict=False)),
        }
        call = self.form.arguments(arrays[count:])
        found = self.form.kernel.run_backward(
            BackwardArguments(call, deterministic=self.form.deterministic, **results), None
        )
        return [found.dq, found.dk, found.dv, *(found.inputs[name] for name in self.form.learnable)]

    def on_device(self, ordinal: int) -> DeviceCall:
        return on_device.backward(self.form, self.given, self.operands, ordinal)


class Work(Protocol):
    """`Forward` or `Backward`."""

    @property
    def form(self) -> Form: ...

    @property
    def operands(self) -> tuple[ArrayForm, ...]: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def results(self) -> list[ArrayForm]: ...

    def on_host(self, arrays: Sequence[Any]) -> list[Any]: ...

    def on_device(self, ordinal: int) -> DeviceCall: ...


class Known:
    """A call that programs may hold."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._on_devices: dict[int, DeviceCall] = {}

    def run_on_host(self, arguments: Sequence[int], results: Sequence[int]) -> None:
        """Runs the call on arrays at these addresses."""
        work = self.work
        given = zip(arguments, work.names, work.operands, strict=True)
        found = work.on_host([host_array(*operand) for operand in given])
        for address, form, array in zip(results, work.results, found, strict=True):
            np.copyto(host_array(address, "", form), array)

    def on(self, ordinal: int) -> DeviceCall:
        """What runs on a GPU; the kernels are loaded at its first call."""
        found = self._on_devices.get(ordinal)
        if found is None:
            found = self._on_devices[ordinal] = self.work.on_device(ordinal)
        return found


_known: dict[int, Known] = {}
_numbers: dict[Work, int] = {}
_lock = Lock()


def number_of(work: Work) -> int:
    """The number that stands for a call: the same for the same call, kernels made in the same order, everywhere."""
    with _lock:
        if work in _numbers:
            return _numbers[work]
        number, again = _hashed(work, 0), 0
        while number in _known:  # another kernel of the same variant, by another schedule
            again += 1
            number = _hashed(work, again)
        _numbers[work] = number
        _known[number] = Known(work)
        return number


def known(number: int) -> Known:
    """AttnccError A657 for a number that no call of this process has."""
    found = _known.get(number)
    if found is None:
        raise AttnccError(
            Diagnostic(
                "A657",
                "a compiled JAX program holds an attention call that this process has not traced",
                help="trace the function here, with jax.jit, rather than load its executable",
            )
        )
    return found


def _hashed(work: Work, again: int) -> int:
    form = work.form
    content = (
        form.variant.show_lowered(),
        form.kernel.configurations,
        form.statics,
        form.numbers,
        form.deterministic,
        work.names,
        work.operands,
        work.results,
        again,
    )
    return int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:8], "little") >> 1


def _on_host(frame: Frame) -> None:
    known(frame.call).run_on_host(frame.arguments, frame.results)


def _on_device(frame: Frame) -> None:
    call = known(frame.call).on(frame.ordinal)
    if frame.stage == EXECUTE:
        call.start(frame.stream, frame.arguments, frame.results)


_HANDLERS = handler(_on_host), handler(_on_device)  # alive as long as the process


def register() -> None:
    """Tells XLA what runs on CPUs and on NVIDIA GPUs, where kernels are loaded before a program is recorded."""
    on_host, on_gpu = map(jax.ffi.pycapsule, _HANDLERS)
    jax.ffi.register_ffi_target(TARGET, on_host, platform="cpu")
    jax.ffi.register_ffi_target(TARGET, {"initialize": on_gpu, "execute": on_gpu}, platform="CUDA")
