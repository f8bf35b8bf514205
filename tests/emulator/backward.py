"""A backward pass on the emulated GPU: what a launcher would do, with NumPy arrays as device memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from attncc.codegen.render import render, render_delta, render_dq_sum
from attncc.problem.gradients import Gradients
from attncc.schedule.parameters import delta_parameters, dq_sum_parameters, parameters
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Array, Call, Values, input_values, sizes, tensors

ROW_BLOCK = 16
_THREAD_BLOCKS = 3  # of kernels that are persistent


@dataclass(frozen=True)
class Results:
    """What the forward call gave, and what flows back. `lse` and `dlse` are fp32."""

    dout: Array
    out: Array
    lse: Array | None
    dlse: Array | None = None


def backward(plan: KernelPlan, dq_plan: KernelPlan | None, call: Call, results: Results) -> Gradients:
    """dq, dk and dv. dQ comes from a kernel of its own if that has a plan, and is added up otherwise.

    Outputs and sums are full of NaN before, but for the sum of dQ.
    """
    dq, dk, dv = (np.full(array.shape, np.nan, array.dtype) for array in (call.q, call.k, call.v))
    rows = _row_blocks(plan, call)
    heads = call.q.shape[-3] * (1 if call.cu is not None else call.batch)
    statistics = np.full((heads, rows, ROW_BLOCK, plan.statistics_bytes // 4), np.nan, np.float32)
    dq_sum = np.zeros((heads, rows, plan.padded_head_dim, ROW_BLOCK), np.float32)
    values = {"row_blocks": rows, "statistics": 0, "dq_sum": 0 if dq_plan else dq_sum.ctypes.data}
    values |= tensors(call, q=call.q, k=call.k, v=call.v, dout=results.dout, out=results.out, dq=dq, dk=dk, dv=dv)
    if results.lse is not None:
        values["statistics"] = statistics.ctypes.data
        _delta(plan, call, results, values)
    maps = b"".join(map(_map, (call.q, call.k, call.v, results.dout), _box_rows(plan))) if plan.family == "hopper" else b""
    _run(plan, call, values, maps)
    if dq_plan is not None:
        _run(dq_plan, call, values)
    else:
        source = render_dq_sum(plan)
        known = sizes(plan, call)
        factor = known["scale"] if plan.family == "hopper" and plan.variant.scale is None else 1
        kernel.run(source, dq_sum_parameters(plan.dtype), values | known | {"factor": factor}, 2)
    return Gradients(dq, dk, dv, {})


def _row_blocks(plan: KernelPlan, call: Call) -> int:
    rows, aligned = call.q.shape[-2], plan.row_alignment
    blocks = -(-rows // aligned) if call.cu is None else rows // aligned + call.batch
    return blocks * (aligned // ROW_BLOCK)


def _box_rows(plan: KernelPlan) -> tuple[int, int, int, int]:
    return plan.block_q, plan.block_kv, plan.block_kv, plan.block_q


def _map(array: Array, box_rows: int) -> bytes:
    """As `Map` of hopper.hpp: the array seen as (column, row, head, batch)."""
    seen = array if array.ndim == 4 else array[None]
    sizes, strides = seen.shape[::-1], [stride // seen.itemsize for stride in seen.strides[::-1]]
    return struct.pack("<Q4q4qi", array.ctypes.data, *sizes, *strides, box_rows).ljust(128, b"\0")


def _delta(plan: KernelPlan, call: Call, results: Results, values: Values) -> None:
    assert results.lse is not None
    source = render_delta(plan)
    rows = {"lse": results.lse.ctypes.data, "dlse": 0 if results.dlse is None else results.dlse.ctypes.data}
    kernel.run(source, delta_parameters(plan.dtype), values | sizes(plan, call) | rows, 2)


def _run(plan: KernelPlan, call: Call, values: Values, maps: bytes = b"") -> None:
    values = values | sizes(plan, call) | {"splits": 1}
    keys = call.k.shape[-2]
    packed = call.cu is not None
    values["kv_blocks"] = keys // plan.block_kv + call.batch if packed else -(-keys // plan.block_kv)
    fields, held = input_values(plan, call)
    values |= fields
    blocks = values["outer"] * values["num_heads"] * values["q_blocks"]
    if plan.pass_name == "backward":
        blocks = values["outer"] * values["num_kv_heads"] * values["kv_blocks"] * plan.gradient_parts
    values |= {"blocks": blocks, "section": 2, "next_block": 0}
    kernel.run(render(plan), parameters(plan), values, min(blocks, _THREAD_BLOCKS) if maps else blocks, maps)
    del held
