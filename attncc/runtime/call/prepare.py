"""From a checked call to its launches: plan, grid, splits, workspace, and all fields that shapes decide.

What `prepare` makes serves every later call with the same shapes, strides and dtypes, which then brings only pointers
and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ...diagnostics import AttnccError, Diagnostic
from ...kernels.decode.facts import Decode
from ...kernels.helpers import combine, tile_lists, transposition
from ...kernels.helpers.tile_lists import TileLists
from ...kernels.helpers.transposition import TransposedValues, pays
from ...kernels.kernel_names import kernel_name
from ...kernels.live_tiles import most_tiles
from ...kernels.pages import page_fields
from ...kernels.registry import forward_facts
from ...kernels.shared_prefix import LEAST_PARTS
from ...kernels.splits import choose_splits
from ...problem import ArrayFacts, Call, Problem
from ...problem.facts import out_dtype
from ...problem.strides import dense_like
from ...schedule.plan import DTYPE_BYTES, KernelPlan
from ..cuda.counters import Counters
from ..cuda.driver import MAX_GRID, Device, Function
from ..frameworks.framework import Array, DeviceFramework
from ..store.loaded_kernels import LoadedKernels
from .call_fields import prepass_steps, set_call
from .decode_launch import decode_grid, prefix_fields, set_decode, take_slots
from .narrowed import Narrowed, narrow
from .operands import COUNTER, CU_SEQLENS_KV, LSE, OUT, K, Q, V
from .overlap import Spans, spans_of
from .persistent import alike, clusters, has_short_blocks, head_swizzle
from .prefix_launch import over_prefix, set_rows, with_rows_copied
from .repeated import EARLY, PAIRED
from .steps import KernelStep, Launches, Step, StepBuilder
from .strides import Strides, filled, result_like
from .tensor_maps import OperandMap, mappable, mapped, operand_maps
from .workspace import KEPT_BYTES, KeptWorkspaces, Workspace, kept_workspaces

_WORD_BYTES = 4  # the workspace is allocated as fp32
_MANY_KEYS = 256  # from so many on, what hints say of inputs may spare more than it takes to verify


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a call needs besides its pointers and numbers."""

    framework: DeviceFramework
    kernels: LoadedKernels
    launches: Launches  # none, if there are no rows to compute
    new_out: Callable[[], Array]
    new_lse: Callable[[], Array] | None
    new_workspace: Callable[[], Array] | None
    kept: KeptWorkspaces | None  # in its place on the default stream, if it is small
    counters: Counters | None  # if the launch counts
    new_counter: Callable[[], Array] | None  # for launches that can't use those of the stream
    packs: tuple[tuple[int, int], ...]  # of the operands Q, K, V: those to copy first for 16-byte accesses; columns
    narrowed: tuple[Narrowed, ...]
    stages_out: bool  # the caller's `out` isn't aligned: computed elsewhere, then copied
    spans: Spans | None  # where the caller's `out` and what is read lie, if there is such an `out`
    by_key_head: tuple[int, str, int] | None  # what `framework.by_key_head` takes, where a launch reads q so
    copies: bool  # whether operands are copied first, for any of these reasons


@dataclass(frozen=True, slots=True)
class CallForm:
    """What decides a call's launches besides the facts that `bind` checks."""

    call: Call
    misaligned: tuple[str, ...]  # of q, k, v, out: those whose base isn't a multiple of 16 bytes
    scale_given: bool


def prepare(framework: DeviceFramework, kernels: LoadedKernels, form: CallForm, problem: Problem) -> Prepared:
    """The launches of a call that `bind` has checked. AttnccError A653 if its grid is larger than a GPU takes."""
    plan = kernels.plan(problem)
    call, packs, stages_out = _repacked(form, problem, plan)
    call, narrowed = narrow(call, plan.variant.inputs)
    workspace = Workspace()
    steps: tuple[Step, ...] = ()
    counters: Counters | None = None
    by_key_head: tuple[int, str, int] | None = None
    if problem.batch * problem.total_q * problem.num_heads:
        preparation = _Preparation(kernels, plan, call, form.scale_given, problem, workspace)
        steps, counters = preparation.steps(), preparation.counters
        if preparation.reads_by_key_head:
            by_key_head = problem.num_kv_heads, problem.layout, plan.stored_head_dim
    ordinal = kernels.device.ordinal
    columns = plan.stored_value_head_dim
    new_out = result_like(framework, form.call.q, problem.out_shape, out_dtype(call.q.dtype), columns, ordinal)
    new_lse = framework.allocator(problem.lse_shape, "float32", ordinal) if call.return_lse else None
    words = (workspace.size // _WORD_BYTES,)
    new_workspace = framework.allocator(words, "float32", ordinal) if workspace.size else None
    new_counter = framework.allocator((counters.words,), "float32", ordinal) if counters else None
    spans = spans_of(form.call, [item.name for item in plan.variant.inputs])
    kept = kept_workspaces(kernels.driver, kernels.device) if 0 < workspace.size <= KEPT_BYTES else None
    return Prepared(
        framework,
        kernels,
        Launches(steps, kernels.driver),
        new_out,
        new_lse,
        new_workspace,
        kept,
        counters,
        new_counter,
        packs,
        narrowed,
        stages_out,
        spans,
        by_key_head,
        bool(packs or narrowed or by_key_head),
    )


def _repacked(form: CallForm, problem: Problem, plan: KernelPlan) -> tuple[Call, tuple[tuple[int, int], ...], bool]:
    """The call after the copies that 16-byte accesses and TMA need, the operands to copy, with the columns of their
    copies, and whether `out` is copied to."""
    columns = dict(
        zip(("q", "k", "v", "out"), (plan.stored_head_dim, *plan.kv_columns, plan.stored_value_head_dim), strict=True)
    )
    out_bytes = DTYPE_BYTES[plan.out_dtype]
    element_bytes = {"q": plan.element_bytes, "k": plan.kv_bytes, "v": plan.kv_bytes, "out": out_bytes}

    def unfit(name: str, facts: ArrayFacts) -> bool:
        if facts.shape[-1] != columns[name]:
            return True
        if name in mapped(plan) and not mappable(plan, name, facts, problem):
            return True
        strides = Strides.of(facts, problem)
        if plan.paged and name in ("k", "v") and min(strides.batch, strides.row) < 0:
            return True  # kernels take a row before the pool's first for none
        return name in form.misaligned or not strides.aligned(element_bytes[name])

    call = form.call
    operands = {Q: ("q", call.q), K: ("k", call.k), V: ("v", call.v)}
    packs = tuple((operand, columns[name]) for operand, (name, facts) in operands.items() if unfit(name, facts))
    q, k, v = (
        filled(facts, columns[name]) if (operand, columns[name]) in packs else facts
        for operand, (name, facts) in operands.items()
    )
    stages_out = call.out is not None and unfit("out", call.out)
    out = call.out
    if out is None or stages_out:
        shape = (*problem.out_shape[:-1], columns["out"])
        out = ArrayFacts(shape, dense_like(shape, call.q), out_dtype(call.q.dtype))
    return call._replace(q=q, k=k, v=v, out=out), packs, stages_out


def few_keys(plan: KernelPlan, problem: Problem) -> bool:
    """Whether sorted hints are left unverified where all blocks run at once."""
    return plan.loop == "q_outer" and not problem.packs_keys and problem.kv_len < _MANY_KEYS


class _Preparation:
    """Builds the launches of one call, in order: pre-passes over inputs, lists of tiles, V transposed, the plan's
    kernel, the combine."""

    def __init__(  # noqa: PLR0917
        self,
        kernels: LoadedKernels,
        plan: KernelPlan,
        call: Call,
        scale_given: bool,
        problem: Problem,
        workspace: Workspace,
        rows_behind: int | None = None,
    ) -> None:
        """`rows_behind`: of a launch over a prefix, whose partial results stay, with so many rows behind them."""
        self._rows_behind = rows_behind
        self._kernels, self._plan, self._call, self._problem = kernels, plan, call, problem
        self._scale_given, self._workspace = scale_given, workspace
        self._facts = forward_facts(plan)
        self._function = kernels.function(kernel_name(plan))
        self._heads = problem.num_heads * (1 if problem.packed else problem.batch)
        self._blocks = self._facts.heads(problem) * self._facts.q_blocks(problem)  # of the q_outer grid, without splits
        self._splits = self._choose_splits()
        self._main = StepBuilder(kernels.layout(kernel_name(plan)))
        self._partials: dict[str, int] = {}  # offsets in the workspace
        self._over_prefix: tuple[Step, ...] = ()
        self.counters: Counters | None = None  # that the launch counts with

    def steps(self) -> tuple[Step, ...]:
        set_call(self._main, self._plan, self._call, self._problem, scale_given=self._scale_given)
        self._set_sizes()
        self._set_results()
        prepasses = prepass_steps(
            self._kernels,
            self._plan,
            self._call,
            self._problem,
            self._workspace,
            self._main,
            verified=self._hints_pay(),
        )
        before = (*prepasses, *self._tile_lists(), *self._transposition())
        main = self._launch()
        combine = (self._combine(),) if self._splits > 1 and self._rows_behind is None else ()
        return (*before, *self._over_prefix, main, *combine)

    @property
    def reads_by_key_head(self) -> bool:
        """Whether a launch reads q by key heads."""
        return bool(self._over_prefix)

    def _hints_pay(self) -> bool:
        """Whether to verify sorted hints: not for few keys and blocks that all run at once, since the launch takes
        longer than the tiles that it spares."""
        at_once = self._kernels.device.multiprocessors * self._function.resident_blocks
        return not few_keys(self._plan, self._problem) or self._blocks * self._splits > at_once

    def _choose_splits(self) -> int:
        plan, problem = self._plan, self._problem
        if plan.loop == "kv_outer" or isinstance(self._facts, Decode):
            return 1
        if plan.split_kv is not None:
            return plan.split_kv
        tiles = most_tiles(plan, problem)
        capacity = self._kernels.device.multiprocessors * self._function.resident_blocks
        splits = choose_splits(self._blocks, tiles, capacity)
        return splits if self._rows_behind is None else max(splits, LEAST_PARTS)

    def _grid(self) -> int:
        """The one dimension of the launch: (batch, head, split, q block), or (batch, head) where keys are outermost."""
        if self._plan.loop == "kv_outer":
            grid = self._problem.batch * self._problem.num_heads
        else:
            grid = self._blocks * self._splits
        return checked_grid(grid)

    @cached_property
    def _maps(self) -> tuple[OperandMap, ...]:
        return operand_maps(self._plan, self._call.q, self._call.k, self._call.v, self._problem)

    def _launch(self) -> Step:
        """That of the plan's own kernel."""
        if isinstance(self._facts, Decode):
            return self._decode(self._facts)
        return self._persistent() if self._facts.persistent else self._block_by_block()

    def _decode(self, facts: Decode) -> Step:
        """A launch of thread blocks that share out all tiles of keys, and count themselves where they cut some item."""
        device = self._kernels.device
        resident = device.multiprocessors * self._function.resident_blocks
        grid = decode_grid(facts, self._problem, resident)
        rows = facts.slots(self._problem, grid) * facts.slot_rows(self._problem)
        slots = self._behind_prefix(rows) or take_slots(self._workspace, self._plan, rows)
        set_decode(self._main, facts, self._problem, slots, self._kernels.chip)
        self.counters = self._kernels.arrivals
        self._main.maps(self._maps)
        return self._main.build(self._function, grid, *([EARLY] if self._plan.begins_early else []))

    def _behind_prefix(self, rows: int) -> dict[str, int] | None:
        """Prepares the launch over a prefix. Where the slots are, of so many rows: behind its partial results. None if
        there is no such launch."""
        if not self._plan.prefixed:
            return None
        found = over_prefix(self._kernels, self._call, self._problem)
        if found is None:
            self._main.set(prefix_fields(self._problem, 0, 0))
            return None
        plan, call, seen = found
        over = _Preparation(self._kernels, plan, call, self._scale_given, seen, self._workspace, rows)
        set_rows(over._main, plan, self._call, self._problem)
        (step,) = over.steps()
        assert isinstance(step, KernelStep)
        self._over_prefix = (with_rows_copied(step),)
        self._main.set(prefix_fields(self._problem, seen.kv_len, over._splits))
        return {name: offset + over._partial_bytes(name) for name, offset in over._partials.items()}

    def _block_by_block(self) -> Step:
        """A launch with a thread block for each block of queries."""
        self._main.maps(self._maps)
        return self._main.build(self._function, self._grid())

    def _persistent(self) -> Step:
        """A launch of thread blocks that stay. More blocks of queries than fit the GPU at once are shared out if they
        are alike, else claimed one by one."""
        main, blocks, device = self._main, self._grid(), self._kernels.device
        resident = device.multiprocessors * self._function.resident_blocks
        main.maps(self._maps)
        main.set({"blocks": blocks})
        ahead = pays(self._plan, self._problem)  # else each block transposes V for itself
        alone = self._facts.transposes_values and not ahead
        together = [PAIRED] if clusters(self._plan, self._problem, resident) and not alone else []
        unlike = not alike(self._plan, self._problem) or (not together and has_short_blocks(self._plan, self._problem))
        if blocks > resident and unlike and self._rows_behind is None:
            self.counters = self._kernels.counters
            main.operand("next_block", COUNTER)
        return main.build(self._function, min(blocks, resident), *together, *([EARLY] if ahead else []))

    def _set_sizes(self) -> None:
        problem, call = self._problem, self._call
        sizes = {name: getattr(problem, name) for name in ("batch", "num_heads", "num_kv_heads", "q_len", "kv_len")}
        if not isinstance(self._facts, Decode):
            heads = (
                head_swizzle(self._plan, problem, self._facts.heads(problem), self._kernels.device.l2_bytes)
                * self._splits
            )
            sizes |= {"q_blocks": self._facts.q_blocks(problem), "splits": self._splits, "head_swizzle": heads}
            sizes |= self._facts.heads_in_rows(problem)
        self._main.set(sizes)
        if self._plan.paged:
            self._main.set(page_fields(self._plan.block_kv, problem, call.k.shape[0]))
        assert call.out is not None
        for name, facts in (("q", call.q), ("k", call.k), ("v", call.v), ("out", call.out)):
            self._main.set(Strides.of(facts, problem).fields(name))

    def _set_results(self) -> None:
        """Where the kernel writes: out and lse; with splits the partial results; kv_outer keeps its state there too."""
        plan, main = self._plan, self._main
        kv_outer = plan.loop == "kv_outer"
        if kv_outer or self._splits == 1:
            main.operand("out", OUT)
            self._operand_lse(main)
        if kv_outer or self._splits > 1:
            self._take_partial("partial_out")
            if kv_outer or plan.variant.normalize == "softmax":
                self._take_partial("row_max")
                self._take_partial("row_sum")

    def _operand_lse(self, step: StepBuilder) -> None:
        if self._call.return_lse:
            step.operand("lse", LSE)

    def _take_partial(self, name: str) -> None:
        behind = 4 * (self._rows_behind or 0) * self._row_floats(name)
        self._partials[name] = self._workspace.take(self._partial_bytes(name) + behind)
        self._main.workspace(name, self._partials[name])

    def _partial_bytes(self, name: str) -> int:
        """Of an array of partial results."""
        return 4 * self._splits * self._heads * self._problem.q_len * self._row_floats(name)

    def _row_floats(self, name: str) -> int:
        return self._plan.stored_value_head_dim if name == "partial_out" else 1

    def _tile_lists(self) -> Iterator[Step]:
        """The pre-pass that lists live tiles; it takes the fields of the kernel itself."""
        plan, main = self._plan, self._main
        if self._facts.tile_lists:
            lists = TileLists.of(plan, self._problem)
            function = self._kernels.function(tile_lists.kernel(self._facts).name)
            main.workspace("tile_lists", self._workspace.take(lists.bytes))
            device, warps = self._kernels.device, function.threads // 32
            parts = lists.parts(device.multiprocessors * function.resident_blocks * warps)
            sizes = {"list_batch": lists.batch, "list_heads": lists.heads, "list_words": lists.words}
            main.set({**sizes, "list_parts": parts})
            yield main.build(function, warps_grid(lists.count * parts, function, device))

    def _transposition(self) -> Iterator[Step]:
        """The kernel that transposes V of 8 bits, where that pays; the plan's own is told where it does."""
        plan, problem = self._plan, self._problem
        if not pays(plan, problem):
            return
        values, device = TransposedValues.of(plan, problem), self._kernels.device
        name = transposition.kernel(self._facts).name
        step, function = StepBuilder(self._kernels.layout(name)), self._kernels.function(name)
        strides = Strides.of(self._call.v, problem)
        sizes = {"batch": problem.batch, "num_kv_heads": problem.num_kv_heads, "kv_len": problem.kv_len}
        step.set({**sizes, "v_stride_batch": strides.batch, "v_stride_head": strides.head})
        if problem.packed:
            step.operand("cu_seqlens_kv", CU_SEQLENS_KV)
        offset = self._workspace.take(values.bytes)
        for taker in (step, self._main):
            taker.workspace("values_ahead", offset)
            taker.set({"kv_tiles": values.tiles})
        step.maps(self._maps[-1:])  # that of v
        yield step.build(function, min(values.count, device.multiprocessors * function.resident_blocks))

    def _combine(self) -> Step:
        """The kernel that merges partial results; packed rows are one dense sequence to it."""
        problem = self._problem
        name = combine.kernel(self._plan).name
        step, function = StepBuilder(self._kernels.layout(name)), self._kernels.function(name)
        step.operand("out", OUT)
        self._operand_lse(step)
        for name, offset in self._partials.items():
            step.workspace(name, offset)
        assert self._call.out is not None
        step.set(Strides.of(self._call.out, problem).fields("out"))
        batch = 1 if problem.packed else problem.batch
        sizes = {"batch": batch, "num_heads": problem.num_heads, "q_len": problem.q_len}
        step.set({**sizes, "splits": self._splits, "value_head_dim": self._plan.stored_value_head_dim})
        # A block takes a row at a time, or a row for each of its warps: one to spare has none.
        device = self._kernels.device
        grid = min(self._heads * problem.q_len, device.multiprocessors * function.resident_blocks)
        # Begun early, `combine` must wait. Packages of earlier versions hold one that doesn't, and no such plan.
        return step.build(function, grid, *([EARLY] if self._plan.split else []))


def warps_grid(items: int, function: Function, device: Device) -> int:
    """Blocks for a kernel whose warps take an item at a time until none is left: at most what the GPU holds at once."""
    return min(-(-items // (function.threads // 32)), device.multiprocessors * function.resident_blocks)


def checked_grid(blocks: int) -> int:
    """A launch's number of blocks. AttnccError A653 if it is larger than a GPU takes."""
    if blocks > MAX_GRID:
        raise AttnccError(
            Diagnostic(
                "A653",
                f"the call needs {blocks} blocks, a launch has at most {MAX_GRID}",
                help="split the batch into several calls",
            )
        )
    return blocks
