"""Backward calls with arrays on a GPU: each form is checked once, then only pointers and numbers are written."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...problem import bind
from ...problem.call_arguments import Arguments, Given
from ...problem.gradients import Gradients, Results, bind_results
from ...problem.refusal import mixed
from ..frameworks.arrays import framework_of
from ..frameworks.framework import Array, DeviceFramework, Observer
from ..store.loaded_kernels import KernelLoader
from ..store.store import KernelStore
from .backward_arguments import BackwardArguments
from .backward_form import BackwardForm, BackwardPlaces
from .backward_prepare import BackwardPrepared, prepare_backward
from .configurations import configuration_of
from .narrowed import copies
from .operands import SEED, Key, Reader, Result, Roles, call_of, check_host_numbers, misaligned
from .written_reader import Read

_MOST_PREPARED = 1024  # forms of calls that are kept; at one more all are dropped, to be made again as they come
_SEED_MASK = 2**64 - 1
_ALIGNMENT_MASK = 15


class _Known(NamedTuple):
    """A form of call that came twice in a row, and how its calls are read."""

    read: Read
    deterministic: bool
    reader: Reader
    roles: Roles
    prepared: BackwardPrepared
    framework: DeviceFramework
    ordinal: int


class BackwardLauncher:
    """Runs the backward calls of one kernel on GPUs. Threads may share it."""

    def __init__(self, store: KernelStore, loader: KernelLoader | None = None) -> None:
        self._store = store
        self._places = BackwardPlaces(len(store.variant.inputs))
        self._signatures = {item: item.signature(store.variant) for item in store.configurations}
        self._loader = loader or KernelLoader(store, backward=True)
        self._readers: dict[DeviceFramework, tuple[Reader, Observer]] = {}
        self._prepared: dict[Any, BackwardPrepared] = {}
        self._last: Key | None = None
        self._known: _Known | None = None

    def again(  # noqa: PLR0917  (as `BackwardArguments` has them: to make one would take longer than to read it)
        self,
        call: Given,
        dout: Array,
        out: Array | None,
        lse: Array | None,
        dlse: Array | None,
        deterministic: bool,
        dq: Array | None = None,
    ) -> list[Array] | None:
        """As `run`, for a call of the form that is known; None for any other. They follow each other: dq, dk, dv, then
        those of inputs."""
        known = self._known
        if known is None or deterministic is not known.deterministic:
            return None
        values = known.read(call, out, lse, dout, dlse, dq)
        if values is None:
            return None
        self._last = None
        if known.roles.take_numbers is not None and known.roles.take_numbers(values) != known.roles.checked:
            known.reader.check(known.roles, values)
        prepared = known.prepared
        copied = None
        if prepared.packs or prepared.narrowed:
            copied = BackwardArguments(Arguments(*call), dout, out, lse, dlse, deterministic)
        return _launch(known.framework, known.ordinal, copied, values, prepared, dq)

    def run(self, framework: DeviceFramework, ordinal: int, given: BackwardArguments) -> Gradients:
        """The gradients, queued on the framework's current stream. AttnccError before any launch."""
        if framework not in self._readers:
            self._readers[framework] = Reader(framework, self._store.variant), framework.observer()
        reader, observer = self._readers[framework]
        values, key, roles = reader.read(tuple(given.call))
        results = {"dout": given.dout, **given.results}  # no gradient without this one
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
            beside = [Result(place, name, getattr(given, name)) for name, place in self._places.results.items()]
            read = reader.written(given.call, key[0], roles, new=True, results=beside)
            if read is not None:
                self._known = _Known(read, given.deterministic, reader, roles, prepared, framework, ordinal)
        self._last = key
        values += (None, None, None)  # dout, dlse, dq
        for name, place in self._places.results.items():
            values[place] = by_name.get(name)
        dq, dk, dv, *inputs = _launch(framework, ordinal, given, values, prepared, given.dq)
        return Gradients(dq, dk, dv, dict(zip(prepared.learnable, inputs, strict=True)))

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
        kernels = self._loader.serving_backward(configuration, ordinal, problem, ordered=form.deterministic)
        return prepare_backward(framework, kernels, form, problem, self._places)


def _launch(  # noqa: PLR0917
    framework: DeviceFramework,
    ordinal: int,
    copied: BackwardArguments | None,
    values: list[Any],
    prepared: BackwardPrepared,
    dq: Array | None,
) -> list[Array]:
    """dq, dk, dv, and the gradients of inputs in their order. `copied` is the call, where some of it is to be."""
    temporary = [] if copied is None else _copies(framework, copied, values, prepared)
    made = [dq] if prepared.writes_dq else []
    made += [new() for new in prepared.new_outputs[len(made) :]]
    sums = [new() for new in prepared.new_sums]
    values[-1] = framework.pointer(made[0])
    values += map(framework.pointer, [*made[1:], *sums])
    base = 0
    if prepared.new_workspace is not None:
        temporary.append(prepared.new_workspace())
        base = framework.pointer(temporary[-1])
    if values[SEED] is not None:
        values[SEED] &= _SEED_MASK
    stream = framework.current_stream(ordinal)
    prepared.launches.start(stream, values, base)
    if dq is not None and made[0] is not dq:
        framework.assign(dq, made[0])
        temporary.append(made[0])
        made[0] = dq
    if prepared.ends:
        made += _ended(framework, made, sums, temporary, prepared)
    if temporary:
        framework.release(temporary, ordinal)
    return made


def _copies(
    framework: DeviceFramework, given: BackwardArguments, values: list[Any], prepared: BackwardPrepared
) -> list[Array]:
    """The copies that a call needs first; their pointers go to `values`."""
    made: list[Array] = []
    named = {"q": given.call.q, "k": given.call.k, "v": given.call.v, **given.results}
    for name, operand, columns in prepared.packs:
        made.append(framework.packed(named[name], columns))
        values[operand] = framework.pointer(made[-1])
    return [*made, *copies(framework, given.call, prepared.narrowed, values)]


def _ended(
    framework: DeviceFramework,
    made: list[Array],
    sums: list[Array],
    temporary: list[Array],
    prepared: BackwardPrepared,
) -> list[Array]:
    """The gradients of inputs, in their type; dq, dk and dv of what all sequences share become sums over these."""
    inputs = []
    for new, total in zip(prepared.new_inputs, sums, strict=True):
        inputs.append(total if new is None else new())
        if new is not None:
            framework.assign(inputs[-1], total)
            temporary.append(total)
    for number, new in enumerate(prepared.new_totals):
        if new is not None:
            temporary.append(made[number])
            made[number] = new()
            framework.add_up(made[number], temporary[-1])
    return inputs
