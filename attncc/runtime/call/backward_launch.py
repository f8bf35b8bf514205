"""Backward calls with arrays on a GPU: each form is checked once, then only pointers and numbers are written."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from ...problem import bind
from ...problem.gradients import Gradients, Results, bind_results
from ...problem.refusal import mixed
from ..frameworks.arrays import framework_of
from ..frameworks.framework import Array, DeviceFramework, Guard, Observer
from ..store.loaded_kernels import KernelLoader
from ..store.store import KernelStore
from .backward_arguments import BackwardArguments
from .backward_form import BackwardForm, BackwardPlaces
from .backward_prepare import BackwardPrepared, prepare_backward
from .configurations import configuration_of
from .narrowed import copies
from .operands import SEED, Key, Reader, Roles, call_of, check_host_numbers, misaligned
from .written_reader import Read

_MOST_PREPARED = 1024  # forms of calls that are kept; at one more all are dropped, to be made again as they come
_SEED_MASK = 2**64 - 1
_ALIGNMENT_MASK = 15


class _Known(NamedTuple):
    """A form of call that came twice in a row, and how its calls are read."""

    read: Read
    alike: Guard  # of dout, and of out, lse and dlse where they are given
    take: Callable[[BackwardArguments], tuple[Array, ...]]  # these
    places: tuple[int, ...]  # their operands
    absent: tuple[bool, ...]  # whether out, lse and dlse aren't given
    deterministic: bool
    reader: Reader
    roles: Roles
    prepared: BackwardPrepared
    framework: DeviceFramework
    ordinal: int


class BackwardLauncher:
    """Runs the backward calls of one kernel on GPUs. Threads may share it."""

    def __init__(self, store: KernelStore) -> None:
        self._store = store
        self._places = BackwardPlaces(len(store.variant.inputs))
        self._signatures = {item: item.signature(store.variant) for item in store.configurations}
        self._loader = KernelLoader(store, backward=True)
        self._readers: dict[DeviceFramework, tuple[Reader, Observer]] = {}
        self._prepared: dict[Any, BackwardPrepared] = {}
        self._last: Key | None = None
        self._known: _Known | None = None

    def again(self, given: BackwardArguments) -> Gradients | None:
        """As `run`, for a call of the form that is known; None for any other."""
        known = self._known
        if known is None or given.deterministic is not known.deterministic:
            return None
        values = known.read(given.call)
        if values is None:
            return None
        arrays = known.take(given)
        if (given.out is None, given.lse is None, given.dlse is None) != known.absent or not known.alike(*arrays):
            return None
        values += (None, None)
        unaligned = 0
        for place, array in zip(known.places, arrays, strict=True):
            values[place] = pointer = known.framework.pointer(array)
            unaligned |= pointer
        if unaligned & _ALIGNMENT_MASK:
            return None
        self._last = None
        if known.roles.take_numbers is not None and known.roles.take_numbers(values) != known.roles.checked:
            known.reader.check(known.roles, values)
        return _launch(known.framework, known.ordinal, given, values, known.prepared)

    def run(self, framework: DeviceFramework, ordinal: int, given: BackwardArguments) -> Gradients:
        """The gradients, queued on the framework's current stream. AttnccError before any launch."""
        if framework not in self._readers:
            self._readers[framework] = Reader(framework, self._store.variant), framework.observer()
        reader, observer = self._readers[framework]
        values, key, roles = reader.read(tuple(given.call))
        results = given.results
        for name, array in results.items():
            if framework_of(array, name) is not framework:
                raise mixed(name, type(array))
        pointers, forms = observer.observe(list(results.values()))
        by_name = dict(zip(results, pointers, strict=True))
        unaligned = tuple(name for name, pointer in by_name.items() if pointer & _ALIGNMENT_MASK)
        key = (key, forms, tuple(results), unaligned, given.deterministic)
        prepared = self._find(key)
        if prepared is None:
            prepared = self._prepare(framework, ordinal, given, (*misaligned(values), *unaligned))
            reader.check(roles, values)
            self._prepared[key] = prepared
        elif roles.take_numbers is not None and roles.take_numbers(values) != roles.checked:
            reader.check(roles, values)
        if not unaligned and key == self._last:
            read, alike = reader.written(given.call, key[0], roles), observer.guard(list(results.values()))
            if read is not None and alike is not None:
                self._known = _Known(
                    read,
                    alike,
                    attrgetter(*results) if len(results) > 1 else lambda given: (given.dout,),
                    tuple(self._places.results[name] for name in results),
                    (given.out is None, given.lse is None, given.dlse is None),
                    given.deterministic,
                    reader,
                    roles,
                    prepared,
                    framework,
                    ordinal,
                )
        self._last = key
        values += (None, None)
        for name, place in self._places.results.items():
            values[place] = by_name.get(name)
        return _launch(framework, ordinal, given, values, prepared)

    def load(self, ordinal: int) -> None:
        """Loads all kernels of the backward pass on a GPU now, as a first call would."""
        self._loader.load(ordinal)

    def _find(self, key: Any) -> BackwardPrepared | None:
        """None also for a key that can't be hashed, such as one with a list for `layout`, which `bind` refuses."""
        try:
            return self._prepared.get(key)
        except TypeError:
            return None

    def _prepare(
        self, framework: DeviceFramework, ordinal: int, given: BackwardArguments, unaligned: tuple[str, ...]
    ) -> BackwardPrepared:
        facts = call_of(framework, given.call)
        configuration = configuration_of(self._store.variant.name, self._store.configurations, facts.q, facts.v)
        signature = self._signatures[configuration]
        check_host_numbers(signature, given.call)
        problem = bind(signature, facts)
        results = Results(**{name: framework.facts(array) for name, array in given.results.items()})
        bind_results(signature, facts, problem, results)
        form = BackwardForm(facts, results, unaligned, given.call.scale is not None, given.deterministic)
        if len(self._prepared) >= _MOST_PREPARED:
            self._prepared.clear()
        return prepare_backward(framework, self._loader.of(configuration, ordinal), form, problem, self._places)


def _launch(
    framework: DeviceFramework, ordinal: int, given: BackwardArguments, values: list[Any], prepared: BackwardPrepared
) -> Gradients:
    temporary: list[Array] = []
    if prepared.packs:
        named = {"q": given.call.q, "k": given.call.k, "v": given.call.v, **given.results}
        for name, operand, columns in prepared.packs:
            temporary.append(framework.packed(named[name], columns))
            values[operand] = framework.pointer(temporary[-1])
    if prepared.narrowed:
        temporary += copies(framework, given.call, prepared.narrowed, values)
    made = [new() for new in prepared.new_outputs]
    sums = [new() for new in prepared.new_sums]
    values += map(framework.pointer, [*made, *sums])
    base = 0
    if prepared.new_workspace is not None:
        temporary.append(prepared.new_workspace())
        base = framework.pointer(temporary[-1])
    if values[SEED] is not None:
        values[SEED] &= _SEED_MASK
    stream = framework.current_stream(ordinal)
    prepared.launches.start(stream, values, base)
    inputs = {}
    for name, new, total in zip(prepared.learnable, prepared.new_inputs, sums, strict=True):
        inputs[name] = total if new is None else new()
        if new is not None:
            framework.assign(inputs[name], total)
            temporary.append(total)
    for number, new in enumerate(prepared.new_totals):
        if new is not None:
            temporary.append(made[number])
            made[number] = new()
            framework.add_up(made[number], temporary[-1])
    if temporary:
        framework.release(temporary, ordinal)
    dq, dk, dv = made
    return Gradients(dq, dk, dv, inputs)
