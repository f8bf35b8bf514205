"""`run`: one call of a kernel on the CPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.cost.cost import Traffic, Workload
from ..analysis.mask.grid import TileGrid, rule_tables, tile_grid, uniform_grid
from ..analysis.rules import TileKind
from ..diagnostics import AttnccError, Diagnostic
from ..evaluate import Environment
from ..kernels.registry import backward_facts
from ..philox import threshold
from ..problem import BoundCall, Problem, Sequence, Signature, bind_arrays
from ..problem.facts import KERNEL_DTYPES, numpy_dtype
from ..problem.strides import zeros_like
from ..schedule.plan import DTYPE_BYTES, KV_BYTES, KernelPlan
from ..statements import MASK_FLOAT, dropout_rate
from .orders import kv_outer, q_outer
from .work import Meter, SequenceWork

Array = NDArray[Any]

# Whether each row of q, as its array has them, is to be computed; None: all. Tiles without such a row are EMPTY, so the
# others have the same bits as in a call of all rows.
OwnRows = NDArray[np.bool_] | None


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's type of a kernel's."""
    return numpy_dtype(KERNEL_DTYPES[name])


@dataclass(frozen=True)
class Result:
    """out in the plan's type and the call's layout; lse (fp32, of fp64 kernels fp64), None unless softmax; the bytes
    that the loop order moved between HBM and on-chip memory; tiles by kind, over all heads."""

    out: Array
    lse: Array | None
    traffic: Traffic
    tiles: Mapping[TileKind, int]


def run(plan: KernelPlan, q: Array, k: Array, v: Array, /, *, out: Array | None = None, **call: Any) -> Result:
    """Computes attention as the plan's kernel does: tiles, loop order, splits, dropout bits, roundings.

    Takes NumPy arrays and the keyword arguments of `reference.forward`; writes into `out` where it is given.
    `split_kv = auto` runs as one split. AttnccError A6xx for bad arguments.
    """
    return run_bound(plan, bind_for((plan,), q, k, v, out=out, **call))


def bind_for(plans: Collection[KernelPlan], q: Array, k: Array, v: Array, /, **call: Any) -> BoundCall:
    """Checks a call of any of these plans, all of one configuration; arguments as those of `run`. AttnccError A6xx."""
    plan = next(iter(plans))
    return bind_arrays(Signature(plan.variant, plan.dtype, plan.head_dim, plan.value_head_dim), q, k, v, **call)


def run_bound(plan: KernelPlan, bound: BoundCall, own_rows: OwnRows = None) -> Result:
    """`run`, of a call that was checked: `executed_plan` chooses among the plans by its problem."""
    problem, meter = bound.problem, Meter()
    compute = compute_dtype(plan)
    # Rows of a packed batch that no sequence owns are nobody's to write: in a caller's `out` they stay as they are.
    out = (
        zeros_like(problem.out_shape, dtype_of(plan.out_dtype), bound.q) if bound.given.out is None else bound.given.out
    )
    lse = np.full(problem.lse_shape, -np.inf, compute)
    for sequence in problem.sequences():
        out_rows = bound.rows(out, sequence.b, sequence.q_start, sequence.q_len)
        work = only_rows(sequence_work(plan, bound, sequence, compute, meter), own_rows)
        with np.errstate(invalid="ignore", over="ignore"):
            result = kv_outer(work) if plan.loop == "kv_outer" else q_outer(work, plan.split_kv or 1)
            out_rows[...], bound.lse_rows(lse, sequence)[...] = result
    softmax = plan.variant.normalize == "softmax"
    return Result(out, lse if softmax else None, meter.traffic(workload(plan, problem, bound.kv_dtype)), meter.tiles)


def compute_dtype(plan: KernelPlan) -> np.dtype[Any]:
    """What scores, sums and accumulators are computed in."""
    return np.dtype(np.float64 if plan.dtype == "fp64" else np.float32)


def workload(plan: KernelPlan, problem: Problem, kv_dtype: str | None = None) -> Workload:
    """The sizes that the cost model needs of a plan and a problem; `kv_dtype`: of a cache that hasn't the type of the
    plan's."""
    element_bytes, out_bytes = DTYPE_BYTES[plan.dtype], DTYPE_BYTES[plan.out_dtype]
    statistics_bytes = backward_facts(plan).statistics_bytes if plan.is_backward else 0
    state_bytes, softmax = max(element_bytes, 4), plan.variant.normalize == "softmax"
    kv_bytes = None if kv_dtype is None and plan.kv_dtype is None else KV_BYTES
    return Workload(problem, element_bytes, state_bytes, softmax, out_bytes, statistics_bytes, kv_bytes)


def skips(plan: KernelPlan) -> bool:
    """Whether the plan's kernel asks which tiles are EMPTY or FULL."""
    return bool(plan.variant.keeps) and plan.skip != "never"


def plan_grid(plan: KernelPlan, environment: Environment) -> TileGrid:
    """The tiles of a sequence as the plan's kernel sees them; the environment holds the rules' min/max tables."""
    if not skips(plan):
        q_len, kv_len = (int(environment.symbols[name]) for name in ("q_len", "kv_len"))
        kind = TileKind.PARTIAL if plan.variant.keeps else TileKind.FULL
        return uniform_grid(kind, q_len, kv_len, plan.block_q, plan.block_kv)
    return tile_grid(plan.rules, environment, plan.block_q, plan.block_kv, single_tiles=plan.tests_tiles)


def sequence_work(
    plan: KernelPlan, bound: BoundCall, sequence: Sequence, compute: np.dtype[Any], meter: Meter
) -> SequenceWork:
    """One sequence of a call, its operands in the precision of the computation.

    AttnccError A409 for tiles in two dimensions: their rules speak of rows and columns, which 1-D tiles aren't.
    """
    if plan.grid_2d is not None:
        raise AttnccError(
            Diagnostic(
                "A409",
                f"the CPU executor has no tiles in two dimensions, which {plan.variant.name} has here",
                notes=(f"the plan is of the pass {plan.pass_name}",),
                help="let `kernels.serving.executed_plan` choose among the plans of a kernel",
            )
        )
    environment = bound.environment(sequence, compute)
    maps = rule_tables(plan.rules, plan.variant, bound.problem, bound.inputs)
    with_maps = Environment(environment.symbols, {**environment.inputs, **maps}, environment.lets, MASK_FLOAT)
    q, k, v = (bound.operand(name, sequence, compute) for name in ("q", "k", "v"))
    levels = threshold(dropout_rate(plan.variant, environment))
    grid = plan_grid(plan, with_maps)
    meter.tiles[TileKind.EMPTY] += grid.count(TileKind.EMPTY, bound.problem.num_heads)
    dtype, kept = dtype_of(plan.dtype), bound.kept(plan.variant)
    return SequenceWork(plan, sequence, environment, grid, q, k, v, dtype, bound.seed, levels, meter, kept)


def only_rows(work: SequenceWork, own_rows: OwnRows) -> SequenceWork:
    """The work, tiles EMPTY that have none of these rows."""
    grid, sequence = work.grid, work.sequence
    if own_rows is None or not sequence.q_len:
        return work
    own = own_rows[sequence.q_start : sequence.q_start + sequence.q_len]
    live = np.logical_or.reduceat(own, np.arange(0, len(own), grid.block_q))
    return replace(work, grid=replace(grid, kinds=np.where(live[:, None], grid.kinds, np.uint8(TileKind.EMPTY))))
