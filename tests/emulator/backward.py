"""A backward pass on the emulated GPU: what a launcher would do, with NumPy arrays as device memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attncc.kernels.helpers import delta as delta_kernel
from attncc.kernels.helpers import dq_sum as dq_sum_kernel
from attncc.kernels.helpers import exact_sum, sink_gradient
from attncc.kernels.helpers.exact_sum import EXACT_WORDS
from attncc.kernels.registry import facts_of
from attncc.problem.gradients import Gradients
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import (
    THREAD_BLOCKS,
    Array,
    Call,
    Values,
    batch_axis,
    input_values,
    problem_of,
    sizes,
    tensor_map,
    tensors,
)
from tests.emulator.sources import rendered, rendered_helper

ROW_BLOCK = 16
DQ_CONSUMER_WARPS = 4


@dataclass(frozen=True)
class Results:
    """What the forward call gave, and what flows back. `lse` and `dlse` are fp32."""

    dout: Array
    out: Array
    lse: Array | None
    dlse: Array | None = None


def backward(
    plan: KernelPlan, dq_plan: KernelPlan | None, call: Call, results: Results, *, ordered: bool = False
) -> Gradients:
    """dq, dk, dv and, in fp32, the gradients of learnable inputs.

    Where dQ has a plan, it comes from a kernel of its own; else it is added up, `ordered` in one order. In both cases
    the sums of learnable inputs are exact, as in a deterministic call; else they are floats. Outputs are full of NaN
    before, sums of zeros.
    """
    dq, dk, dv = (np.full(array.shape, np.nan, array.dtype) for array in (call.q, call.k, call.v))
    if call.kv_lens is not None:  # the launcher clears them
        dk[:], dv[:] = 0, 0
    rows = facts_of(plan).kept_rows(problem_of(plan, call)) // ROW_BLOCK
    heads = call.q.shape[-3] * (1 if call.cu is not None else call.batch)
    statistics = np.full((heads, rows, ROW_BLOCK, facts_of(plan).statistics_bytes // 4), np.nan, np.float32)
    dq_sum = np.zeros((heads, rows, plan.padded_head_dim, ROW_BLOCK), np.float32)
    stores_first = facts_of(plan).stores_dq_first and not ordered
    counts = np.zeros(heads + heads * rows * stores_first, np.int32)  # of heads of k; of tiles of dQ, and more
    if results.lse is not None:  # the kernel that makes delta clears both
        dq_sum[:], counts[:] = np.nan, -1
    if stores_first:
        dq_sum[:] = np.nan
    sum_words = 0 if dq_plan or stores_first else ROW_BLOCK * plan.padded_head_dim
    values = {
        "row_blocks": rows,
        "finished": counts.ctypes.data,
        "dq_stored": counts[heads:].ctypes.data if stores_first else 0,
        "statistics": 0,
        "dq_sum": 0 if dq_plan else dq_sum.ctypes.data,
        "counts": counts.ctypes.data,
        "sum_words": sum_words,
        "count_words": counts.size,
    }
    values |= tensors(call, q=call.q, k=call.k, v=call.v, dout=results.dout, out=results.out, dq=dq, dk=dk, dv=dv)
    if results.lse is not None:
        values["statistics"] = statistics.ctypes.data
        delta(plan, call, results, values)
    maps = b""
    if facts_of(plan).persistent:
        maps = _maps(plan, (call.q, results.dout), (call.k, call.v))
    sums = Sums(plan, call, exact=dq_plan is not None or ordered)
    if dq_plan is not None:
        _run(dq_plan, call, values)
    _run(plan, call, values | sums.values(), maps, ordered=ordered)
    if facts_of(plan).learned_sink is not None:
        sums.add_sink(values)
    if dq_plan is None:
        source = rendered_helper(dq_sum_kernel.kernel(facts_of(plan)))
        known = sizes(plan, call)
        factor = known["scale"] if facts_of(plan).scales_dq_sum else 1
        blocks = facts_of(plan).kv_blocks(problem_of(plan, call))
        known |= {"factor": factor, "group": call.q.shape[-3] // call.k.shape[-3]}
        known |= {"dq_consumer_warps": DQ_CONSUMER_WARPS * blocks}
        kernel.run(source, dq_sum_kernel.parameters(facts_of(plan)), values | known, 2)
    return Gradients(dq, dk, dv, {name: sums.rounded(name) for name in sums.arrays})


class Sums:
    """The sums of the gradients of learnable inputs: fp32, shaped as the inputs, or exact."""

    def __init__(self, plan: KernelPlan, call: Call, *, exact: bool) -> None:
        self._plan, self._call, self._exact = plan, call, exact
        items = [item for item in plan.variant.inputs if item.learnable]
        self._shapes = {item.name: call.inputs[item.name].shape for item in items}
        self.arrays = {
            name: np.zeros((*shape, EXACT_WORDS), np.int64) if exact else np.zeros(shape, np.float32)
            for name, shape in self._shapes.items()
        }

    def values(self) -> Values:
        values: Values = {"exact": int(self._exact)}
        for name, array in self.arrays.items():
            strides = list(np.empty(self._shapes[name], np.int8).strides)  # in elements
            batch = batch_axis(self._plan, self._call, name)
            if batch is not None:
                strides.insert(batch, 0)
            values |= {f"{name}__gradient": array.ctypes.data}
            values |= {f"{name}__gradient_stride{axis}": stride for axis, stride in enumerate(strides)}
        return values

    def add_sink(self, values: Values) -> None:
        item = facts_of(self._plan).learned_sink
        assert item is not None and len(item.axes) == 1
        given = self._call.inputs[item.name]
        values = values | sizes(self._plan, self._call) | self.values()
        values |= {"sink": given.ctypes.data, "sink_value": 0, "gradient": self.arrays[item.name].ctypes.data}
        values |= {f"{name}_stride_{axis}": 0 for name in ("sink", "gradient") for axis in ("batch", "head")}
        values |= {"sink_stride_head": given.strides[0] // given.itemsize, "gradient_stride_head": 1, "group": 1}
        helper = sink_gradient.kernel(facts_of(self._plan))
        kernel.run(rendered_helper(helper), helper.parameters, values, 2)

    def rounded(self, name: str) -> Array:
        if not self._exact:
            return self.arrays[name]
        out = np.full(self._shapes[name], np.nan, np.float32)
        values = {"sums": self.arrays[name].ctypes.data, "out": out.ctypes.data, "count": out.size}
        helper = exact_sum.kernel(facts_of(self._plan))
        kernel.run(rendered_helper(helper), helper.parameters, values, 2)
        return out


def _maps(plan: KernelPlan, of_rows: tuple[Array, Array], of_keys: tuple[Array, Array]) -> bytes:
    """Of q, k, v and dout; `of_rows` are q and dout."""
    width, q_columns, kv_columns = plan.tile_columns
    q, dout = (tensor_map(array, plan.block_q, width, q_columns) for array in of_rows)
    k, v = (tensor_map(array, plan.block_kv, width, kv_columns) for array in of_keys)
    return q + k + v + dout


def delta(plan: KernelPlan, call: Call, results: Results, values: Values) -> None:
    """Runs the kernel of that name."""
    assert results.lse is not None
    helper = delta_kernel.kernel(facts_of(plan))
    source = rendered_helper(helper)
    rows = {"lse": results.lse.ctypes.data, "dlse": 0 if results.dlse is None else results.dlse.ctypes.data}
    values = values | sizes(plan, call) | rows
    row_blocks = values["outer"] * values["num_heads"] * values["row_blocks"]
    kernel.run(source, helper.parameters, values, -(-row_blocks // (source.threads // 32)))


def _run(plan: KernelPlan, call: Call, values: Values, maps: bytes = b"", *, ordered: bool = False) -> None:
    values = values | sizes(plan, call) | {"splits": 1}
    values["kv_blocks"] = facts_of(plan).kv_blocks(problem_of(plan, call))
    fields, held = input_values(plan, call)
    values |= fields
    blocks = values["outer"] * values["num_heads"] * values["q_blocks"]
    if plan.owns_keys:
        blocks = values["outer"] * values["num_kv_heads"] * values["kv_blocks"] * facts_of(plan).gradient_parts
    most, cluster = (4, 2) if call.paired else (THREAD_BLOCKS, 1)
    values |= {"blocks": blocks, "head_swizzle": 1 if call.paired else 2, "next_block": 0, "dq_semaphore": 0}
    numbers = np.zeros(1 + DQ_CONSUMER_WARPS * blocks * ordered, np.int32)
    if ordered or (call.paired and plan.variant.keeps):
        values |= {"next_block": numbers.ctypes.data}
    if ordered:
        values |= {"dq_semaphore": numbers[1:].ctypes.data}
    blocks = min(blocks, most) if maps else blocks
    kernel.run(rendered(plan), facts_of(plan).parameters(), values, blocks, maps, cluster=cluster)
    del held
