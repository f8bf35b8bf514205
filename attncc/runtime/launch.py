"""Calls with arrays on a GPU: each form of call is checked once, then only pointers and numbers are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..problem import Signature, bind, check_values
from .arrays import Array, DeviceFramework
from .configurations import configuration_of
from .driver import driver
from .family import Family
from .operands import LSE, OUT, SEED, Arguments, Operands, call_of, check_host_numbers, gather, is_number
from .overlap import check_spans
from .prepare import CallForm, Prepared, prepare
from .store import Configuration, KernelStore

_MOST_PREPARED = 4096  # forms of calls that are kept; at one more all are dropped, to be made again as they come
_SEED_MASK = 2**64 - 1
_WORD_BYTES = 4  # the workspace is allocated as fp32


class Launcher:
    """Runs the calls of one kernel on GPUs. Threads may share it."""

    def __init__(self, store: KernelStore) -> None:
        self._store = store
        self._names = tuple(item.name for item in store.variant.inputs)
        self._signatures = {item: Signature(store.variant, *item) for item in store.configurations}
        self._families: dict[tuple[Configuration, int], Family] = {}
        self._prepared: dict[Any, Prepared] = {}
        self._checked: Sequence[Any] | None = None  # the numbers that were found good last

    def run(self, framework: DeviceFramework, ordinal: int, call: Arguments) -> Array | tuple[Array, Array]:
        """out, or (out, lse), queued on the framework's current stream. AttnccError before any launch."""
        operands = gather(framework, self._names, call)
        try:
            prepared = self._prepared.get(operands.key)
        except TypeError:  # what can't be hashed, such as a list for `layout`, `bind` refuses
            prepared = None
        if prepared is None:
            prepared = self._prepare(framework, ordinal, call, operands)
        if operands.numbers != self._checked:
            self._check_numbers(operands)
        if call.out is not None:
            check_spans(prepared.spans, operands.values)
        return _launch(framework, ordinal, call, operands.values, prepared)

    def load(self, ordinal: int) -> None:
        """Loads all kernels on a GPU now, as a first call would."""
        for configuration in self._store.configurations:
            self._family(configuration, ordinal)

    def _prepare(self, framework: DeviceFramework, ordinal: int, call: Arguments, operands: Operands) -> Prepared:
        facts = call_of(framework, call)
        configuration = configuration_of(self._store.variant.name, self._store.configurations, facts.q, facts.v)
        check_host_numbers(self._signatures[configuration], call)
        problem = bind(self._signatures[configuration], facts)
        form = CallForm(facts, operands.misaligned, call.scale is not None)
        prepared = prepare(self._family(configuration, ordinal), form, problem)
        if len(self._prepared) >= _MOST_PREPARED:
            self._prepared.clear()
        self._prepared[operands.key] = prepared
        return prepared

    def _family(self, configuration: Configuration, ordinal: int) -> Family:
        key = (configuration, ordinal)
        if key not in self._families:
            gpu = driver()
            self._families[key] = Family(self._store, configuration, gpu, gpu.device(ordinal))
        return self._families[key]

    def _check_numbers(self, operands: Operands) -> None:
        _, _, seed, scale, *inputs = operands.numbers
        scalars = {name: number for name, number in zip(self._names, inputs, strict=True) if is_number(number)}
        check_values(Signature(self._store.variant), scalars, seed=seed, scale=scale)
        self._checked = operands.numbers


def _launch(
    framework: DeviceFramework, ordinal: int, call: Arguments, values: list[Any], prepared: Prepared
) -> Array | tuple[Array, Array]:
    out, lse = call.out, None
    temporary: list[Array] = []
    if out is None or prepared.stages_out:
        out = framework.empty(prepared.out_shape, prepared.out_dtype, ordinal)
        values[OUT] = framework.pointer(out)
    if call.return_lse:
        lse = framework.empty(prepared.lse_shape, "float32", ordinal)
        values[LSE] = framework.pointer(lse)
    for operand in prepared.packs:
        packed = framework.packed(call[operand])
        values[operand] = framework.pointer(packed)
        temporary.append(packed)
    base = 0
    if prepared.workspace_bytes:
        workspace = framework.empty((prepared.workspace_bytes // _WORD_BYTES,), "float32", ordinal)
        base = framework.pointer(workspace)
        temporary.append(workspace)
    if values[SEED] is not None:
        values[SEED] &= _SEED_MASK
    stream = framework.current_stream(ordinal)
    for step in prepared.steps:
        step.launch(prepared.family.driver, stream, values, base)
    if prepared.stages_out:
        framework.assign(call.out, out)
        temporary.append(out)
        out = call.out
    if temporary:
        framework.release(temporary, ordinal)
    return out if lse is None else (out, lse)
