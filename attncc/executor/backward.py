"""The backward pass on the CPU, tile by tile as kernels walk it: scores are computed again, P comes from lse.

Dao, "FlashAttention-2" (2023), Algorithm 2: blocks own keys, and add dQ up in HBM. Where that isn't wanted, since the
order of such sums differs from run to run, further blocks own rows and make dQ alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.cost.cost import Traffic
from ..analysis.rules import TileKind
from ..analysis.score.learnable import LearnableSums
from ..kernels.registry import backward_facts
from ..problem import Sequence, Signature
from ..problem.facts import INPUT_DTYPES, numpy_dtype
from ..problem.gradient_arrays import BoundBackward, bind_backward_arrays
from ..problem.gradients import Gradients
from ..problem.strides import zeros_like
from ..schedule.plan import KernelPlan
from .backward_work import BackwardWork, FlowingBack, Sums
from .run import OwnRows, compute_dtype, dtype_of, only_rows, sequence_work, workload
from .work import LOG2_E, Meter

Array = NDArray[Any]

# The plan whose blocks own keys, and the one whose blocks own rows, if calls need it (`BackwardFacts.separates_dq`):
# of the passes `backward` and `backward_dq`, or a forward plan twice.
Plans = tuple[KernelPlan, ...]


@dataclass(frozen=True)
class BackwardResult:
    """The gradients, in the types of what they belong to; the bytes that the kernels moved between HBM and on-chip
    memory, and the tiles of the one that owns keys by kind, over all heads."""

    gradients: Gradients
    traffic: Traffic
    tiles: Mapping[TileKind, int]


def run_backward(
    plans: Plans, dout: Array, q: Array, k: Array, v: Array, /, *, deterministic: bool = False, **call: Any
) -> BackwardResult:
    """The gradients of one call as the plans' kernels compute them. `call` holds out, lse (unless there is no softmax),
    dlse (None: zeros) and the keyword arguments of `run`. AttnccError A6xx for bad arguments."""
    return run_bound_backward(plans, bind_backward_for(plans[0], dout, q, k, v, **call), deterministic=deterministic)


def bind_backward_for(plan: KernelPlan, dout: Array, q: Array, k: Array, v: Array, /, **call: Any) -> BoundBackward:
    """Checks a backward call of a plan's configuration. AttnccError A6xx."""
    signature = Signature(plan.variant, plan.dtype, plan.head_dim, plan.value_head_dim)
    return bind_backward_arrays(signature, dout, q, k, v, **call)


def _adds_dq(plan: KernelPlan, deterministic: bool) -> bool:
    """Not of forward plans, whose tiles serve where a package was built without a backward pass."""
    if not plan.is_backward:
        return False
    facts = backward_facts(plan)
    return facts.adds_dq and (facts.orders_dq or not deterministic)


def run_bound_backward(
    plans: Plans, bound: BoundBackward, *, deterministic: bool = False, own_rows: OwnRows = None
) -> BackwardResult:
    """`run_backward`, of a call that was checked.

    Here sums have one order in any case. `deterministic` makes dQ on its own where kernels do so. Rows that aren't
    among `own_rows` have dout 0 and lse inf, so that they add nothing where they share a tile.
    """
    call, meter, plan = bound.call, Meter(), plans[0]
    learnable = LearnableSums(call, compute_dtype(plan))
    adds_dq = _adds_dq(plan, deterministic)
    zeros = deterministic or not (adds_dq and backward_facts(plan).stores_dq_first)
    dq, dk, dv = (zeros_like(array.shape, dtype_of(plan.dtype), array) for array in (call.q, call.k, call.v))
    for sequence in call.problem.sequences():
        with np.errstate(invalid="ignore", over="ignore"):
            found = _run_sequence(
                plans, bound, sequence, learnable, meter, adds_dq=adds_dq, zeros=zeros, own_rows=own_rows
            )
        starts = (sequence.q_start, sequence.q_len), *((sequence.kv_start, sequence.kv_len),) * 2
        for array, rows, own in zip((dq, dk, dv), starts, found, strict=True):
            call.rows(array, sequence.b, *rows)[...] = own
    inputs = {name: array.astype(_input_dtype(plan, bound, name)) for name, array in learnable.sums.items()}
    dk, dv = call.gradient("k", dk), call.gradient("v", dv)
    traffic = meter.traffic(workload(plan, call.problem))
    return BackwardResult(Gradients(dq, dk, dv, inputs), traffic, meter.tiles)


def _input_dtype(plan: KernelPlan, bound: BoundBackward, name: str) -> np.dtype[Any]:
    """That of the input's array: the declared one, but that fp64 kernels also take float64."""
    declared = numpy_dtype(INPUT_DTYPES[plan.variant.input(name).dtype])
    return np.dtype(np.float64) if plan.dtype == "fp64" and bound.call.inputs[name].dtype != declared else declared


def _run_sequence(
    plans: Plans,
    bound: BoundBackward,
    sequence: Sequence,
    learnable: LearnableSums,
    meter: Meter,
    *,
    adds_dq: bool,
    zeros: bool,
    own_rows: OwnRows,
) -> tuple[Array, Array, Array]:
    """dq, dk and dv of one sequence."""
    plan, compute = plans[0], compute_dtype(plans[0])
    flowing = _flowing_back(bound, sequence, compute, plan.variant.normalize == "softmax")
    heads, lengths = bound.call.problem.num_heads, (sequence.q_len, sequence.kv_len, sequence.kv_len)
    widths = (plan.head_dim, plan.head_dim, plan.value_head_dim)
    dq, dk, dv = (np.zeros((heads, *shape), compute) for shape in zip(lengths, widths, strict=True))
    sums = Sums(dq, dk, dv, learnable)
    work = BackwardWork(only_rows(sequence_work(plan, bound.call, sequence, compute, meter), own_rows), flowing, sums)
    work.count_statistics()
    work.own_keys(adds_dq=adds_dq)
    if adds_dq:
        work.count_sum_of_dq(zeros=zeros)
    else:
        of_rows = only_rows(sequence_work(plans[1], bound.call, sequence, compute, meter), own_rows)
        BackwardWork(of_rows, flowing, sums).own_rows()
    return work.finish()


def _flowing_back(bound: BoundBackward, sequence: Sequence, compute: np.dtype[Any], softmax: bool) -> FlowingBack:
    place = sequence.b, sequence.q_start, sequence.q_len
    dout = bound.call.rows(bound.dout, *place).astype(compute)
    lse, dlse = (bound.of_lse(array, sequence).astype(compute) for array in (bound.lse, bound.dlse))
    if not softmax:
        return FlowingBack(dout, lse, dlse)
    assert bound.out is not None, "checked by bind"
    delta = (dout * bound.call.rows(bound.out, *place).astype(compute)).sum(axis=-1)
    # A row with nothing kept has the lse -inf: 0 in its place makes all its weights 0, not NaN.
    return FlowingBack(dout, np.where(np.isneginf(lse), 0, lse * LOG2_E), delta - dlse)
