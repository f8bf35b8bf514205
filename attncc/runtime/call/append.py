"""Calls of `attncc.append`: each form is checked once, then only pointers are written and one kernel is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from operator import itemgetter, or_
from typing import Any, NamedTuple, Protocol

from ...kernels.helpers import append as append_kernel
from ...kernels.pages import Division
from ...kernels.quantized import scale_fields
from ...problem import ArrayFacts, Problem
from ...problem.appended import Append, bind_append
from ...problem.facts import KERNEL_DTYPES
from ...problem.overlap import addressed, byte_span, elements_meet
from ...problem.quantized import SCALES, kv_dtype
from ...problem.refusal import refused
from ...problem.strides import dense_like
from ...schedule.plan import KV_BYTES
from ..cuda.driver import Driver, Function
from ..frameworks.framework import Array, DeviceFramework, Observer
from .prepare import checked_grid
from .steps import Launches, ParamsLayout, Step, StepBuilder, Value
from .strides import Strides, result_like

_DTYPES = {full: short for short, full in KERNEL_DTYPES.items()}
_ROWS = ("k_cache", "v_cache", "k_new", "v_new", "q", "q_out")  # what has a stride over batch, head and row
_WRITTEN = ("k_cache", "v_cache")
_INT_ARRAYS = ("kv_lens", "block_table", "cu_seqlens_q")
_Q_OUT = len(Append._fields)  # the operand behind those that a call brings
_ALIGNMENT = 16  # bytes: of bases and of strides
_take_rows = itemgetter(*(n for n, name in enumerate(Append._fields) if name not in (*_INT_ARRAYS, *SCALES)))
_MOST_PREPARED = 4096  # forms of calls that are kept; at one more all are dropped
_ANYWHERE = 1 << 40  # an address, for arrays of which only the distance counts


class Load(Protocol):
    """Finds the kernel for an element type, a type of angles, a GPU and the type of a cache of 8 bits: loaded, with its
    driver."""

    def __call__(self, dtype: str, angles: str, ordinal: int, kv_dtype: str | None) -> tuple[Driver, Function]: ...


@dataclass(frozen=True, slots=True)
class _Prepared:
    """All that a call needs besides its pointers."""

    launches: Launches
    new_q: Callable[[], Array] | None
    narrowed: tuple[int, ...]  # operands that are int64
    pairs: tuple[_Pair, ...]


class _Pair(NamedTuple):
    """A cache and another array, by operand. Their ranges of bytes meet if the second begins more than `low` and less
    than `high` bytes behind the first."""

    cache: int
    other: int
    low: int
    high: int
    facts: tuple[ArrayFacts, ArrayFacts]


class AppendLauncher:
    """Runs the calls whose arrays are on a GPU, of one framework. Threads may share it."""

    def __init__(self, framework: DeviceFramework, load: Load) -> None:
        self._framework, self._load = framework, load
        self._observer: Observer = framework.observer()
        self._prepared: dict[Any, _Prepared] = {}
        self._last: tuple[Any, _Prepared | None] = None, None

    def run(self, ordinal: int, call: Append, layout: str, *, interleaved: bool) -> Array | None:
        """The rotated q, or None, queued on the framework's current stream. AttnccError before any launch."""
        given = [number for number, array in enumerate(call) if array is not None]
        bases, forms = self._observer.observe([call[number] for number in given])
        values: list[Any] = [0] * (_Q_OUT + 1)
        for number, base in zip(given, bases, strict=True):
            values[number] = base
        aligned = not reduce(or_, _take_rows(values)) % _ALIGNMENT
        key = forms, given, layout, interleaved, aligned
        last, prepared = self._last
        if prepared is None or key != last:
            prepared = self._find(ordinal, call, (forms, tuple(given), layout, interleaved, aligned))
            self._last = key, prepared
        return self._launch(ordinal, call, prepared, values)

    def _find(self, ordinal: int, call: Append, key: Any) -> _Prepared:
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[key] = self._prepare(ordinal, call, *key[2:])
        return prepared

    def _prepare(self, ordinal: int, call: Append, layout: str, interleaved: bool, aligned: bool) -> _Prepared:
        facts = Append(**{name: self._framework.facts(array) for name, array in call.given()})
        problem = bind_append(facts, layout)
        dtype = facts.k_new.dtype
        angles, narrow = dtype if facts.cos is None else facts.cos.dtype, kv_dtype(facts.k_new, facts.k_cache)
        driver, function = self._load(_DTYPES[dtype], _DTYPES[angles], ordinal, narrow)
        layout_of_params = ParamsLayout(append_kernel.parameters(_DTYPES[dtype], _DTYPES[angles], narrow))
        step = _step(layout_of_params, function, facts, problem, interleaved=interleaved, aligned=aligned)
        new_q = None
        if facts.q is not None:
            new_q = result_like(self._framework, facts.q, facts.q.shape, dtype, problem.head_dim, ordinal)
        narrowed = (n for n, name in enumerate(Append._fields) if name in _INT_ARRAYS and _is_wide(facts[n]))
        return _Prepared(Launches(step, driver), new_q, tuple(narrowed), tuple(_pairs(facts)))

    def _launch(self, ordinal: int, call: Append, prepared: _Prepared, values: list[Any]) -> Array | None:
        _check_pairs(prepared, values)
        out, framework, copies = None, self._framework, []
        if prepared.new_q is not None:
            out = prepared.new_q()
            values[_Q_OUT] = framework.pointer(out)
        for operand in prepared.narrowed:
            copies.append(framework.narrowed(call[operand]))
            values[operand] = framework.pointer(copies[-1])
        prepared.launches.start(framework.current_stream(ordinal), values, 0)
        framework.written(call.k_cache)
        framework.written(call.v_cache)
        if copies:
            framework.release(copies, ordinal)
        return out


def _is_wide(facts: ArrayFacts | None) -> bool:
    return facts is not None and facts.dtype == "int64"


def _step(
    layout: ParamsLayout, function: Function, call: Append, problem: Problem, *, interleaved: bool, aligned: bool
) -> tuple[Step, ...]:
    """The launch; none if there are no rows."""
    fields = append_fields(call, problem, interleaved=interleaved, aligned=aligned)
    grid = checked_grid(problem.total_q * int(fields["parts"]))
    if not grid or not problem.batch:
        return ()
    builder = StepBuilder(layout)
    builder.set(fields)
    for operand, name in enumerate((*Append._fields, "q_out")):
        if name == "q_out" or getattr(call, name) is not None:
            builder.operand(name, operand)
    return (builder.build(function, grid),)


def append_fields(call: Append, problem: Problem, *, interleaved: bool, aligned: bool) -> dict[str, Value]:
    """The fields of `Params` that aren't pointers. `aligned`: all bases of rows and angles are."""
    names = ("batch", "num_heads", "num_kv_heads", "head_dim", "value_head_dim")
    fields: dict[str, Value] = {name: getattr(problem, name) for name in names}
    fields |= {"rows": problem.q_len, "room": problem.kv_len, "interleaved": int(interleaved)}
    strides = _strides(call, problem)
    for name, steps in strides.items():
        fields |= steps.fields(name)
    for name in SCALES:
        if getattr(call, name) is not None:
            fields |= scale_fields(getattr(call, name), name, problem, call.k_cache.shape[0])
    fields |= _angle_fields(call) | _page_fields(call, problem)
    wide = aligned and _may_be_wide(call, problem, strides)
    columns = problem.num_kv_heads * (problem.head_dim + problem.value_head_dim) + problem.num_heads * problem.head_dim
    items = columns // append_kernel.WIDE if wide else columns
    return fields | {"wide": int(wide), "parts": -(-items // append_kernel.THREADS)}


def _strides(call: Append, problem: Problem) -> dict[str, Strides]:
    """Of each array of rows that the call has."""
    rows = {name: getattr(call, name) for name in _ROWS[:-1] if getattr(call, name) is not None}
    if call.q is not None:
        rows["q_out"] = _result_facts(call.q)
    return {name: Strides.of(facts, problem) for name, facts in rows.items()}


def _angle_fields(call: Append) -> dict[str, Value]:
    if call.cos is None:
        return {}
    positions, pairs = call.cos.shape
    of_cos, of_sin = _angle_strides(call)
    return {"positions": positions, "pairs": pairs, "cos_stride_row": of_cos, "sin_stride_row": of_sin}


def _angle_strides(call: Append) -> list[int]:
    """In elements, of rows of `cos` and `sin`, one for each position."""
    return [0 if call.cos.shape[0] < 2 else facts.strides[0] for facts in (call.cos, call.sin)]


def _page_fields(call: Append, problem: Problem) -> dict[str, Value]:
    if problem.page is None:
        return {}
    division = Division.by(problem.page)
    fields: dict[str, Value] = {"page_magic": division.magic, "page_shift": division.shift}
    return fields | {
        "page_rows": problem.page,
        "pages": call.k_cache.shape[0],
        "max_blocks": call.block_table.shape[1],
    }


def _may_be_wide(call: Append, problem: Problem, strides: Mapping[str, Strides]) -> bool:
    """Whether threads may have WIDE neighbouring elements each, as far as sizes and strides tell."""
    size = 4 if call.k_new.dtype == "float32" else 2
    of_caches = size if kv_dtype(call.k_new, call.k_cache) is None else KV_BYTES
    if not all(steps.aligned(of_caches if name in _WRITTEN else size) for name, steps in strides.items()):
        return False
    # Strides of angles count elements of at least 2 bytes.
    angles = [] if call.cos is None else [call.cos.shape[1], *_angle_strides(call)]
    return not any(number % append_kernel.WIDE for number in (problem.head_dim, problem.value_head_dim, *angles))


def _result_facts(q: ArrayFacts) -> ArrayFacts:
    return q._replace(strides=dense_like(q.shape, q))


def _pairs(call: Append) -> Iterator[_Pair]:
    """Each cache with all behind it."""
    spans = [(number, *byte_span(facts), facts) for number, facts in enumerate(call) if facts is not None]
    for (a, a_low, a_high, a_facts), (b, b_low, b_high, b_facts) in product(spans[: len(_WRITTEN)], spans):
        if a < b:
            yield _Pair(a, b, a_low - b_high, a_high - b_low, (a_facts, b_facts))


def _check_pairs(prepared: _Prepared, values: list[Any]) -> None:
    """AttnccError A617 if a cache shares memory with another array of the call."""
    for cache, other, low, high, facts in prepared.pairs:
        distance = values[other] - values[cache]
        if low < distance < high and _meet(*facts, distance):
            raise shares_memory(Append._fields[cache], Append._fields[other])


@lru_cache(maxsize=1024)
def _meet(a: ArrayFacts, b: ArrayFacts, distance: int) -> bool:
    """Whether arrays at this distance share an element: looked at once, since caches come again and again."""
    return elements_meet(addressed(a, _ANYWHERE), addressed(b, _ANYWHERE + distance))


def shares_memory(cache: str, name: str) -> Exception:
    """A617 for a cache over the memory of another array of the call."""
    what, came = f"`{cache}` shares memory with `{name}`", f"the memory of `{name}`"
    return refused("A617", what, expected="memory of its own", came=came, help=f"pass a copy of `{name}`")
