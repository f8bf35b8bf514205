"""The backward pass on the CPU, tile by tile as kernels walk it: scores are computed again, P comes from lse.

Dao et al., "FlashAttention" (NeurIPS 2022), Algorithm 4, and in the order q_outer with the roles of q and k exchanged.
The outer side's gradients stay on chip; the inner side's are fp32 sums in HBM, which are rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.cost import Traffic
from ..analysis.gradient import gradient
from ..analysis.learnable import LearnableSums
from ..analysis.rules import TileKind
from ..evaluate import Environment, evaluate
from ..philox import LEVELS
from ..problem import Sequence, Signature
from ..problem.facts import INPUT_DTYPES
from ..problem.gradient_arrays import BoundBackward, bind_backward_arrays
from ..problem.gradients import Gradients
from ..schedule.plan import KernelPlan
from ..statements import sink_logits
from .run import DTYPES, compute_dtype, sequence_work, workload
from .work import LOG2_E, Heads, Meter, SequenceWork, product

Array = NDArray[Any]


@dataclass(frozen=True)
class BackwardResult:
    """The gradients, in the types of what they belong to; the bytes that the loop order moved between HBM and on-chip
    memory, and tiles by kind, over all heads."""

    gradients: Gradients
    traffic: Traffic
    tiles: Mapping[TileKind, int]


def run_backward(plan: KernelPlan, dout: Array, q: Array, k: Array, v: Array, /, **call: Any) -> BackwardResult:
    """The gradients of one call as the plan's kernels compute them. `call` holds out, lse (unless there is no softmax),
    dlse (None: zeros) and the keyword arguments of `run`. AttnccError A6xx for bad arguments."""
    return run_bound_backward(plan, bind_backward_for((plan,), dout, q, k, v, **call))


def bind_backward_for(
    plans: Collection[KernelPlan], dout: Array, q: Array, k: Array, v: Array, /, **call: Any
) -> BoundBackward:
    """Checks a backward call of any of these plans, all of one configuration. AttnccError A6xx."""
    plan = next(iter(plans))
    signature = Signature(plan.variant, plan.dtype, plan.head_dim, plan.value_head_dim)
    return bind_backward_arrays(signature, dout, q, k, v, **call)


def run_bound_backward(plan: KernelPlan, bound: BoundBackward) -> BackwardResult:
    """`run_backward`, of a call that was checked."""
    call, meter, compute = bound.call, Meter(), compute_dtype(plan)
    sums = LearnableSums(call, compute)
    dq, dk, dv = (np.zeros(array.shape, DTYPES[plan.dtype]) for array in (call.q, call.k, call.v))
    for sequence in call.problem.sequences():
        work = _backward_work(plan, bound, sequence, sums, meter)
        with np.errstate(invalid="ignore", over="ignore"):
            (kv_outer if plan.loop == "kv_outer" else q_outer)(work)
            found = work.finish()
        starts = (sequence.q_start, sequence.q_len), *((sequence.kv_start, sequence.kv_len),) * 2
        for array, rows, own in zip((dq, dk, dv), starts, found, strict=True):
            call.rows(array, sequence.b, *rows)[...] = own
    inputs = {name: array.astype(_input_dtype(plan, bound, name)) for name, array in sums.sums.items()}
    traffic = meter.traffic(workload(plan, call.problem))
    return BackwardResult(Gradients(dq, dk, dv, inputs), traffic, meter.tiles)


def _input_dtype(plan: KernelPlan, bound: BoundBackward, name: str) -> np.dtype[Any]:
    """That of the input's array: the declared one, but that fp64 kernels also take float64."""
    declared = np.dtype(INPUT_DTYPES[plan.variant.input(name).dtype])
    return np.dtype(np.float64) if plan.dtype == "fp64" and bound.call.inputs[name].dtype != declared else declared


# -------------------------------------------------------------------- one sequence


@dataclass(frozen=True)
class BackwardWork:
    """One sequence: the tiles of the forward pass, what flows back into its rows, and the sums of the gradients.

    dout [heads, q_len, value head dim]; lse (exp2 domain) and delta, rowsum(dO * O) - dlse, [heads, q_len]. The sums
    are shaped as q and, for each query head, k and v, in the precision of the computation.
    """

    tiles: SequenceWork
    dout: Array
    lse: Array
    delta: Array
    dq: Array
    dk: Array
    dv: Array
    learnable: LearnableSums

    def attend(self, q_tile: int, kv_tile: int, kind: TileKind, heads: Heads) -> None:
        """Adds what the pairs of a tile contribute."""
        tiles = self.tiles
        rows, columns = tiles.grid.q_rows(q_tile), tiles.grid.kv_rows(kv_tile)
        raw = tiles.raw_scores(rows, columns, heads)
        environment = tiles.positions(rows, columns, heads).with_symbols(score=raw)
        score = tiles.final_scores(environment, raw, kind)
        prob, by_score = self._probabilities(score, rows, heads)
        kept = self._kept(environment, rows, columns)
        dout = self.dout[heads, rows]
        self.dv[heads, columns] += product(self._rounded(prob * kept).swapaxes(-1, -2), dout)
        dprob = product(dout, tiles.v[tiles.kv_heads[heads], columns].swapaxes(-1, -2)) * kept
        dscore = np.where(by_score == 0, 0, by_score * (dprob - self.delta[heads, rows, None]))
        self.learnable.add_pairs(tiles.sequence, environment, dscore)
        by_raw = self._by_raw(environment, dscore)
        self.dq[heads, rows] += product(by_raw, tiles.k[tiles.kv_heads[heads], columns])
        self.dk[heads, columns] += product(by_raw.swapaxes(-1, -2), tiles.q[heads, rows])
        tiles.meter.tiles[kind] += len(raw)

    def _probabilities(self, score: Array, rows: slice, heads: Heads) -> tuple[Array, Array]:
        """P of a tile, and what dP - delta is multiplied by for the gradient of the final score; 0 where masked."""
        match self.tiles.plan.variant.normalize:
            case "sigmoid":
                prob = np.asarray(1 / (1 + np.exp(-score)))
                return prob, prob * (1 - prob)
            case "none":
                kept = ~np.isneginf(score)
                return np.where(kept, score, 0), kept.astype(score.dtype)
        prob = np.where(np.isneginf(score), 0, np.exp2(score * LOG2_E - self.lse[heads, rows, None]))
        return prob, prob

    def _kept(self, environment: Environment, rows: slice, columns: slice) -> Array | float:
        """The dropout factor of each pair: 0, or the reciprocal of the actual keep rate."""
        if self.tiles.threshold >= LEVELS:
            return 1.0
        kept = self.tiles.kept_by_dropout(environment, rows, columns)
        return np.where(kept, LEVELS / self.tiles.threshold, 0).astype(self.dq.dtype)

    def _by_raw(self, environment: Environment, dscore: Array) -> Array:
        """dS by the raw scores, as the matrix products take it."""
        slope = evaluate(gradient(self.tiles.plan.variant).score, environment)
        return self._rounded(np.where(dscore == 0, 0, dscore * slope))

    def _rounded(self, array: Array) -> Array:
        return array.astype(self.tiles.out_dtype).astype(self.dq.dtype)

    def finish(self) -> tuple[Array, Array, Array]:
        """dq, dk and dv of the sequence, the last two summed over the heads of each group; adds a sink's gradient."""
        environment, (heads, kv_len, _) = self.tiles.environment, self.dk.shape
        sink = sink_logits(self.tiles.plan.variant, environment)
        if sink is not None:
            weight = np.where(np.isneginf(sink), 0, np.exp2(sink * LOG2_E - self.lse[..., None]))
            dlogit = -(weight * self.delta[..., None]).sum(axis=1, keepdims=True)
            self.learnable.add_sink(self.tiles.sequence, environment, dlogit)
        scale = environment.symbols["scale"]
        groups = len(self.tiles.k)
        dk, dv = (sums.reshape(groups, heads // groups, kv_len, -1).sum(axis=1) for sums in (self.dk, self.dv))
        return self.dq * scale, dk * scale, dv

    def count_ends(self, inner: tuple[str, ...]) -> None:
        """Counts delta, the zeros that the sums of the inner side in HBM begin with, and the results."""
        sequence, meter = self.tiles.sequence, self.tiles.meter
        rows, keys = self.tiles.num_heads * sequence.q_len, self.tiles.num_heads * sequence.kv_len
        if self.tiles.plan.variant.normalize == "softmax":
            meter.read(rows, ("dout", "out"))
            meter.write(rows, ("delta",))
        of_inner = rows if inner == ("partial_dq",) else keys
        meter.write(of_inner, inner)
        meter.read(of_inner, inner)
        meter.write(rows, ("dq",))
        meter.write(len(self.tiles.k) * sequence.kv_len, ("dk", "dv"))


def _backward_work(
    plan: KernelPlan, bound: BoundBackward, sequence: Sequence, sums: LearnableSums, meter: Meter
) -> BackwardWork:
    compute = compute_dtype(plan)
    tiles = sequence_work(plan, bound.call, sequence, compute, meter)
    dout, lse, delta = _rows(bound, sequence, compute, plan.variant.normalize == "softmax")
    dq, dk, dv = (
        np.zeros((tiles.num_heads, length, width), compute)
        for length, width in (
            (sequence.q_len, plan.head_dim), (sequence.kv_len, plan.head_dim), (sequence.kv_len, plan.value_head_dim)
        )
    )  # fmt: skip
    return BackwardWork(tiles, dout, lse, delta, dq, dk, dv, sums)


def _rows(
    bound: BoundBackward, sequence: Sequence, compute: np.dtype[Any], softmax: bool
) -> tuple[Array, Array, Array]:
    """dout, lse in the exp2 domain, and delta - dlse; zeros for the last two unless softmax."""
    place = sequence.b, sequence.q_start, sequence.q_len
    dout = bound.call.rows(bound.dout, *place).astype(compute)
    lse, dlse = (bound.of_lse(array, sequence).astype(compute) for array in (bound.lse, bound.dlse))
    if not softmax:
        return dout, lse, dlse
    assert bound.out is not None, "checked by bind"
    delta = (dout * bound.call.rows(bound.out, *place).astype(compute)).sum(axis=-1)
    # A row with nothing kept has the lse -inf: 0 in its place makes all its weights 0, not NaN.
    return dout, np.where(np.isneginf(lse), 0, lse * LOG2_E), delta - dlse


# -------------------------------------------------------------------- loop orders

_OF_Q = ("q", "dout", "lse", "delta")


def kv_outer(work: BackwardWork) -> None:
    """A K and V tile, with its dK and dV, stays on chip while the live q tiles pass by; dQ is summed in HBM."""
    tiles, grid, meter = work.tiles, work.tiles.grid, work.tiles.meter
    for kv_tile in range(grid.kv_sizes.size):
        live = (grid.kinds[:, :, kv_tile] != TileKind.EMPTY).any(axis=1)
        meter.read(grid.over_heads(np.count_nonzero(live), tiles.num_heads) * int(grid.kv_sizes[kv_tile]), ("k", "v"))
        for q_tile in range(grid.q_sizes.size):
            for kind, heads, count in tiles.live_heads(q_tile, kv_tile):
                rows = int(grid.q_sizes[q_tile]) * count
                meter.read(rows, (*_OF_Q, "partial_dq"))
                work.attend(q_tile, kv_tile, kind, heads)
                meter.write(rows, ("partial_dq",))
    work.count_ends(("partial_dq",))


def q_outer(work: BackwardWork) -> None:
    """A q tile, with its dQ, stays on chip while the live K and V tiles pass by; dK and dV are summed in HBM."""
    tiles, grid, meter = work.tiles, work.tiles.grid, work.tiles.meter
    for q_tile in range(grid.q_sizes.size):
        meter.read(int(grid.q_sizes[q_tile]) * tiles.num_heads, _OF_Q)
        for kv_tile in range(grid.kv_sizes.size):
            for kind, heads, count in tiles.live_heads(q_tile, kv_tile):
                rows = int(grid.kv_sizes[kv_tile]) * count
                meter.read(rows, ("k", "v", "partial_dk", "partial_dv"))
                work.attend(q_tile, kv_tile, kind, heads)
                meter.write(rows, ("partial_dk", "partial_dv"))
    work.count_ends(("partial_dk", "partial_dv"))
