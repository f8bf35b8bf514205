"""Runs printed functions of a plan on a GPU, over the pairs or the tiles of one sequence."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from attncc.analysis.rules import sorted_name
from attncc.codegen.render import assemble
from attncc.codegen.user_code import user_code
from attncc.ir import Input
from attncc.kernels.parameters import HINT_PIECES, field_name, hint_table, struct_format
from attncc.kernels.registry import facts_of
from attncc.problem import Problem
from attncc.problem.problem import Sequence
from attncc.runtime.call.repeated import RepeatedLaunch
from attncc.runtime.cuda.driver import driver
from attncc.runtime.cuda.nvrtc import compile_text
from attncc.schedule.plan import KernelPlan
from tests.printed import WORK, kept_pair

# One block for each row of results, its threads over the columns. The sequence's number stands in `q_blocks`, the
# number of rows a head in `splits`, of columns in `batch`.
KERNEL = """
template <class Ints>
__device__ int element(const Ints& ints, int index) { return ((const int*)&ints)[index]; }

extern "C" __global__ void printed_code(const __grid_constant__ Params params) {
    const int s = params.q_blocks, h = blockIdx.x / params.splits, index = blockIdx.x % params.splits;
    const bool packed = params.cu_seqlens_q != nullptr;
    const int q_start = packed ? params.cu_seqlens_q[s] : 0, kv_start = packed ? params.cu_seqlens_kv[s] : 0;
    const int q_len = packed ? params.cu_seqlens_q[s + 1] - q_start : params.q_len;
    const int kv_len = packed ? params.cu_seqlens_kv[s + 1] - kv_start : params.kv_len;
    const Given work = {s, q_len, kv_len, q_start, kv_start};
    const Context context = make_context(params, work, h, h / (params.num_heads / params.num_kv_heads));
    const Row row = make_row(params, context, min(index, q_len - 1));
    const float* scores = (const float*)params.q;
    for (int first = 0; first < params.batch; first += 32) {  // searches ask all lanes of a warp to come along
        const int column = min(first + (int)threadIdx.x, params.batch - 1);
        const long long place = (long long)blockIdx.x * params.batch + column;
        params.partial_out[place] = RESULT;
    }
}
"""

KEEP = "KEPT_PAIR"
SCORE = "score_mod(params, context, row, column, scores[place])"
_Q_TILE = "index * {block_q}, min((index + 1) * {block_q}, q_len) - 1"
_KV_TILE = "column * {block_kv}, min((column + 1) * {block_kv}, kv_len) - 1"
TILE_KIND = f"tile_kind(params, context, {_Q_TILE}, {_KV_TILE})"
KV_BOUNDS = f"element(kv_bounds(params, context, {_Q_TILE}), column)"


class Device:
    """Arrays that live as long as a launch needs them, by `Params` field."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.values: dict[str, Any] = {}
        self._kept: list[Any] = []

    def put(self, field: str, array: np.ndarray) -> None:
        tensor = self.torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8)).cuda()
        self._kept.append(tensor)
        self.values[field] = tensor.data_ptr()

    def bind(self, name: str, declared: Input, array: np.ndarray, problem: Problem) -> None:
        """An input or min/max table as a call passes it; packed arrays have no batch axis."""
        field = field_name(name)
        if not declared.axes:
            self.values[f"{field}_value"] = array.item()
            return
        self.put(field, array)
        dense = np.ascontiguousarray(array)
        axes = [(stride // dense.itemsize, size) for stride, size in zip(dense.strides, dense.shape, strict=True)]
        if problem.packed and len(axes) < len(declared.axes):
            axes.insert([axis.tag for axis in declared.axes].index("batch"), (0, problem.batch))
        for axis, (stride, size) in enumerate(axes):
            self.values |= {f"{field}_stride{axis}": stride, f"{field}_size{axis}": size}


def run(
    torch: Any,
    plan: KernelPlan,
    result: str,
    *,
    problem: Problem,
    sequence: Sequence,
    shape: tuple[int, int],
    inputs: Mapping[str, np.ndarray],
    scores: np.ndarray | None = None,
) -> np.ndarray:
    """`result` for every row and column: float32 [num_heads, *shape]. `inputs` hold the min/max tables too."""
    memory = Device(torch)
    out = torch.full((problem.num_heads, *shape), -7.0, device="cuda")
    memory.values |= {
        "q_blocks": sequence.b, "splits": shape[0], "batch": shape[1], "num_heads": problem.num_heads,
        "num_kv_heads": problem.num_kv_heads, "q_len": problem.q_len, "kv_len": problem.kv_len, "scale": 0.25,
        "partial_out": out.data_ptr(),
    }  # fmt: skip
    if problem.packed:
        memory.put("cu_seqlens_q", np.int32(problem.q_starts))
        memory.put("cu_seqlens_kv", np.int32(problem.kv_starts))
    if scores is not None:
        memory.put("q", scores)
    by_name = {item.name: item for item in plan.variant.inputs}
    arrays = dict(inputs)
    for table in plan.rules.min_max_tables:
        by_name |= {table.min_name: by_name[table.input], table.max_name: by_name[table.input]}
    for hinted in plan.rules.sorted_hints:
        name = sorted_name(hinted)
        by_name[name] = hint_table(by_name[hinted])
        arrays[name] = np.repeat(inputs[name][..., None], HINT_PIECES, axis=-1)
    for name, declared in by_name.items():
        memory.bind(name, declared, arrays[name], problem)
    _launch(torch, plan, result, memory.values, problem.num_heads * shape[0])
    found: np.ndarray = out.cpu().numpy()
    return found


@cache
def _compiled(text: str, target: str) -> bytes:
    """Once for all sequences of a problem."""
    return compile_text(text, target).image


def _launch(torch: Any, plan: KernelPlan, result: str, values: dict[str, Any], grid: int) -> None:
    code = user_code(plan)
    kernel = KERNEL.replace("RESULT", result.format(block_q=plan.block_q, block_kv=plan.block_kv))
    kernel = kernel.replace(KEEP, kept_pair(code, plan))
    leaves = '#include "common/element.cuh"\n#include "tiles/tile_kind.cuh"'
    text = assemble(
        "\n".join([leaves, code.includes, code.params_struct, WORK, code.functions, kernel]), "printed_code"
    )
    device = driver().device(torch.cuda.current_device())
    image = _compiled(text, f"sm_{device.capability}")
    function = driver().load(device, image, "printed_code", 32, 0)
    fields = facts_of(plan).parameters()
    packed = struct.pack(struct_format(fields), *(values.get(field.name, 0) for field in fields))
    launch = RepeatedLaunch(driver(), function, grid, packed)
    launch.follow(torch.cuda.current_stream().cuda_stream)
    assert launch.queue() == 0
    torch.cuda.synchronize()
