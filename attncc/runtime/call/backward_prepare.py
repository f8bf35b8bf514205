"""From a checked backward call to its launches: delta, the kernel that owns keys, and dQ rounded or made on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...kernels.backward_facts import BackwardFacts
from ...kernels.helpers import delta, dq_sum
from ...kernels.kernel_names import kernel_name
from ...kernels.registry import backward_facts
from ...kernels.serving import backward_plan_for, dq_plan
from ...problem import ArrayFacts, Call, Problem
from ...problem.gradients import Results
from ...problem.strides import contiguous, dense_like
from ...schedule.plan import DTYPE_BYTES, KernelPlan
from ..cuda.driver import Function
from ..frameworks.framework import Array, DeviceFramework
from ..store.loaded_kernels import LoadedKernels
from .backward_form import BackwardForm, BackwardPlaces
from .call_fields import prepass_steps, set_call
from .learned_sums import LearnedSums, shape_of
from .narrowed import Narrowed, narrow
from .operands import CU_SEQLENS_Q, LSE, OUT, SCALE, K, Q, V
from .persistent import alike, head_swizzle, key_clusters, key_head_swizzle
from .prepare import checked_grid
from .repeated import EARLY, PAIRED, Attribute
from .steps import Launches, Step, StepBuilder, Zero
from .strides import Strides, filled, result_like
from .tensor_maps import backward_maps, mappable
from .workspace import Workspace

ROW_BLOCK = 16  # rows of a block of statistics, and of the sum of dQ
_WORD_BYTES = 4
_DQ_CONSUMER_WARPS = 4  # that add up dQ, each with a place of its own in the queues of dq_semaphore.cuh
_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


@dataclass(frozen=True, slots=True)
class BackwardPrepared:
    """All that a backward call needs besides its pointers and numbers."""

    kernels: LoadedKernels
    launches: Launches
    packs: tuple[tuple[str, int, int], ...]  # arrays to copy first, with their operands and the columns of the copies
    narrowed: tuple[Narrowed, ...]
    new_outputs: tuple[Callable[[], Array], ...]  # dq, dk, dv, as kernels write them
    writes_dq: bool  # into the caller's array, if there is one; else it is copied there
    new_totals: tuple[Callable[[], Array] | None, ...]  # what they add up to, where all sequences share the operand
    learnable: tuple[str, ...]  # inputs that get a gradient
    new_sums: tuple[Callable[[], Array], ...]  # of each of them, fp32
    new_inputs: tuple[Callable[[], Array] | None, ...]  # where it has another type: what the sum is copied to
    new_workspace: Callable[[], Array] | None
    ends: bool  # whether anything is left to do behind the launches


def prepare_backward(
    framework: DeviceFramework, kernels: LoadedKernels, form: BackwardForm, problem: Problem, places: BackwardPlaces
) -> BackwardPrepared:
    """The launches of a backward call that has been checked. AttnccError A653 if a grid is larger than a GPU takes."""
    ordinal = kernels.device.ordinal
    packs = tuple(_packs(backward_plan_for(kernels.plans, problem), form, problem, places))
    plan = kernels.plans[0]
    columns = {"dq": plan.stored_head_dim, "dk": plan.stored_head_dim, "dv": plan.stored_value_head_dim}
    gradients = {name: _written(facts, columns[name], problem) for name, facts in _operands(form.call)}
    own_dq = _own_dq(form, plan, problem)
    if own_dq is not None:
        gradients["dq"] = own_dq
    seen = _repacked(form, {name: columns for name, _, columns in packs})
    narrowed_call, narrowed = narrow(seen.call, kernels.plans[0].variant.inputs)
    preparation = _Preparation(kernels, replace(seen, call=narrowed_call), gradients, problem, places)
    launches = Launches(tuple(preparation.steps()), kernels.driver)
    learnable = [item for item in kernels.plans[0].variant.inputs if item.learnable]
    shapes = [shape_of(form.call, item) for item in learnable]
    call, words = form.call, (preparation.workspace.size // _WORD_BYTES,)
    shared = any(gradients[name].shape[:-1] != facts.shape[:-1] for name, facts in _operands(call))
    return BackwardPrepared(
        kernels,
        launches,
        packs,
        narrowed,
        tuple(
            _gradient(framework, facts, gradients[name].shape[:-1], columns[name], ordinal)
            for name, facts in _operands(call)
        ),
        own_dq is not None,
        tuple(
            None
            if gradients[name].shape[:-1] == facts.shape[:-1]
            else _gradient(framework, facts, facts.shape[:-1], columns[name], ordinal)
            for name, facts in _operands(call)
        ),
        tuple(item.name for item in learnable),
        tuple(framework.allocator(shape, "float32", ordinal) for shape in shapes),
        tuple(
            None if item.dtype == "f32" else framework.allocator(shape, _DTYPES[item.dtype], ordinal)
            for item, shape in zip(learnable, shapes, strict=True)
        ),
        framework.allocator(words, "float32", ordinal) if words[0] else None,
        bool(learnable) or shared,
    )


def _operands(call: Call) -> tuple[tuple[str, ArrayFacts], ...]:
    """q, k and v, by the names of their gradients."""
    return ("dq", call.q), ("dk", call.k), ("dv", call.v)


def _own_dq(form: BackwardForm, plan: KernelPlan, problem: Problem) -> ArrayFacts | None:
    """The caller's dq, if kernels can write it, by 16 bytes."""
    own = form.results.dq
    if own is None or "dq" in form.misaligned or own.shape[-1] != plan.stored_head_dim:
        return None
    return own if Strides.of(own, problem).aligned(DTYPE_BYTES[plan.dtype]) else None


def _written(operand: ArrayFacts, columns: int, problem: Problem) -> ArrayFacts:
    """The gradient of an operand as kernels write it, in memory in the operand's order: k and v that all sequences
    share have one for each of these."""
    rows = operand.shape[:-1] if problem.packed else (problem.batch, *operand.shape[1:-1])
    return ArrayFacts((*rows, columns), dense_like((*rows, columns), operand), operand.dtype)


def _gradient(
    framework: DeviceFramework, operand: ArrayFacts, rows: tuple[int, ...], columns: int, ordinal: int
) -> Callable[[], Array]:
    return result_like(framework, operand, (*rows, operand.shape[-1]), operand.dtype, columns, ordinal)


def _packs(
    plan: KernelPlan, form: BackwardForm, problem: Problem, places: BackwardPlaces
) -> Iterator[tuple[str, int, int]]:
    """Operands that 16-byte accesses can't read, and rows' values that aren't one after the other."""
    call, results, mapped = form.call, form.results, backward_facts(plan).mapped
    tiled = [("q", Q, call.q), ("k", K, call.k), ("v", V, call.v), ("dout", places.dout, results.dout)]
    if results.out is not None:
        tiled.append(("out", OUT, results.out))
    for name, operand, facts in tiled:
        unmapped = name in mapped and not mappable(plan, name, facts, problem)
        columns = plan.stored_head_dim if name in ("q", "k") else plan.stored_value_head_dim
        aligned = name not in form.misaligned and Strides.of(facts, problem).aligned(DTYPE_BYTES[plan.dtype])
        if unmapped or not aligned or facts.shape[-1] != columns:
            yield name, operand, columns
    for name, operand, values in (("lse", LSE, results.lse), ("dlse", places.dlse, results.dlse)):
        if values is not None and values.strides != contiguous(values.shape):
            yield name, operand, values.shape[-1]


def _repacked(form: BackwardForm, copies: dict[str, int]) -> BackwardForm:
    """The call after these copies, given with their columns."""

    def packed(name: str, facts: ArrayFacts) -> ArrayFacts:
        return filled(facts, copies[name]) if name in copies else facts

    call = form.call
    call = call._replace(q=packed("q", call.q), k=packed("k", call.k), v=packed("v", call.v))
    given = {name: facts for name, facts in form.results._asdict().items() if facts is not None}
    results = Results(**{name: packed(name, facts) for name, facts in given.items()})
    return BackwardForm(call, results, form.misaligned, form.scale_given, form.deterministic)


class _Rows:
    """What a plan's kernels keep of rows, in a call's workspace: statistics, and the sum of dQ.

    Plans may have different formats, so each has its own.
    """

    def __init__(self, facts: BackwardFacts, problem: Problem, workspace: Workspace, *, adds_dq: bool) -> None:
        outer = 1 if problem.packed else problem.batch
        self.blocks = facts.kept_rows(problem) // ROW_BLOCK  # of a head
        self.all_blocks = outer * problem.num_heads * self.blocks
        rows = self.all_blocks * ROW_BLOCK
        self.statistics = workspace.take(rows * facts.statistics_bytes) if facts.needs_delta else None
        self.sum_words = rows * facts.plan.padded_head_dim if adds_dq else 0
        self.dq_sum = workspace.take(self.sum_words * _WORD_BYTES)
        self.behind = workspace.size


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What thread blocks of a main kernel that stay tell each other, in a call's workspace; 0 at first."""

    next_block: int  # one: how many work tiles were taken
    finished: int  # one for each head of k: how many warps are done with adding
    dq_semaphore: int  # one for each of those warps, where sums have an order
    dq_stored: int  # one for each tile of rows, where the sum of dQ begins without zeros
    words: int

    @classmethod
    def take(cls, workspace: Workspace, heads: int, turns: int, tiles: int) -> _Numbers:
        """`turns`: of the semaphore, for each head of k. `tiles`: of the sum of dQ."""
        stored = 1 + heads * (1 + turns)
        first = workspace.take((stored + tiles) * _WORD_BYTES)
        finished, dq_semaphore, dq_stored = (first + words * _WORD_BYTES for words in (1, 1 + heads, stored))
        return cls(first, finished, dq_semaphore, dq_stored, stored + tiles)


class _Preparation:
    """Builds the launches of one call, in order."""

    def __init__(
        self,
        kernels: LoadedKernels,
        form: BackwardForm,
        gradients: Mapping[str, ArrayFacts],
        problem: Problem,
        places: BackwardPlaces,
    ) -> None:
        self._kernels, self._form, self._problem, self._places = kernels, form, problem, places
        self._gradients = gradients
        self._plan = backward_plan_for(kernels.plans, problem)
        self._facts = facts = backward_facts(self._plan)
        self._batch = 1 if problem.packed else problem.batch
        self.workspace = Workspace()
        self._adds_dq = facts.adds_dq and (not form.deterministic or facts.orders_dq)
        self._rows = _Rows(facts, problem, self.workspace, adds_dq=self._adds_dq)
        heads, keys = self._batch * problem.num_kv_heads, facts.kv_blocks(problem)
        self._owners = heads * keys * facts.gradient_parts
        self._stores_dq_first = facts.stores_dq_first and not form.deterministic
        tiles = self._rows.all_blocks * ROW_BLOCK // facts.row_alignment * self._stores_dq_first
        turns = keys * _DQ_CONSUMER_WARPS * form.deterministic
        self._numbers = _Numbers.take(self.workspace, heads, turns, tiles) if facts.persistent else None
        self._learned = LearnedSums(kernels, form, problem, places.sums, self.workspace)

    def steps(self) -> Iterator[Step]:
        yield from self._learned.zeros()
        yield from self._room_cleared()
        yield from self._cleared()
        keys = {"kv_blocks": self._facts.kv_blocks(self._problem)}
        if not self._adds_dq:  # in fp32 it finds what lse lost by rounding, which dK and dV need
            yield from self._separate_dq()
        yield from self._main(self._plan, self._rows, keys, self._owners, ("dk", "dv"))
        if self._adds_dq:
            yield from self._rounded_dq()
        if self._rows.statistics is not None and self._rows.all_blocks:
            yield from self._learned.of_sink(self._rows.statistics, self._rows.blocks, self._rows.all_blocks)
        yield from self._learned.rounded()

    def _room_cleared(self) -> Iterator[Step]:
        """dK and dV of a cache, cleared: kernels write those of keys that there are, behind which gradients are 0."""
        for name in ("dk", "dv") if self._problem.cached else ():
            facts = self._gradients[name]
            words = math.prod(facts.shape) * DTYPE_BYTES[self._plan.dtype] // 4
            yield Zero(self._kernels.device.context, getattr(self._places, name), words, of_operand=True)

    def _cleared(self) -> Iterator[Step]:
        """What the main kernel adds to, cleared; where there is a kernel that makes delta, that does it beside."""
        rows, counts = self._rows, self._numbers.words if self._numbers is not None else 0
        sums = 0 if self._stores_dq_first else rows.sum_words
        if rows.statistics is not None and rows.all_blocks:
            yield self._delta(self._facts, rows, rows.statistics, sums, counts)
        elif sums + counts:  # one behind the other
            yield Zero(self._kernels.device.context, rows.behind - sums * _WORD_BYTES, sums + counts)

    def _separate_dq(self) -> Iterator[Step]:
        plan, rows = dq_plan(self._kernels.plans), self._rows
        facts = backward_facts(plan)
        if facts.row_format != self._facts.row_format:
            rows = _Rows(facts, self._problem, self.workspace, adds_dq=False)
            if rows.statistics is not None and rows.all_blocks:
                yield self._delta(facts, rows, rows.statistics)
        blocks = self._problem.q_blocks(plan.block_q)
        heads = self._batch * self._problem.num_heads
        together = head_swizzle(plan, self._problem, heads, self._kernels.device.l2_bytes)
        order = {"q_blocks": blocks, "splits": 1, "head_swizzle": together}
        yield from self._main(plan, rows, order, heads * blocks, ("dq",))

    def _main(
        self, plan: KernelPlan, rows: _Rows, blocks: dict[str, int], grid: int, outputs: tuple[str, ...]
    ) -> Iterator[Step]:
        name, problem, form = kernel_name(plan), self._problem, self._form
        main = StepBuilder(self._kernels.layout(name))
        set_call(main, plan, form.call, problem, scale_given=form.scale_given)
        sizes = {name: getattr(problem, name) for name in ("batch", "num_heads", "num_kv_heads", "q_len", "kv_len")}
        main.set({**sizes, **blocks, "row_blocks": rows.blocks})
        main.operand("dout", self._places.dout)
        call = form.call
        for tensor, facts in (("q", call.q), ("k", call.k), ("v", call.v), ("dout", form.results.dout)):
            main.set(Strides.of(facts, problem).fields(tensor))
        for output in outputs:
            main.operand(output, getattr(self._places, output))
            main.set(self._output_strides(output))
        if rows.statistics is not None:
            main.workspace("statistics", rows.statistics)
        if rows.sum_words:
            main.workspace("dq_sum", rows.dq_sum)
        self._learned.tell(main, plan)
        if grid:
            yield from prepass_steps(self._kernels, plan, call, problem, self.workspace, main)
            function = self._kernels.function(name)
            grid = checked_grid(grid)
            if self._numbers is None:
                yield main.build(function, grid)
            else:
                yield self._persistent(main, function, grid, self._numbers)

    def _persistent(self, main: StepBuilder, function: Function, blocks: int, numbers: _Numbers) -> Step:
        """A launch with maps: more blocks of keys than the GPU holds at once are claimed, unless alike.

        Where sums have an order, blocks of keys wait for each other: they are claimed always, see dq_semaphore.cuh.
        """
        plan, problem, call, device = self._plan, self._problem, self._form.call, self._kernels.device
        dout = self._places.dout, self._form.results.dout
        main.maps(backward_maps(plan, call, dout, problem))
        heads = self._batch * problem.num_kv_heads
        ordered = self._form.deterministic
        resident = device.multiprocessors * function.resident_blocks
        held = key_head_swizzle(plan, problem, heads, device.l2_bytes, ordered=ordered, running=resident)
        main.set({"blocks": blocks, "head_swizzle": held})
        main.workspace("finished", numbers.finished)
        if self._stores_dq_first:
            main.workspace("dq_stored", numbers.dq_stored)
        if ordered:
            main.workspace("dq_semaphore", numbers.dq_semaphore)
        if ordered or (blocks > resident and not alike(plan, problem)):
            main.workspace("next_block", numbers.next_block)
        together = [PAIRED] if key_clusters(plan, problem, resident, ordered=ordered) else []
        return main.build(function, min(blocks, resident), *together)

    def _output_strides(self, name: str) -> dict[str, int]:
        return Strides.of(self._gradients[name], self._problem).fields(name)

    def _delta(self, facts: BackwardFacts, rows: _Rows, statistics: int, sums: int = 0, counts: int = 0) -> Step:
        """The kernel of that name, which clears `sums` words, too, the sum of dQ or none, and `counts` words behind."""
        results, problem, name = self._form.results, self._problem, delta.kernel(facts).name
        step = self._of_rows(name, rows)
        step.operand("out", OUT)
        step.operand("dout", self._places.dout)
        step.operand("lse", LSE)
        if results.dlse is not None:
            step.operand("dlse", self._places.dlse)
        assert results.out is not None
        step.workspace("statistics", statistics)
        step.workspace("dq_sum", rows.dq_sum)
        if counts:
            step.workspace("counts", rows.behind)
        step.set({"sum_words": sums // rows.all_blocks, "count_words": counts})
        step.set(Strides.of(results.out, problem).fields("out") | Strides.of(results.dout, problem).fields("dout"))
        return self._built(step, name, rows)

    def _rounded_dq(self) -> Iterator[Step]:
        plan, rows, problem, name = self._plan, self._rows, self._problem, dq_sum.kernel(self._facts).name
        step = self._of_rows(name, rows)
        step.operand("dq", self._places.dq)
        step.workspace("dq_sum", rows.dq_sum)
        step.set(self._output_strides("dq"))
        if not self._facts.scales_dq_sum:
            step.set({"factor": 1.0})
        elif self._form.scale_given:
            step.operand("factor", SCALE)
        else:
            step.set({"factor": plan.head_dim**-0.5})
        if not rows.sum_words:
            return
        if self._stores_dq_first and self._numbers is not None:
            step.workspace("dq_stored", self._numbers.dq_stored)
        numbers = self._numbers if self._owners else None  # those that it waits for, see finished.cuh
        if numbers is not None:
            step.workspace("finished", numbers.finished)
            step.set({"group": problem.group, "dq_consumer_warps": self._facts.kv_blocks(problem) * _DQ_CONSUMER_WARPS})
        yield self._built(step, name, rows, *([] if numbers is None else [EARLY]))

    def _of_rows(self, name: str, rows: _Rows) -> StepBuilder:
        """A kernel whose warps take blocks of rows."""
        step, problem = StepBuilder(self._kernels.layout(name)), self._problem
        if problem.packed:
            step.operand("cu_seqlens_q", CU_SEQLENS_Q)
        sizes = {"batch": problem.batch, "num_heads": problem.num_heads, "q_len": problem.q_len}
        step.set({**sizes, "row_blocks": rows.blocks})
        return step

    def _built(self, step: StepBuilder, name: str, rows: _Rows, *attributes: Attribute) -> Step:
        function = self._kernels.function(name)
        return step.build(function, checked_grid(-(-rows.all_blocks // (function.threads // 32))), *attributes)
