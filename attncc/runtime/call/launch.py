"""Calls with arrays on a GPU: each form of call is checked once, then only pointers and numbers are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from ...diagnostics import AttnccError
from ...problem import Call, Problem, bind
from ...problem.call_arguments import Arguments, Given
from ...problem.quantized import kv_dtype
from ...problem.swapped_axes import warn_of_swapped_axes
from ..cuda.counters import Counters
from ..cuda.driver import LEGACY_STREAM
from ..frameworks.framework import Array, DeviceFramework
from ..store.loaded_kernels import KernelLoader
from ..store.store import Configuration, KernelStore
from .configurations import configuration_of
from .narrowed import copies
from .operands import (
    COUNTER,
    LSE,
    OUT,
    PREFIX_Q,
    SEED,
    Key,
    Q,
    Reader,
    Roles,
    call_of,
    check_host_numbers,
    misaligned,
)
from .overlap import check_spans
from .prepare import CallForm, Prepared, prepare
from .written_reader import Read

_MOST_PREPARED = 4096  # forms of calls that are kept; at one more all are dropped, to be made again as they come
_SEED_MASK = 2**64 - 1
_NO_CALL = None, None
_RECORDED = "recorded"  # before keys of calls that torch records, where what runs them is kept
_OUT = Arguments._fields.index("out")


# Launches a call that was read: the call, and its pointers and numbers by operand.
Run = Callable[[Given, list[Any]], Any]


class Recorder(Protocol):
    """What takes the calls that torch is to record."""

    def record(self, call: Arguments) -> Any:
        """The results of a call, with their history."""

    def recorded_form(self, call: Arguments, prepare: Callable[[Arguments], Run]) -> Run | None:
        """What records calls of the form that this one has, which was recorded. None where more than its form decides
        how. `prepare` gives what launches such calls with the results that the backward pass needs."""


class _Known(NamedTuple):
    """A form of call that came twice in a row without a known one between, and how its calls are read and run."""

    read: Read
    run: Run


class Launcher:
    """Runs the calls of one kernel on GPUs. Threads may share it. `recorder` takes those that torch is to record."""

    def __init__(self, store: KernelStore, recorder: Recorder, loader: KernelLoader) -> None:
        self._store = store
        self._recorder = recorder
        self._signatures = {item: item.signature(store.variant) for item in store.configurations}
        self._loader = loader
        self._readers: dict[DeviceFramework, Reader] = {}
        self._prepared: dict[Any, Prepared] = {}
        self._last: tuple[Any, Prepared | None] = _NO_CALL
        self._last_recorded: Key | None = None
        self._known: _Known | None = None
        self._tried: Prepared | None = None  # of the form that was to be known last
        self._tried_recorded: Key | None = None  # of recorded calls, that form's key

    def again(self, given: Given) -> Array | tuple[Array, Array] | None:
        """As `run`, for a call of the form that is known; None for any other. Most calls are read here alone."""
        if self._known is None:
            return None
        read, run = self._known
        values = read(given)
        if values is None:
            return None
        self._last, self._last_recorded = _NO_CALL, None
        return run(given, values)

    def run(self, framework: DeviceFramework, ordinal: int, given: Given) -> Array | tuple[Array, Array]:
        """out, or (out, lse), queued on the framework's current stream. AttnccError before any launch."""
        reader = self._readers.get(framework)
        if reader is None:
            reader = self._readers[framework] = Reader(framework, self._store.variant)
        try:
            values, key, roles = reader.read(given)
        except AttnccError:  # torch.func.grad's tensors have no pointers, and gradients
            call = Arguments(*given)
            if self._is_recorded(framework, call):
                return self._recorder.record(call)
            raise
        _, before = self._last
        prepared = self._find(key)
        if prepared is None:
            call = Arguments(*given)
            if self._is_recorded(framework, call):
                result = self._recorder.record(call)
                self._last = _NO_CALL  # those that it made itself don't come in a row with others
                self._know_recorded(framework, ordinal, call, values, key, reader, roles)
                return result
            prepared = self._prepare(framework, ordinal, call, values)
            reader.check(roles, values)
            self._prepared[key] = prepared
        elif prepared is before and prepared is not self._tried:
            self._know(given, key, reader, roles, prepared)
        return _checked(reader, roles, prepared, given, values)

    def judge(self, framework: DeviceFramework, call: Arguments) -> None:
        """AttnccError for what is wrong with a call. Nothing is launched, or kept."""
        reader = Reader(framework, self._store.variant)
        values, _, roles = reader.read(call)
        self._bound(framework, call)
        reader.check(roles, values)

    def _is_recorded(self, framework: DeviceFramework, call: Arguments) -> bool:
        return framework.records(self._store.variant, self._store.configurations, call)

    def check_backward(self, configuration: Configuration, ordinal: int) -> None:
        """AttnccError A520 if a package has no backward pass for this GPU."""
        self._loader.check_backward(configuration, ordinal)

    def load(self, ordinal: int) -> None:
        """Loads all kernels on a GPU now, as a first call would."""
        self._loader.load(ordinal)

    def _find(self, key: Any) -> Prepared | None:
        """What was prepared for calls of this form; None if nothing was, or if the key holds what can't be compared or
        hashed, such as a list for `layout`, which `bind` refuses."""
        last, prepared = self._last
        try:
            if key == last:
                return prepared
            prepared = self._prepared.get(key)
        except (TypeError, ValueError, RuntimeError):
            return None
        if prepared is not None:
            self._last = key, prepared
        return prepared

    def _know(self, given: Given, key: Key, reader: Reader, roles: Roles, prepared: Prepared) -> None:
        self._tried = prepared
        read = reader.written(given, key, roles)
        if read is not None:
            self._known = _Known(read, _run(reader, roles, prepared))
            self._tried_recorded = None

    def _know_recorded(  # noqa: PLR0917
        self,
        framework: DeviceFramework,
        ordinal: int,
        call: Arguments,
        values: list[Any],
        key: Key,
        reader: Reader,
        roles: Roles,
    ) -> None:
        """After a call that was recorded. Such calls come with others between, those that they run."""
        again, self._last_recorded = key == self._last_recorded, key
        if not again or key == self._tried_recorded:
            return
        self._tried_recorded = key
        read = reader.written(call, key, roles, new=True)

        def prepare(call: Arguments) -> Run:
            prepared = self._prepared.get((_RECORDED, key)) or self._prepare(framework, ordinal, call, values)
            self._prepared[_RECORDED, key] = prepared
            return _run(reader, roles, prepared)

        run = None if read is None else self._recorder.recorded_form(call, prepare)
        if read is not None and run is not None:
            self._known = _Known(read, run)
            self._tried = None

    def _prepare(self, framework: DeviceFramework, ordinal: int, call: Arguments, values: list[Any]) -> Prepared:
        facts, configuration, problem = self._bound(framework, call)
        warn_of_swapped_axes(self._store.variant.name, facts.q, problem)
        form = CallForm(facts, misaligned(values), call.scale is not None)
        serving = configuration._replace(
            paged=problem.page is not None, kv_dtype=kv_dtype(facts.q, facts.k), prefixed=problem.shared_prefix > 0
        )
        prepared = prepare(framework, self._loader.serving(serving, ordinal, problem), form, problem)
        if len(self._prepared) >= _MOST_PREPARED:
            self._prepared.clear()
        return prepared

    def _bound(self, framework: DeviceFramework, call: Arguments) -> tuple[Call, Configuration, Problem]:
        """The facts of a call, which were checked, and the configuration that serves it."""
        facts = call_of(framework, call)
        configuration = configuration_of(self._store.variant.name, self._store.configurations, facts.q, facts.v)
        check_host_numbers(self._signatures[configuration], call)
        return facts, configuration, bind(self._signatures[configuration], facts)


def _run(reader: Reader, roles: Roles, prepared: Prepared) -> Run:
    """What launches calls of a form: without a look at their numbers and pointers, where there is nothing to check."""
    if roles.take_numbers is None and prepared.spans is None:
        return partial(_launch, prepared)
    return partial(_checked, reader, roles, prepared)


def _checked(
    reader: Reader, roles: Roles, prepared: Prepared, given: Given, values: list[Any]
) -> Array | tuple[Array, Array]:
    """Launches a call of a form that was prepared, once its numbers and pointers are found good."""
    if roles.take_numbers is not None and roles.take_numbers(values) != roles.checked:
        reader.check(roles, values)
    if prepared.spans is not None:
        check_spans(prepared.spans, values)
    return _launch(prepared, given, values)


def _launch(prepared: Prepared, given: Given, values: list[Any]) -> Array | tuple[Array, Array]:
    framework, ordinal = prepared.framework, prepared.kernels.device.ordinal
    own_out = out = given[_OUT]
    lse = None
    if out is None or prepared.stages_out:
        out = prepared.new_out()
        values[OUT] = framework.pointer(out)
    if prepared.new_lse is not None:
        lse = prepared.new_lse()
        values[LSE] = framework.pointer(lse)
    temporary = _copied(given, values, prepared) if prepared.copies else []
    stream = framework.current_stream(ordinal)
    base = 0
    kept = prepared.kept if stream in LEGACY_STREAM else None
    if kept is not None:
        base = kept.take()
    elif prepared.new_workspace is not None:
        workspace = prepared.new_workspace()
        base = framework.pointer(workspace)
        temporary.append(workspace)
    if values[SEED] is not None:
        values[SEED] &= _SEED_MASK
    if prepared.counters is not None:
        values[COUNTER] = prepared.counters.of(stream)
        if values[COUNTER] is None:
            temporary.append(_give_counter(prepared, prepared.counters, stream, values))
    prepared.launches.start(stream, values, base)
    if kept is not None:
        kept.give_back(base)
    if prepared.stages_out:
        framework.assign(own_out, out)
        temporary.append(out)
        out = own_out
    if own_out is not None:
        framework.written(own_out)
    if temporary:
        framework.release(temporary, ordinal)
    return out if lse is None else (out, lse)


def _copied(given: Given, values: list[Any], prepared: Prepared) -> list[Array]:
    """The copies that a call needs first, made on the current stream; their pointers go to `values`."""
    framework = prepared.framework
    made = {operand: framework.packed(given[operand], columns) for operand, columns in prepared.packs}
    if prepared.by_key_head is not None:
        made[PREFIX_Q] = framework.by_key_head(given[Q], *prepared.by_key_head)
    for operand, array in made.items():
        values[operand] = framework.pointer(array)
    narrowed = copies(framework, given, prepared.narrowed, values) if prepared.narrowed else []
    return [*made.values(), *narrowed]


def _give_counter(prepared: Prepared, counters: Counters, stream: int, values: list[Any]) -> Array:
    """Counters of the call's own, cleared in the order of the stream."""
    assert prepared.new_counter is not None
    counter = prepared.new_counter()
    values[COUNTER] = prepared.framework.pointer(counter)
    prepared.kernels.driver.zero(prepared.kernels.device.context, values[COUNTER], stream, counters.words)
    return counter
