"""What a rank computes itself: its rows of q, with K and V in logical order.

Two ways. Kernels have one launch for each run of neighbouring chunks, by `q_offset`; where the variant reads q_idx or
q_len, a further input says what they are (`query_places`). Dropout needs the place of a row for its bits: the executor
computes such calls over q of full length, tiles of own rows alone, and GPUs don't.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ..compiler import CompiledStore
from ..diagnostics import AttnccError
from ..ir import Variant
from ..problem.call_arguments import Arguments
from ..problem.gradients import Gradients
from ..problem.inputs import check_positions
from ..problem.refusal import refused
from ..runtime.call.backward import run_backward_on_host
from ..runtime.call.backward_arguments import BackwardArguments
from ..runtime.call.host import run_on_host
from ..runtime.frameworks.arrays import framework_of
from ..runtime.frameworks.framework import HostFramework
from ..runtime.kernel import Kernel
from .plan_data import MaskPlan, PlanData
from .query_places import Q_PLACE, cuts, why_not_placed, why_placed, with_places

Tensor = Any
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Options:
    """What a call gives beside tensors that have gradients."""

    inputs: Mapping[str, Any]
    scale: float | None
    layout: str
    seed: Any

    @property
    def axis(self) -> int:
        """Of rows in q, k, v and out."""
        return -2 if self.layout == "bhsd" else -3


class Given(NamedTuple):
    """The forward call's operands and results: own rows of q, out and lse; k and v as they were saved."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor | None


class ToBackward(NamedTuple):
    dout: Tensor
    dlse: Tensor | None


class Arriving(Protocol):
    """K and V of full length, which others' rows are on their way to."""

    k: Tensor
    v: Tensor

    @property
    def complete(self) -> bool: ...

    def wait(self) -> None: ...


class Leaving(Protocol):
    """Gradients of others' rows, which go back once no launch adds to them."""

    def start(self, dk: Tensor, dv: Tensor) -> None: ...


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


@dataclass(frozen=True)
class _Run:
    """Neighbouring chunks: rows of local tensors, and what the call says of them."""

    begin: int
    end: int
    row: int  # that the first is among those of all ranks
    arguments: Mapping[str, Any]
    place: Tensor  # int32 [sequences, 2]: of the first query in its sequence, and how many the sequence has
    packed: bool


class ByOffset:
    """A launch for each run of neighbouring chunks. Those whose keys are all here go first, while others travel."""

    def __init__(self, kernel: Kernel, plan: PlanData, mask: MaskPlan, rank: int, device: Any) -> None:
        self._kernel = kernel
        self._cut = dict(cuts(kernel.variant, packed=plan.lengths.packed))  # axes of inputs along q
        self._placed = any(item.name == Q_PLACE for item in kernel.variant.inputs)
        rows, local = plan.rows(rank), plan.local_rows(rank, mask)
        runs = [(_run(plan, own, begin, device), local[begin]) for begin, own in _neighbours(rows, local)]
        self._runs = [run for run, _ in runs]
        self._here = [number for number, (_, here) in enumerate(runs) if here]
        self._others = [number for number, (_, here) in enumerate(runs) if not here]

    def forward(self, q: Tensor, arriving: Arriving, options: Options) -> tuple[Tensor, Tensor | None]:
        softmax = self._kernel.variant.normalize == "softmax"
        more: dict[str, Any] = {"scale": options.scale, "layout": options.layout, "return_lse": softmax}
        found: dict[int, Any] = {}
        for number in self._waiting(arriving):
            run = self._runs[number]
            own = q.narrow(options.axis, run.begin, run.end - run.begin)
            inputs = self._inputs(run, q, options)
            found[number] = self._kernel(own, arriving.k, arriving.v, **run.arguments, **more, **inputs)
        in_order = [found[number] for number in range(len(self._runs))]
        if not softmax:
            return torch.cat(in_order, dim=options.axis), None
        outs, lses = zip(*in_order, strict=True)
        return torch.cat(outs, dim=options.axis), torch.cat(lses, dim=-1)

    def _waiting(self, arriving: Arriving) -> Iterator[int]:
        """The runs whose keys are here; when the others' are, too, the rest."""
        yield from self._here
        arriving.wait()
        yield from self._others

    def backward(
        self, given: Given, arriving: Arriving, back: ToBackward, options: Options, leaving: Leaving, *, repeats: bool
    ) -> Gradients:
        """dq of own rows; dk and dv of full length, in fp32 or wider. `repeats`: to the bit in every run.

        Runs whose keys are all here go on while rows travel: K and V before the others, their gradients behind them.
        """
        wide = torch.promote_types(arriving.k.dtype, torch.float32)
        dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (arriving.k, arriving.v))
        total = _Total(dk, dv, {}, {})
        later = self._here if arriving.complete else []
        for number in self._others if arriving.complete else self._waiting(arriving):
            self._add_backward(number, total, given, arriving, back, options, repeats=repeats)
        leaving.start(total.dk, total.dv)
        for number in later:
            self._add_backward(number, total, given, arriving, back, options, repeats=repeats)
        dq = torch.cat([total.dq[number] for number in range(len(self._runs))], dim=options.axis)
        return Gradients(dq, total.dk, total.dv, total.inputs)

    def _add_backward(  # noqa: PLR0917  (what one launch reads, and where it adds)
        self,
        number: int,
        total: _Total,
        given: Given,
        arriving: Arriving,
        back: ToBackward,
        options: Options,
        *,
        repeats: bool,
    ) -> None:
        run = self._runs[number]
        cut = _Cut(run.begin, run.end - run.begin, options.axis)
        found = self._kernel.backward(
            cut(back.dout),
            cut(given.q),
            arriving.k,
            arriving.v,
            cut(given.out) if given.lse is not None else None,
            cut.of_lse(given.lse),
            dlse=cut.of_lse(back.dlse),
            deterministic=repeats,
            scale=options.scale,
            layout=options.layout,
            **run.arguments,
            **self._inputs(run, given.q, options),
        )
        total.dq[number] = found.dq
        total.dk.add_(found.dk)
        total.dv.add_(found.dv)
        for name, value in found.inputs.items():
            self._add(total.inputs, name, value, run, options)

    def _inputs(self, run: _Run, q: Tensor, options: Options) -> dict[str, Any]:
        """Those along q cut to the rows of a run, and where these are."""
        length = run.end - run.begin
        found = {
            name: value.narrow(self._cut[name], run.row, length) if name in self._cut else value
            for name, value in options.inputs.items()
        }
        if self._placed:
            found[Q_PLACE] = run.place if run.packed else run.place.expand(q.shape[0], 2).contiguous()
        return found

    def _add(self, total: dict[str, Tensor], name: str, part: Tensor, run: _Run, options: Options) -> None:
        """Adds the gradient of an input that one launch found to that of the whole input."""
        if name not in total:
            total[name] = torch.zeros_like(options.inputs[name], dtype=torch.promote_types(part.dtype, torch.float32))
        axis = self._cut.get(name)
        own = total[name] if axis is None else total[name].narrow(axis, run.row, run.end - run.begin)
        own += part


class _Total(NamedTuple):
    """What launches found so far; dq by run."""

    dk: Tensor
    dv: Tensor
    dq: dict[int, Tensor]
    inputs: dict[str, Tensor]


class _Cut(NamedTuple):
    """Some rows of local tensors."""

    begin: int
    length: int
    axis: int

    def __call__(self, x: Tensor) -> Tensor:
        return x.narrow(self.axis, self.begin, self.length).contiguous()

    def of_lse(self, x: Tensor | None) -> Tensor | None:
        return None if x is None else x.narrow(-1, self.begin, self.length).contiguous()


def _neighbours(rows: Rows, local: NDArray[np.bool_]) -> Iterator[tuple[int, Rows]]:
    """Runs of own rows that are neighbours in the sequence and alike in being `local`, and where each begins in local
    tensors."""
    cuts = [0, *(np.flatnonzero((np.diff(rows) != 1) | (local[1:] != local[:-1])) + 1).tolist(), len(rows)]
    yield from ((begin, rows[begin:end]) for begin, end in pairwise(cuts))


def _run(plan: PlanData, rows: Rows, begin: int, device: Any) -> _Run:
    lengths, first, end = plan.lengths, int(rows[0]), int(rows[-1]) + 1
    starts = np.asarray(lengths.q_starts)
    inside = np.clip(starts, first, end)
    begins = inside[:-1] - starts[:-1]
    place = _int32(np.stack([begins, np.asarray(lengths.q)], axis=1), device)
    offset = np.asarray(lengths.kv) - np.asarray(lengths.q) + begins
    if not lengths.packed:
        return _Run(begin, begin + len(rows), first, {"q_offset": int(offset[0])}, place, packed=False)
    arguments = {"cu_seqlens_q": inside - first, "cu_seqlens_kv": np.asarray(lengths.kv_starts), "q_offset": offset}
    tensors = {name: _int32(x, device) for name, x in arguments.items()}
    return _Run(begin, begin + len(rows), first, tensors, place, packed=True)


def _int32(x: Rows, device: Any) -> Tensor:
    return torch.from_numpy(x.astype(np.int32)).to(device)


class OverWhole:
    """The executor over q of full length, tiles of own rows alone. On the CPU."""

    def __init__(self, kernel: Kernel, plan: PlanData, rank: int) -> None:
        self._kernel, self._plan = kernel, plan
        self._rows = torch.from_numpy(plan.rows(rank))
        self._own = np.zeros(plan.lengths.q_rows, np.bool_)
        self._own[plan.rows(rank)] = True

    def forward(self, q: Tensor, arriving: Arriving, options: Options) -> tuple[Tensor, Tensor | None]:
        softmax = self._kernel.variant.normalize == "softmax"
        call = self._call(q, arriving, options)._replace(return_lse=softmax)
        found = run_on_host(self._kernel.store, _framework(q), call, self._own)
        out, lse = found if softmax else (found, None)
        return out.index_select(options.axis, self._rows), None if lse is None else lse.index_select(-1, self._rows)

    def backward(
        self, given: Given, arriving: Arriving, back: ToBackward, options: Options, leaving: Leaving, *, repeats: bool
    ) -> Gradients:
        """As `ByOffset.backward`."""
        out = None if given.lse is None else self._whole(given.out, options.axis, 0)
        lse, dlse = (None if x is None else self._whole(x, -1, own) for x, own in ((given.lse, np.inf), (back.dlse, 0)))
        call = self._call(given.q, arriving, options)
        whole = BackwardArguments(call, self._whole(back.dout, options.axis, 0), out, lse, dlse, repeats)
        found = run_backward_on_host(self._kernel.store, _framework(given.q), whole, self._own)
        wide = torch.promote_types(given.k.dtype, torch.float32)
        dk, dv = found.dk.to(wide), found.dv.to(wide)
        leaving.start(dk, dv)
        return Gradients(found.dq.index_select(options.axis, self._rows), dk, dv, found.inputs)

    def _call(self, q: Tensor, arriving: Arriving, options: Options) -> Arguments:
        """When all of its keys are here."""
        arriving.wait()
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
