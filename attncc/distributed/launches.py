"""What a rank computes itself: its rows of q, with K and V in logical order.

Kernels have one launch for each run of neighbouring rows, by `q_offset`; of packed sequences, for many of these. Where
the variant reads q_idx or q_len, or has dropout, a further input says where its queries are (`query_places`). What has
no such kernel the executor computes on the CPU over q of full length, tiles of own rows alone; GPUs don't.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch

from ..compiler import CompiledStore
from ..diagnostics import AttnccError
from ..first_query import ALIGNMENT, Q_PLACE
from ..ir import Variant
from ..problem.call_arguments import Arguments, Given
from ..problem.inputs import check_positions
from ..problem.refusal import refused
from ..runtime.call.backward import run_backward_on_host
from ..runtime.call.backward_arguments import BackwardArguments
from ..runtime.call.host import run_on_host
from ..runtime.frameworks.arrays import framework_of
from ..runtime.frameworks.framework import HostFramework
from ..runtime.kernel import Kernel
from .call_parts import Arriving, Call, Cut, KeyRows, Options, Run, run_of, shares
from .head_groups import head_cuts
from .lanes import Lanes, Turns
from .plan_data import MaskPlan, PlanData
from .query_places import cuts, launched_together, why_not_placed, why_placed, with_places
from .row_runs import copy

Tensor = Any

NO_WEIGHT = 1e30  # lse of rows that are no queries: their probabilities are 0


class Saved(NamedTuple):
    """The forward call's operands and results: own rows of q, out and lse; k and v as they were saved."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor | None


class ToBackward(NamedTuple):
    dout: Tensor
    dlse: Tensor | None


class Leaving(Protocol):
    """Gradients of some heads of K and V, of each launch those of its keys: first of the launches that have others'
    rows among these, whose gradients go back, then of launches on own rows alone."""

    def start(self, group: int, found: Sequence[tuple[Tensor, Tensor]]) -> None: ...

    def add(self, group: int, dk: Tensor, dv: Tensor) -> None: ...


class Found(NamedTuple):
    """dq of own rows, and the gradients of learnable inputs; those of K and V leave."""

    dq: Tensor
    inputs: Mapping[str, Tensor]


def launches_of(kernel: Kernel, plan: PlanData, mask: MaskPlan, rank: int, device: Any) -> ByOffset | OverWhole:
    """How a rank computes. AttnccError A724 where a GPU can't, A611 where lengths of q and k have to be the same."""
    variant, lengths = kernel.variant, plan.lengths
    why = why_placed(variant, packed=lengths.packed)
    signature = kernel.configurations[0].signature(variant)
    for q_len, kv_len in zip(lengths.q, lengths.kv, strict=True):
        check_positions(signature, q_len, kv_len)
    stuck, makes = why_not_placed(variant, packed=lengths.packed), isinstance(kernel.store, CompiledStore)
    if torch.device(device).type == "cpu" and (stuck or (why and not makes)):
        return OverWhole(kernel, plan, rank)
    if stuck:
        raise _not_shared(variant, stuck, "compute the whole sequence on one GPU, or change the variant")
    if why and not makes:
        what = f"what {why}, which needs another kernel: a built package can't make one"
        raise _not_shared(variant, what, "compile it with attncc.compile, or write q_pos instead of q_idx")
    return ByOffset(_placed(kernel, packed=lengths.packed) if why else kernel, plan, mask, rank, device)


def _not_shared(variant: Variant, came: str, help_: str) -> AttnccError:
    what, expected = f"{variant.name} can't be shared between GPUs", "a variant that kernels compute by parts"
    return refused("A724", what, expected=expected, came=f"one with {came}", help=help_)


def _placed(kernel: Kernel, *, packed: bool) -> Kernel:
    """The kernel of the variant that reads the places of a launch's queries."""
    store = cast(CompiledStore, kernel.store).changed(lambda variant: with_places(variant, packed=packed))
    store.compile_now()
    return Kernel(store)


class _Runs(NamedTuple):
    """Those whose keys are all `here`, and the `others`, which are launched when theirs have come."""

    here: list[Run]
    others: list[Run]

    def keys(self, *, single: bool) -> KeyRows:
        return KeyRows(tuple(run.keys for run in self.others), tuple(run.keys for run in self.here), single)

    def count(self, arriving: Arriving) -> int:
        """Launches."""
        return len(self.here) + len(self.others) * len(arriving.heads)


class ByOffset:
    """A launch for each run of own rows and each group of heads, on the keys that it needs.

    Runs whose keys are all here go first, of all heads, while others travel; then, group by group, the rest.
    """

    def __init__(self, kernel: Kernel, plan: PlanData, mask: MaskPlan, rank: int, device: Any) -> None:
        self._kernel, variant, packed = kernel, kernel.variant, plan.lengths.packed
        self._kernels: dict[Any, Kernel] = {}  # of each launch: its form comes again in the next call
        self._cut = dict(cuts(variant, packed=packed))  # axes of inputs along q
        self._of_heads = dict(head_cuts(variant, packed=packed))  # and along heads
        self._placed = any(item.name == Q_PLACE for item in variant.inputs)
        self._learnable = [item.name for item in variant.inputs if item.learnable]
        self._drops, self._softmax = variant.dropout is not None, variant.normalize == "softmax"
        step, together = 1 if variant.dropout is None else ALIGNMENT, launched_together(variant, packed=packed)

        def waiting(some: int, *, back: bool) -> int:
            """Launches of a rank that wait for others' rows."""
            return sum(share.keys.own is None for share in shares(plan, mask, some, together=together, back=back))

        def runs(*, back: bool) -> _Runs:
            some = [
                run_of(plan, share, device, step) for share in shares(plan, mask, rank, together=together, back=back)
            ]
            here = sorted((run for run in some if run.own_keys is not None), key=lambda run: run.length)
            others = [run for run in some if run.own_keys is None]
            return _Runs(here, others[::-1])  # under causal masks the longest first

        self._runs, self._runs_back = runs(back=False), runs(back=True)
        self.keys, self.keys_back = (
            each.keys(single=all(waiting(some, back=back) <= 1 for some in range(plan.ranks)))
            for each, back in ((self._runs, False), (self._runs_back, True))
        )
        self._lanes = Lanes(device, several=not any(item.learnable for item in variant.inputs))

    def forward(self, q: Tensor, arriving: Arriving, options: Options) -> tuple[Tensor, Tensor | None]:
        whole = Call(q, arriving, options)
        out = torch.empty((*q.shape[:-1], arriving.v.shape[-1]), dtype=q.dtype, device=q.device)
        lse = whole.new_lse() if self._softmax else None
        first, runs = len(arriving.heads) == 1, self._runs
        with self._lanes.begin(arriving, runs.count(arriving)) as lanes:
            if first:
                self._launch_here(lanes, whole, out, lse)
            for number, heads in enumerate(arriving.heads):
                some = whole.of(heads)
                own_out, own_lse = some.heads_of(out), None if lse is None else some.heads_of(lse, -2)
                for run in runs.others:
                    lanes.next(number)
                    self._forward(some, run, own_out, own_lse)
                lanes.reach(number)
            if not first:  # a small group is soon there, and these fill what the last one leaves idle
                self._launch_here(lanes, whole, out, lse)
        return out, lse

    def _launch_here(self, lanes: Turns, call: Call, out: Tensor, lse: Tensor | None) -> None:
        for run in self._runs.here:
            lanes.next()
            self._forward(call, run, out, lse)

    def _forward(self, call: Call, run: Run, out: Tensor, lse: Tensor | None) -> None:
        """Of out and lse these are the call's heads."""
        cut = Cut(run, call.axis)
        into = cut.inside(out)
        # What is ahead would be written over others' rows.
        given = self._given(call, cut, None if run.ahead else into, return_lse=lse is not None)
        found = self._kernel_of(call, run).called(given, None)
        own_out, own_lse = found if lse is not None else (found, None)
        if run.ahead:
            into.copy_(cut.without_ahead(own_out))
        if lse is not None:
            cut.inside_lse(lse).copy_(cut.lse_without_ahead(own_lse))

    def _kernel_of(self, call: Call, run: Run) -> Kernel:
        key = run.begin, run.end, call.heads
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._kernel.sibling()
        return found

    def backward(
        self, given: Saved, arriving: Arriving, back: ToBackward, options: Options, leaving: Leaving, *, repeats: bool
    ) -> Found:
        """`repeats`: to the bit in every run.

        Runs whose keys are all here go on while rows travel: K and V before the others, their gradients behind them.
        """
        early, late = self._around(arriving)
        call, runs = Call(given.q, arriving, options), self._runs_back
        count = runs.count(arriving)
        work = _Backward(given, back, repeats, several=count > 1)
        with self._lanes.begin(arriving, count) as lanes:
            own = [self._in_lane(lanes, work, call, run) for run in early]
            last = len(arriving.heads) - 1
            for number, heads in enumerate(arriving.heads):
                some = call.of(heads)
                pairs = [self._in_lane(lanes, work, some, run, number) for run in runs.others]
                lanes.reach(number)
                if len(pairs) > 1:
                    lanes.join(x for pair in pairs[:-1] for x in pair)
                leaving.start(number, pairs)
            own += [self._in_lane(lanes, work, call, run, last) for run in late]  # not ahead of those that wait
        for found in own:
            for number, heads in enumerate(arriving.heads):
                leaving.add(number, *map(call.of(heads).heads_of, found))
        return Found(work.dq, work.inputs)

    def _around(self, arriving: Arriving) -> tuple[list[Run], list[Run]]:
        """Runs on own rows that hide the way of K and V, and those that hide the gradients' way back: this has twice
        the bytes, so the longest run, unless heads go back one after the other."""
        here = self._runs_back.here
        if arriving.complete:
            return [], here
        return (here[:-1], here[-1:]) if len(arriving.heads) == 1 else (here, [])

    def _in_lane(
        self, lanes: Turns, work: _Backward, call: Call, run: Run, group: int | None = None
    ) -> tuple[Tensor, Tensor]:
        lanes.next(group)
        return self._backward(work, call, run)

    def _backward(self, work: _Backward, call: Call, run: Run) -> tuple[Tensor, Tensor]:
        """dk and dv of the run's keys; adds dq and the gradients of inputs."""
        cut, given, back = Cut(run, call.axis), work.given, work.back
        # What is ahead would be written over others' rows.
        into = None if work.dq is None or run.ahead else cut.inside(call.heads_of(work.dq))
        dq, dk, dv, *inputs = _gradients(
            self._kernel_of(call, run),
            self._given(call, cut),
            cut(call.heads_of(back.dout)),
            None if given.lse is None else cut(call.heads_of(given.out)),
            None if given.lse is None else cut.of_lse(call.heads_of(given.lse, -2), NO_WEIGHT),
            None if back.dlse is None else cut.of_lse(call.heads_of(back.dlse, -2), 0),
            work.repeats,
            into,
        )
        if into is None:
            work.write_dq(call, cut, dq)
        for name, value in zip(self._learnable, inputs, strict=True):
            self._add(work.inputs, name, value, run, call)
        return dk, dv

    def _given(self, call: Call, cut: Cut, out: Tensor = None, *, return_lse: bool = False) -> Given:
        """The call of one launch: inputs along q cut to the rows of a run, those along heads to some heads, and where
        all of these are."""
        options, run = call.options, cut.run
        found = {name: self._own(name, value, run, call) for name, value in options.inputs.items()}
        if self._placed:
            found[Q_PLACE] = run.place if run.packed else run.place.expand(call.q.shape[0], 2).contiguous()
        seed = options.seed if self._drops else None
        operands = cut(call.q), *call.keys_of(run), found, options.scale, options.layout, *run.starts
        return *operands, None, None, run.q_offset, None, None, 0, seed, out, return_lse

    def _own(self, name: str, value: Any, run: Run, call: Call) -> Any:
        value = call.heads_of(value, self._of_heads[name]) if name in self._of_heads else value
        return value.narrow(self._cut[name], run.row, run.ahead + run.length) if name in self._cut else value

    def _add(self, total: dict[str, Tensor], name: str, part: Tensor, run: Run, call: Call) -> None:
        """Adds the gradient of an input that one launch found to that of the whole input."""
        if name not in total:
            whole = call.options.inputs[name]
            total[name] = torch.zeros_like(whole, dtype=torch.promote_types(part.dtype, torch.float32))
        own = self._own(name, total[name], run, call)
        own += part


def _gradients(kernel: Kernel, call: Given, *back: Any) -> list[Tensor]:
    """dq, dk, dv, and those of inputs: of a form that is known, or of another."""
    made = kernel.backward_again(call, *back)
    if made is not None:
        return made
    found = kernel.run_backward(BackwardArguments(Arguments(*call), *back))
    return [found.dq, found.dk, found.dv, *found.inputs.values()]


class _Backward:
    """What launches read, and what they found so far."""

    def __init__(self, given: Saved, back: ToBackward, repeats: bool, *, several: bool) -> None:
        self.given, self.back, self.repeats = given, back, repeats
        self.inputs: dict[str, Tensor] = {}
        self.dq = torch.empty_like(given.q) if several else None  # not in a lane: all of them write it

    def write_dq(self, call: Call, cut: Cut, found: Tensor) -> None:
        """What one of several launches found and didn't write itself, or the only one."""
        if self.dq is None:
            self.dq = cut.without_ahead(found)
        else:
            copy(cut.inside(call.heads_of(self.dq)), cut.without_ahead(found))


class OverWhole:
    """The executor over q of full length, tiles of own rows alone. On the CPU."""

    def __init__(self, kernel: Kernel, plan: PlanData, rank: int) -> None:
        self._kernel, self._plan = kernel, plan
        self._rows = torch.from_numpy(plan.rows(rank))
        self.keys = self.keys_back = KeyRows(((0, plan.lengths.kv_rows),), (), single=True)
        self._own = np.zeros(plan.lengths.q_rows, np.bool_)
        self._own[plan.rows(rank)] = True

    def forward(self, q: Tensor, arriving: Arriving, options: Options) -> tuple[Tensor, Tensor | None]:
        softmax = self._kernel.variant.normalize == "softmax"
        call = self._call(q, arriving, options)._replace(return_lse=softmax)
        found = run_on_host(self._kernel.store, _framework(q), call, self._own)
        out, lse = found if softmax else (found, None)
        return out.index_select(options.axis, self._rows), None if lse is None else lse.index_select(-1, self._rows)

    def backward(
        self, given: Saved, arriving: Arriving, back: ToBackward, options: Options, leaving: Leaving, *, repeats: bool
    ) -> Found:
        """As `ByOffset.backward`."""
        out = None if given.lse is None else self._whole(given.out, options.axis, 0)
        lse, dlse = (None if x is None else self._whole(x, -1, own) for x, own in ((given.lse, np.inf), (back.dlse, 0)))
        call = self._call(given.q, arriving, options)
        whole = BackwardArguments(call, self._whole(back.dout, options.axis, 0), out, lse, dlse, repeats)
        found = run_backward_on_host(self._kernel.store, _framework(given.q), whole, self._own)
        parts = Call(given.q, arriving, options)
        for number, heads in enumerate(arriving.heads):
            of_heads = parts.of(heads).heads_of
            leaving.start(number, [(of_heads(found.dk), of_heads(found.dv))])
        return Found(found.dq.index_select(options.axis, self._rows), found.inputs)

    def _call(self, q: Tensor, arriving: Arriving, options: Options) -> Arguments:
        """When all of its keys are here."""
        arriving.wait(len(arriving.heads) - 1)
        lengths = self._plan.lengths
        whole = self._whole(q, options.axis, 0)
        call = Arguments(
            whole, arriving.k, arriving.v, options.inputs, options.scale, options.layout, seed=options.seed
        )
        if not lengths.packed:
            return call
        starts = (torch.tensor(x, dtype=torch.int32) for x in (lengths.q_starts, lengths.kv_starts))
        return call._replace(**dict(zip(("cu_seqlens_q", "cu_seqlens_kv"), starts, strict=True)))

    def _whole(self, x: Tensor, axis: int, elsewhere: float) -> Tensor:
        axis %= x.dim()
        shape = (*x.shape[:axis], len(self._own), *x.shape[axis + 1 :])
        return torch.full(shape, elsewhere, dtype=x.dtype).index_copy_(axis, self._rows, x)


def _framework(q: Tensor) -> HostFramework:
    return cast(HostFramework, framework_of(q, "q"))
