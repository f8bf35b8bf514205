"""From a checked backward call to its launches: delta, the kernel that owns keys, and dQ rounded or made on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..problem import ArrayFacts, Call, Problem
from ..problem.gradients import Results
from ..schedule.kernel_names import delta_name, dq_sum_name, kernel_name
from ..schedule.plan import DTYPE_BYTES, KernelPlan
from ..schedule.serving import backward_plan_for
from .arrays import Array, DeviceFramework
from .call_fields import set_call, survey_steps
from .driver import Function
from .family import Family
from .learned_sums import LearnedSums, shape_of
from .operands import CU_SEQLENS_Q, INPUTS, LSE, OUT, SCALE, K, Q, V
from .persistent import alike, key_pairs, key_section, section
from .prepare import checked_grid
from .repeated import EARLY, PAIRED, Attribute
from .steps import Launches, Step, StepBuilder, Zero
from .strides import Strides, contiguous
from .tensor_maps import backward_maps, mappable
from .workspace import Workspace

ROW_BLOCK = 16  # rows of a block of statistics, and of the sum of dQ
_WORD_BYTES = 4
_ADDER_WARPS = 4  # that add up dQ, each with a place of its own in the queues of queue.cuh
_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}


class BackwardPlaces:
    """The numbers of the operands that only backward calls have; those of forward calls stand before them."""

    def __init__(self, inputs: int) -> None:
        self.dout, self.dlse, self.dq, self.dk, self.dv, self.sums = range(INPUTS + inputs, INPUTS + inputs + 6)


@dataclass(frozen=True, slots=True)
class BackwardForm:
    """What decides the launches of a backward call besides what is checked."""

    call: Call
    results: Results
    misaligned: tuple[str, ...]  # arrays that don't start at a multiple of 16 bytes
    scale_given: bool
    deterministic: bool


@dataclass(frozen=True, slots=True)
class BackwardPrepared:
    """All that a backward call needs besides its pointers and numbers."""

    family: Family
    launches: Launches
    packs: tuple[tuple[str, int], ...]  # arrays to copy first, with their operands
    new_outputs: tuple[Callable[[], Array], ...]  # dq, dk, dv
    learnable: tuple[str, ...]  # inputs that get a gradient
    new_sums: tuple[Callable[[], Array], ...]  # of each of them, fp32
    new_inputs: tuple[Callable[[], Array] | None, ...]  # where it has another type: what the sum is copied to
    new_workspace: Callable[[], Array] | None


def prepare_backward(
    framework: DeviceFramework, family: Family, form: BackwardForm, problem: Problem, places: BackwardPlaces
) -> BackwardPrepared:
    """The launches of a backward call that has been checked. AttnccError A653 if a grid is larger than a GPU takes."""
    ordinal = family.device.ordinal
    packs = tuple(_packs(backward_plan_for(family.plans, problem), form, problem, places))
    preparation = _Preparation(family, _repacked(form, [name for name, _ in packs]), problem, places)
    launches = Launches(tuple(preparation.steps()), family.driver)
    learnable = [item for item in family.plans[0].variant.inputs if item.learnable]
    shapes = [shape_of(form.call, item) for item in learnable]
    call, words = form.call, (preparation.workspace.size // _WORD_BYTES,)
    return BackwardPrepared(
        family,
        launches,
        packs,
        tuple(framework.allocator(item.shape, item.dtype, ordinal) for item in (call.q, call.k, call.v)),
        tuple(item.name for item in learnable),
        tuple(framework.allocator(shape, "float32", ordinal) for shape in shapes),
        tuple(
            None if item.dtype == "f32" else framework.allocator(shape, _DTYPES[item.dtype], ordinal)
            for item, shape in zip(learnable, shapes, strict=True)
        ),
        framework.allocator(words, "float32", ordinal) if words[0] else None,
    )


def _packs(plan: KernelPlan, form: BackwardForm, problem: Problem, places: BackwardPlaces) -> Iterator[tuple[str, int]]:
    """Operands that 16-byte accesses can't read, and rows' values that aren't one after the other."""
    call, results = form.call, form.results
    tiled = [("q", Q, call.q), ("k", K, call.k), ("v", V, call.v), ("dout", places.dout, results.dout)]
    if results.out is not None:
        tiled.append(("out", OUT, results.out))
    for name, operand, facts in tiled:
        unmapped = plan.family == "hopper" and name != "out" and not mappable(facts, problem)
        if unmapped or name in form.misaligned or not Strides.of(facts, problem).aligned(DTYPE_BYTES[plan.dtype]):
            yield name, operand
    for name, operand, values in (("lse", LSE, results.lse), ("dlse", places.dlse, results.dlse)):
        if values is not None and values.strides != contiguous(values.shape):
            yield name, operand


def _repacked(form: BackwardForm, names: list[str]) -> BackwardForm:
    def packed(name: str, facts: ArrayFacts) -> ArrayFacts:
        return facts._replace(strides=contiguous(facts.shape)) if name in names else facts

    call = form.call
    call = call._replace(q=packed("q", call.q), k=packed("k", call.k), v=packed("v", call.v))
    given = {name: facts for name, facts in form.results._asdict().items() if facts is not None}
    results = Results(**{name: packed(name, facts) for name, facts in given.items()})
    return BackwardForm(call, results, form.misaligned, form.scale_given, form.deterministic)


class _Rows:
    """What a plan's kernels keep of rows, in a call's workspace: statistics, and the sum of dQ.

    Plans of another family have other formats, so each has its own.
    """

    def __init__(self, plan: KernelPlan, problem: Problem, workspace: Workspace, *, adds_dq: bool) -> None:
        outer = 1 if problem.packed else problem.batch
        self.blocks = plan.kept_rows(problem) // ROW_BLOCK  # of a head
        self.all_blocks = outer * problem.num_heads * self.blocks
        rows = self.all_blocks * ROW_BLOCK
        self.statistics = workspace.take(rows * plan.statistics_bytes) if plan.needs_delta else None
        self.sum_words = rows * plan.padded_head_dim if adds_dq else 0
        self.dq_sum = workspace.take(self.sum_words * _WORD_BYTES)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What thread blocks of the main kernel of the family hopper tell each other, in a call's workspace; 0 at first."""

    next_block: int  # one, which the claims count
    finished: int  # one for each head of k: how many warps are done with adding
    turns: int  # one for each of those warps, where sums have an order
    words: int

    @classmethod
    def take(cls, workspace: Workspace, heads: int, keys: int, *, ordered: bool) -> _Numbers:
        words = 1 + heads * (1 + keys * _ADDER_WARPS * ordered)
        first = workspace.take(words * _WORD_BYTES)
        return cls(first, first + _WORD_BYTES, first + (1 + heads) * _WORD_BYTES, words)


class _Preparation:
    """Builds the launches of one call, in order."""

    def __init__(self, family: Family, form: BackwardForm, problem: Problem, places: BackwardPlaces) -> None:
        self._family, self._form, self._problem, self._places = family, form, problem, places
        self._plan = backward_plan_for(family.plans, problem)
        self._batch = 1 if problem.packed else problem.batch
        self.workspace = Workspace()
        self._adds_dq = self._plan.adds_dq and (not form.deterministic or self._plan.orders_dq)
        self._rows = _Rows(self._plan, problem, self.workspace, adds_dq=self._adds_dq)
        heads, keys = self._batch * problem.num_kv_heads, self._plan.kv_blocks(problem)
        self._owners = heads * keys * self._plan.gradient_parts
        hopper = self._plan.family == "hopper"
        self._numbers = _Numbers.take(self.workspace, heads, keys, ordered=form.deterministic) if hopper else None
        self._learned = LearnedSums(family, form, problem, places.sums, self.workspace)

    def steps(self) -> Iterator[Step]:
        yield from self._learned.zeros()
        yield from self._cleared()
        keys = {"kv_blocks": self._plan.kv_blocks(self._problem)}
        if not self._adds_dq:  # in fp32 it finds what lse lost by rounding, which dK and dV need
            yield from self._separate_dq()
        yield from self._main(self._plan, self._rows, keys, self._owners, ("dk", "dv"))
        if self._adds_dq:
            yield from self._rounded_dq()
        if self._rows.statistics is not None and self._rows.all_blocks:
            yield from self._learned.of_sink(self._rows.statistics, self._rows.blocks, self._rows.all_blocks)
        yield from self._learned.rounded()

    def _cleared(self) -> Iterator[Step]:
        """What the main kernel adds to, cleared; where there is a kernel that makes delta, that does it beside."""
        rows, counts = self._rows, self._numbers.words if self._numbers is not None else 0
        words = rows.sum_words + counts  # one behind the other
        if rows.statistics is not None and rows.all_blocks:
            yield self._delta(self._plan, rows, rows.statistics, counts)
        elif words:
            yield Zero(self._family.device.context, rows.dq_sum, words)

    def _separate_dq(self) -> Iterator[Step]:
        plan, rows = self._family.plans[1], self._rows
        if plan.family != self._plan.family:
            rows = _Rows(plan, self._problem, self.workspace, adds_dq=False)
            if rows.statistics is not None and rows.all_blocks:
                yield self._delta(plan, rows, rows.statistics)
        blocks = self._problem.q_blocks(plan.block_q)
        heads = self._batch * self._problem.num_heads
        together = section(plan, self._problem, heads, self._family.device.l2_bytes)
        order = {"q_blocks": blocks, "splits": 1, "section": together}
        yield from self._main(plan, rows, order, heads * blocks, ("dq",))

    def _main(
        self, plan: KernelPlan, rows: _Rows, blocks: dict[str, int], grid: int, outputs: tuple[str, ...]
    ) -> Iterator[Step]:
        name, problem, form = kernel_name(plan), self._problem, self._form
        main = StepBuilder(self._family.layout(name))
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
            yield from survey_steps(self._family, plan, call, problem, self.workspace, main)
            function = self._family.function(name)
            grid = checked_grid(grid)
            if self._numbers is None:
                yield main.build(function, grid)
            else:
                yield self._persistent(main, function, grid, self._numbers)

    def _persistent(self, main: StepBuilder, function: Function, blocks: int, numbers: _Numbers) -> Step:
        """A launch with maps: more blocks of keys than the GPU holds at once are claimed, unless alike.

        Where sums have an order, blocks of keys wait for each other: they are claimed always, see queue.cuh.
        """
        plan, problem, call, device = self._plan, self._problem, self._form.call, self._family.device
        dout = self._places.dout, self._form.results.dout
        main.maps(backward_maps(plan, call, dout, problem))
        heads = self._batch * problem.num_kv_heads
        ordered = self._form.deterministic
        resident = device.multiprocessors * function.resident_blocks
        held = key_section(plan, problem, heads, device.l2_bytes, ordered=ordered, running=resident)
        main.set({"blocks": blocks, "section": held})
        main.workspace("finished", numbers.finished)
        if ordered:
            main.workspace("turns", numbers.turns)
        if ordered or (blocks > resident and not alike(plan, problem)):
            main.workspace("next_block", numbers.next_block)
        together = PAIRED if key_pairs(plan, problem, resident, ordered=ordered) else None
        return main.build(function, min(blocks, resident), together)

    def _output_strides(self, name: str) -> dict[str, int]:
        shape = {"dq": self._form.call.q, "dk": self._form.call.k, "dv": self._form.call.v}[name].shape
        return Strides.of(ArrayFacts(shape, contiguous(shape), ""), self._problem).fields(name)

    def _delta(self, plan: KernelPlan, rows: _Rows, statistics: int, counts: int = 0) -> Step:
        """The kernel of that name, which clears the sum of dQ, too, and as many words behind it as `counts`."""
        results, problem = self._form.results, self._problem
        step = self._of_rows(delta_name(plan), rows)
        step.operand("out", OUT)
        step.operand("dout", self._places.dout)
        step.operand("lse", LSE)
        if results.dlse is not None:
            step.operand("dlse", self._places.dlse)
        assert results.out is not None
        step.workspace("statistics", statistics)
        step.workspace("dq_sum", rows.dq_sum)
        if counts:
            step.workspace("counts", rows.dq_sum + rows.sum_words * _WORD_BYTES)
        step.set({"sum_words": rows.sum_words // rows.all_blocks, "count_words": counts})
        step.set(Strides.of(results.out, problem).fields("out") | Strides.of(results.dout, problem).fields("dout"))
        return self._built(step, delta_name(plan), rows)

    def _rounded_dq(self) -> Iterator[Step]:
        plan, rows, problem = self._plan, self._rows, self._problem
        step = self._of_rows(dq_sum_name(plan), rows)
        step.operand("dq", self._places.dq)
        step.workspace("dq_sum", rows.dq_sum)
        step.set(self._output_strides("dq"))
        if plan.family == "portable" or plan.variant.scale is not None:  # the sum has been scaled
            step.set({"factor": 1.0})
        elif self._form.scale_given:
            step.operand("factor", SCALE)
        else:
            step.set({"factor": plan.head_dim**-0.5})
        if not rows.sum_words:
            return
        numbers = self._numbers if self._owners else None  # those that it waits for, see finished.cuh
        if numbers is not None:
            step.workspace("finished", numbers.finished)
            step.set({"group": problem.group, "adders": plan.kv_blocks(problem) * _ADDER_WARPS})
        yield self._built(step, dq_sum_name(plan), rows, None if numbers is None else EARLY)

    def _of_rows(self, name: str, rows: _Rows) -> StepBuilder:
        """A kernel whose warps take blocks of rows."""
        step, problem = StepBuilder(self._family.layout(name)), self._problem
        if problem.packed:
            step.operand("cu_seqlens_q", CU_SEQLENS_Q)
        sizes = {"batch": problem.batch, "num_heads": problem.num_heads, "q_len": problem.q_len}
        step.set({**sizes, "row_blocks": rows.blocks})
        return step

    def _built(self, step: StepBuilder, name: str, rows: _Rows, attribute: Attribute | None = None) -> Step:
        function = self._family.function(name)
        return step.build(function, checked_grid(-(-rows.all_blocks // (function.threads // 32))), attribute)
