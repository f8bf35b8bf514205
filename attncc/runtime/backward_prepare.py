"""From a checked backward call to its launches: delta, the kernel that owns keys, and dQ rounded or made on its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..ir import Input
from ..problem import ArrayFacts, Call, Problem
from ..problem.gradients import Results
from ..schedule.plan import DTYPE_BYTES, KernelPlan
from .arrays import Array, DeviceFramework
from .call_fields import set_call, survey_steps
from .family import Family
from .operands import CU_SEQLENS_Q, INPUTS, LSE, OUT, K, Q, V
from .prepare import checked_grid, warps_grid
from .steps import Step, StepBuilder, Zero
from .store import delta_name, dq_sum_name, kernel_name
from .strides import Strides, contiguous
from .workspace import Workspace

ROW_BLOCK = 16  # rows of a block of statistics, and of the sum of dQ
_STATISTICS_BYTES = 8  # of a row
_WORD_BYTES = 4
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
    steps: tuple[Step, ...]
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
    packs = tuple(_packs(family.plans[0], form, problem, places))
    preparation = _Preparation(family, _repacked(form, [name for name, _ in packs]), problem, places)
    steps = tuple(preparation.steps())
    learnable = [item for item in family.plans[0].variant.inputs if item.learnable]
    shapes = [_shape_of(form.call, item) for item in learnable]
    call, words = form.call, (preparation.workspace.size // _WORD_BYTES,)
    return BackwardPrepared(
        family,
        steps,
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


def _shape_of(call: Call, item: Input) -> tuple[int, ...]:
    """The shape of what was given for an input; () for a number."""
    facts = dict(call.inputs)[item.name]
    return facts.shape if isinstance(facts, ArrayFacts) else ()


def _packs(plan: KernelPlan, form: BackwardForm, problem: Problem, places: BackwardPlaces) -> Iterator[tuple[str, int]]:
    """Operands that 16-byte accesses can't read, and rows' values that aren't one after the other."""
    call, results = form.call, form.results
    tiled = [("q", Q, call.q), ("k", K, call.k), ("v", V, call.v), ("dout", places.dout, results.dout)]
    if results.out is not None:
        tiled.append(("out", OUT, results.out))
    for name, operand, facts in tiled:
        if name in form.misaligned or not Strides.of(facts, problem).aligned(DTYPE_BYTES[plan.dtype]):
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


class _Preparation:
    """Builds the launches of one call, in order."""

    def __init__(self, family: Family, form: BackwardForm, problem: Problem, places: BackwardPlaces) -> None:
        self._family, self._form, self._problem, self._places = family, form, problem, places
        self._plan, self._dq_plan = family.plans
        self._batch = 1 if problem.packed else problem.batch
        self._row_blocks = problem.q_blocks(ROW_BLOCK)
        self.workspace = Workspace()
        rows = self._batch * problem.num_heads * self._row_blocks * ROW_BLOCK
        self._adds_dq = self._plan.adds_dq and not form.deterministic
        self._statistics = self.workspace.take(rows * _STATISTICS_BYTES) if self._plan.needs_delta else None
        self._sum_words = rows * self._plan.padded_head_dim if self._adds_dq else 0
        self._dq_sum = self.workspace.take(self._sum_words * _WORD_BYTES)

    def steps(self) -> Iterator[Step]:
        if self._sum_words:
            yield Zero(self._family.device.context, self._dq_sum, self._sum_words)
        if self._plan.needs_delta and self._row_blocks:
            yield self._delta()
        keys = self._problem.kv_len // self._plan.block_kv + self._problem.batch
        if not self._problem.packed:
            keys = -(-self._problem.kv_len // self._plan.block_kv)
        owners = self._batch * self._problem.num_kv_heads * keys * self._plan.gradient_parts
        yield from self._main(self._plan, {"kv_blocks": keys}, owners, ("dk", "dv"))
        if self._adds_dq:
            yield from self._rounded_dq()
        else:
            rows = self._problem.q_blocks(self._dq_plan.block_q)
            owners = self._batch * self._problem.num_heads * rows
            yield from self._main(self._dq_plan, {"q_blocks": rows, "splits": 1}, owners, ("dq",))

    def _main(self, plan: KernelPlan, blocks: dict[str, int], grid: int, outputs: tuple[str, ...]) -> Iterator[Step]:
        name, problem, form = kernel_name(plan), self._problem, self._form
        main = StepBuilder(self._family.layout(name))
        set_call(main, plan, form.call, problem, scale_given=form.scale_given)
        sizes = {name: getattr(problem, name) for name in ("batch", "num_heads", "num_kv_heads", "q_len", "kv_len")}
        main.set({**sizes, **blocks, "row_blocks": self._row_blocks})
        main.operand("dout", self._places.dout)
        call = form.call
        for tensor, facts in (("q", call.q), ("k", call.k), ("v", call.v), ("dout", form.results.dout)):
            main.set(Strides.of(facts, problem).fields(tensor))
        for output in outputs:
            main.operand(output, getattr(self._places, output))
            main.set(self._output_strides(output))
        if self._statistics is not None:
            main.workspace("statistics", self._statistics)
        if plan.pass_name == "backward" and self._adds_dq:
            main.workspace("dq_sum", self._dq_sum)
        if grid:
            yield from survey_steps(self._family, plan, call, problem, self.workspace, main)
            yield main.build(self._family.function(name), checked_grid(grid))

    def _output_strides(self, name: str) -> dict[str, int]:
        shape = {"dq": self._form.call.q, "dk": self._form.call.k, "dv": self._form.call.v}[name].shape
        return Strides.of(ArrayFacts(shape, contiguous(shape), ""), self._problem).fields(name)

    def _delta(self) -> Step:
        results, problem = self._form.results, self._problem
        step = self._of_rows(delta_name(self._plan))
        step.operand("out", OUT)
        step.operand("dout", self._places.dout)
        step.operand("lse", LSE)
        if results.dlse is not None:
            step.operand("dlse", self._places.dlse)
        assert results.out is not None and self._statistics is not None
        step.workspace("statistics", self._statistics)
        step.set(Strides.of(results.out, problem).fields("out") | Strides.of(results.dout, problem).fields("dout"))
        return self._built(step, delta_name(self._plan))

    def _rounded_dq(self) -> Iterator[Step]:
        step = self._of_rows(dq_sum_name(self._plan))
        step.operand("dq", self._places.dq)
        step.workspace("dq_sum", self._dq_sum)
        step.set(self._output_strides("dq"))
        if self._sum_words:
            yield self._built(step, dq_sum_name(self._plan))

    def _of_rows(self, name: str) -> StepBuilder:
        """A kernel whose warps take blocks of rows."""
        step, problem = StepBuilder(self._family.layout(name)), self._problem
        if problem.packed:
            step.operand("cu_seqlens_q", CU_SEQLENS_Q)
        sizes = {"batch": problem.batch, "num_heads": problem.num_heads, "q_len": problem.q_len}
        step.set({**sizes, "row_blocks": self._row_blocks})
        return step

    def _built(self, step: StepBuilder, name: str) -> Step:
        function = self._family.function(name)
        blocks = math.prod((self._batch, self._problem.num_heads, self._row_blocks))
        return step.build(function, warps_grid(blocks, function, self._family.device))
