"""A forward pass on the emulated GPU: what a launcher would do, with NumPy arrays as device memory."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from attncc.analysis.rules import sorted_name
from attncc.kernels.crossings import Chip
from attncc.kernels.decode.facts import Decode
from attncc.kernels.helpers import combine, tile_lists, transposition
from attncc.kernels.helpers import min_max_table as min_max_table_kernel
from attncc.kernels.helpers.tile_lists import TileLists
from attncc.kernels.helpers.transposition import TransposedValues
from attncc.kernels.pages import box_rows, page_fields
from attncc.kernels.parameters import (
    HINT_PIECES,
    input_prepasses,
)
from attncc.kernels.quantized import scale_fields
from attncc.kernels.registry import facts_of, forward_facts
from attncc.problem import Problem
from attncc.problem.arrays import array_facts
from attncc.problem.facts import KERNEL_DTYPES
from attncc.problem.inputs import merged
from attncc.runtime.call.persistent import has_short_blocks
from attncc.schedule.plan import FORWARD_PASSES, KernelPlan
from tests.emulator import kernel
from tests.emulator.sources import rendered, rendered_helper

Array = NDArray[Any]
THREAD_BLOCKS = 3  # of kernels that are persistent
MAP_BYTES = 128
Values = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """q, k and v as [batch, heads, rows, head dim]; with `cu`, the cumulative lengths of q and kv, without batch. Of a
    cache there are those of q alone."""

    q: Array
    k: Array
    v: Array
    cu: tuple[Array, Array | None] | None = None
    splits: int = 1
    scale: float | None = None
    seed: int = 0
    ahead: bool = False  # V is transposed by a launch before
    paired: bool = False  # thread blocks are clusters of two
    blocks: int = THREAD_BLOCKS  # of decode
    multiprocessors: int = 0
    order: int = 1  # in which they run (device.hpp): from the last, so rows written by mistake behind an own one stay
    inputs: dict[str, Array] = field(default_factory=dict)
    kv_lens: Array | None = None
    block_table: Array | None = None  # k and v are pools of pages then
    q_offset: Array | int | None = None
    k_scale: Array | None = None
    v_scale: Array | None = None

    @property
    def batch(self) -> int:
        return self.q.shape[0] if self.cu is None else len(self.cu[0]) - 1

    def arguments(self) -> dict[str, Any]:
        """The call as the reference takes it."""
        given: dict[str, Any] = {"scale": self.scale, "seed": self.seed, **self.inputs}
        given |= {"kv_lens": self.kv_lens, "q_offset": self.q_offset}
        given |= {"block_table": self.block_table, "k_scale": self.k_scale, "v_scale": self.v_scale}
        if self.cu is not None:
            given |= {"cu_seqlens_q": self.cu[0], "cu_seqlens_kv": self.cu[1]}
        return given

    def arrays(self) -> list[Array]:
        """All that it reads."""
        given = (self.q, self.k, self.v, *(self.cu or ()), self.kv_lens, self.block_table, self.q_offset, self.k_scale)
        return [item for item in (*given, self.v_scale, *self.inputs.values()) if isinstance(item, np.ndarray)]

    def cache_fields(self) -> Values:
        """The fields of `Params` that say where queries and keys are."""
        offset, starts = self.q_offset, (None, None) if self.cu is None else self.cu
        array = offset if isinstance(offset, np.ndarray) else None
        form = 0 if offset is None else 1 if array is None else 2 if array.ndim else 3
        arrays = {"cu_seqlens_q": starts[0], "cu_seqlens_kv": starts[1], "kv_lens": self.kv_lens, "q_offsets": array}
        arrays["block_table"] = self.block_table
        pointers = {name: 0 if given is None else given.ctypes.data for name, given in arrays.items()}
        return {**pointers, "q_offset": offset if form == 1 else 0, "q_offset_form": form}


def forward(plan: KernelPlan, call: Call) -> tuple[Array, Array]:
    """out and lse of one launch, and of the combine kernel's where the keys are split."""
    return decode(plan, call) if isinstance(facts_of(plan), Decode) else _forward(plan, call)


def decode(plan: KernelPlan, call: Call) -> tuple[Array, Array]:
    """The same of a decode kernel."""
    return decode_parts(plan, call)[:2]


def decode_parts(plan: KernelPlan, call: Call) -> tuple[Array, Array, int]:
    """And how many partial results there were. The kernel leaves its counters at 0."""
    facts, problem = cast(Decode, facts_of(plan)), problem_of(plan, call)
    out = np.full((*call.q.shape[:-1], call.v.shape[-1]), np.nan, KERNEL_DTYPES[plan.out_dtype])
    lse = np.full(call.q.shape[:-1], np.nan, np.float32)
    slots, rows = facts.slots(problem, call.blocks), facts.slot_rows(problem)
    partial_out = np.full((slots, rows, plan.stored_value_head_dim), np.nan, np.float32)
    row_max, row_sum = (np.full((slots, rows), np.nan, np.float32) for _ in range(2))
    arrivals = np.zeros(call.blocks, np.uint32)
    values = sizes(plan, call) | tensors(call, q=call.q, k=call.k, v=call.v, out=out)
    weighed = plan.variant.normalize == "softmax"
    values |= {"lse": lse.ctypes.data, "partial_out": partial_out.ctypes.data, "arrivals": arrivals.ctypes.data}
    values |= {"row_max": row_max.ctypes.data if weighed else 0, "row_sum": row_sum.ctypes.data if weighed else 0}
    values |= facts.shared_out(problem, Chip(call.multiprocessors))
    fields, held = input_values(plan, call)
    box = box_rows(plan.block_kv, problem)
    maps = b"".join(tensor_map(array, box) for array in (call.k, call.v)) if facts.mapped else b""
    ahead = (*call.arrays(), *held.values(), out, lse, partial_out, row_max, row_sum, arrivals)
    with kernel.behind_kernel_ahead(*ahead if plan.begins_early else ()):
        kernel.run(rendered(plan), facts.parameters(), values | fields, call.blocks, maps, order=call.order)
    assert not arrivals.any(), "the next launch on the stream would find counters other than 0"
    del held
    return out, lse, int((~np.isnan(partial_out)).any(axis=(1, 2)).sum())


def _forward(plan: KernelPlan, call: Call) -> tuple[Array, Array]:
    out = np.full((*call.q.shape[:-1], call.v.shape[-1]), np.nan, KERNEL_DTYPES[plan.out_dtype])
    lse = np.full(call.q.shape[:-1], np.nan, np.float32)
    partial_out = np.full((call.splits, *out.shape), np.nan, np.float32)
    row_max, row_sum = (np.full((call.splits, *lse.shape), np.nan, np.float32) for _ in range(2))
    values = sizes(plan, call) | tensors(call, q=call.q, k=call.k, v=call.v, out=out)
    values |= {"lse": lse.ctypes.data} | _partials(plan, call, partial_out, row_max, row_sum)
    fields, held = input_values(plan, call)
    values |= fields
    blocks = _blocks(plan, values)
    counter = np.zeros(1, np.uint32)
    group = values["num_heads"] // values["num_kv_heads"]
    assert not call.paired or group * values["q_blocks"] % 2 == 0, "two thread blocks look at one head of k"
    values |= {"blocks": blocks, "head_swizzle": group if call.paired else 2}
    claimed = plan.variant.keeps or (not call.paired and has_short_blocks(plan, problem_of(plan, call)))
    values |= {"next_block": counter.ctypes.data if claimed else 0}
    lists = np.full(_list_words(plan, call, values), 2**64 - 1, np.uint64)
    if facts_of(plan).tile_lists:
        values["tile_lists"] = lists.ctypes.data
        kernel.run(rendered_helper(tile_lists.kernel(forward_facts(plan))), facts_of(plan).parameters(), values, 2)
    if facts_of(plan).persistent:
        width, q_columns, kv_columns = plan.tile_columns
        keys = box_rows(plan.block_kv, problem_of(plan, call)), width, kv_columns
        queries = tensor_map(call.q, 64, width, q_columns)
        if facts_of(plan).packs_heads:
            queries = group_map(call.q, facts_of(plan).row_heads(problem_of(plan, call)))
        maps = b"".join((queries, *(tensor_map(array, *keys) for array in (call.k, call.v))))
        ahead = transposed(plan, call, values, maps[-MAP_BYTES:])
        most, cluster = (4, 2) if call.paired else (THREAD_BLOCKS, 1)
        # Only the warp that loads waits for V transposed, in each block.
        with kernel.behind_kernel_ahead(*[ahead] if call.ahead else (), threads=32 * cluster):
            kernel.run(rendered(plan), facts_of(plan).parameters(), values, min(blocks, most), maps, cluster=cluster)
        assert not counter[0], "the next launch on the stream would find a counter other than 0"
        del ahead
    else:
        width, _, kv_columns = plan.tile_columns
        box = plan.block_kv, width, kv_columns
        maps = b"".join(tensor_map(array, *box) for array in (call.k, call.v)) if facts_of(plan).loads_by_tma else b""
        kernel.run(rendered(plan), facts_of(plan).parameters(), values, blocks, maps)
    del held
    if call.splits > 1:
        helper = combine.kernel(plan)
        source = rendered_helper(helper)
        values |= {"batch": values["outer"], "value_head_dim": plan.value_head_dim}
        kernel.run(source, helper.parameters, values, 3)
    return out, lse


def transposed(plan: KernelPlan, call: Call, values: Values, value_map: bytes) -> Array:
    """V transposed, if the call has it so; sets the field that says where."""
    wanted = TransposedValues.of(plan, problem_of(plan, call))
    tiles = np.full(wanted.bytes if call.ahead else 0, 0xFF, np.uint8)
    if call.ahead:
        values["values_ahead"] = tiles.ctypes.data
        helper = transposition.kernel(forward_facts(plan))
        kernel.run(rendered_helper(helper), helper.parameters, values, THREAD_BLOCKS, value_map)
    return tiles


def tensor_map(array: Array, box_rows: int, width: int = 1, across: int = 1) -> bytes:
    """As `Map` of hopper.cpp: the array seen as (column, grid column, grid row, head, batch), or as one grid row.

    `width` is the grid's, `across` a box's. Two columns of 8 bits are one.
    """
    (batch, heads, rows, size), strides = _seen(array)
    grid_2d = (width, rows // width) if width > 1 else (rows, 1)
    down = box_rows // across if width > 1 else 1
    extents = (size, *grid_2d, heads, batch)
    steps = (strides[3], strides[2], strides[2] * width, strides[1], strides[0])
    return _map(array, extents, steps, box_rows // down, down)


def group_map(array: Array, group: int) -> bytes:
    """The same of q where a tile has the rows of so many heads: (column, head of the group, query, group, batch)."""
    (batch, heads, rows, size), strides = _seen(array)
    extents = (size, group, rows, heads // group, batch)
    steps = (strides[3], strides[1], strides[2], strides[1] * group, strides[0])
    return _map(array, extents, steps, group, 64 // group)


def _seen(array: Array) -> tuple[tuple[int, ...], list[int]]:
    """Shape and strides of (batch, heads, rows, columns)."""
    seen = array if array.ndim == 4 else array[None]
    seen = seen.view(np.uint16) if seen.itemsize == 1 else seen
    return seen.shape, [stride // seen.itemsize for stride in seen.strides]


def _map(array: Array, extents: tuple[int, ...], steps: tuple[int, ...], across: int, down: int) -> bytes:
    return struct.pack("<Q5q5q2i", array.ctypes.data, *extents, *steps, across, down).ljust(MAP_BYTES, b"\0")


def problem_of(plan: KernelPlan, call: Call) -> Problem:
    heads, (q_len, kv_len) = (call.q.shape[-3], call.k.shape[-3]), (call.q.shape[-2], call.k.shape[-2])
    page = None if call.block_table is None else kv_len
    lengths = q_len, kv_len * (1 if call.block_table is None else call.block_table.shape[1])
    given = {"packed": call.cu is not None, "cached": call.kv_lens is not None, "has_offset": call.q_offset is not None}
    given["page"] = page
    return Problem(call.batch, *heads, *lengths, plan.head_dim, plan.value_head_dim, **given)


def sizes(plan: KernelPlan, call: Call) -> Values:
    problem = problem_of(plan, call)
    names = "batch", "num_heads", "num_kv_heads", "q_len", "kv_len"
    return {
        **{name: getattr(problem, name) for name in names}, "splits": call.splits,
        "q_blocks": facts_of(plan).q_blocks(problem),
        **(forward_facts(plan).heads_in_rows(problem) if plan.pass_name in FORWARD_PASSES else {}),
        "outer": 1 if problem.packed else call.batch,  # length of the batch axis
        "scale": _scale(plan) if call.scale is None else call.scale,
        **(page_fields(plan.block_kv, problem, len(call.k)) if plan.paged else {}),
        "seed": call.seed, "seed_pointer": 0, "values_ahead": 0, "kv_tiles": facts_of(plan).kv_blocks(problem),
    }  # fmt: skip


def tensors(call: Call, **arrays: Array) -> Values:
    values: Values = {}
    for name, array in arrays.items():
        strides = (array.strides if array.ndim == 4 else (0, *array.strides))[:3]
        axes = zip(("batch", "head", "row"), strides, strict=True)
        values |= {f"{name}_stride_{axis}": stride // array.itemsize for axis, stride in axes}
        values[name] = array.ctypes.data
    return values | call.cache_fields() | scales(call)


def scales(call: Call) -> Values:
    """The fields of scales of a cache of 8 bits."""
    pages, values = len(call.k), {"k_scale": 0, "v_scale": 0, "scales_of_pages": 0}
    values |= {f"{name}_scale_stride_{step}": 0 for name in ("k", "v") for step in ("row", "head")}
    for name in ("k_scale", "v_scale"):
        array = getattr(call, name)
        if array is not None:
            problem = Problem(call.batch, 1, 1, 1, 1, 1, 1, page=None if call.block_table is None else 1)
            values |= {name: array.ctypes.data} | scale_fields(array_facts(name, array), name, problem, pages)
    return values


def _scale(plan: KernelPlan) -> float:
    """Of a call that gives none: NaN asks the kernel for the variant's own."""
    return plan.head_dim**-0.5 if plan.variant.scale is None else math.nan


def _partials(plan: KernelPlan, call: Call, partial_out: Array, row_max: Array, row_sum: Array) -> Values:
    """Null where nothing is partial; without a normaliser nothing weighs splits."""
    partial = call.splits > 1 or plan.loop == "kv_outer"
    weighed = plan.loop == "kv_outer" or plan.variant.normalize == "softmax"
    return {
        "partial_out": partial_out.ctypes.data if partial else 0,
        "row_max": row_max.ctypes.data if partial and weighed else 0,
        "row_sum": row_sum.ctypes.data if partial and weighed else 0,
    }


def input_values(plan: KernelPlan, call: Call) -> tuple[Values, dict[str, Array]]:
    """The fields of all inputs and of the tables that the pre-pass makes of them; what to hold until the launch is
    over."""
    maps = prepass_results(plan, call)
    values: Values = {}
    for name, array in {**call.inputs, **maps}.items():
        values |= _input(name, array, batch_axis(plan, call, name), call.batch)
    for absent in plan.variant.inputs:
        if absent.name not in call.inputs:
            fields = (item.name for item in facts_of(plan).parameters())
            values |= {field: 0 for field in fields if field.startswith(absent.name)}
    return values, maps


def _input(name: str, array: Array, batch_axis: int | None, batch: int) -> Values:
    """The fields of an input or a table of one, which has no batch axis of its own where that is said."""
    if not array.shape:
        return {name: array.ctypes.data, f"{name}_value": 0}
    axes = [(stride // array.itemsize, size) for stride, size in zip(array.strides, array.shape, strict=True)]
    if batch_axis is not None:
        axes.insert(batch_axis, (0, batch))
    strides = {f"{name}_stride{axis}": stride for axis, (stride, _) in enumerate(axes)}
    return {name: array.ctypes.data, **strides, **{f"{name}_size{axis}": size for axis, (_, size) in enumerate(axes)}}


def batch_axis(plan: KernelPlan, call: Call, name: str) -> int | None:
    """Where a packed batch leaves an axis out of an input."""
    declared = plan.variant.input(name.partition("__")[0])
    if not merged(declared, problem_of(plan, call)):
        return None
    return [axis.tag for axis in declared.axes].index("batch")


def prepass_results(plan: KernelPlan, call: Call) -> dict[str, Array]:
    """What the pre-pass finds in inputs, by its own kernel."""
    found: dict[str, Array] = {}
    for prepass in input_prepasses(plan):
        array, table = call.inputs[prepass.input], prepass.min_max_table
        dtype = plan.variant.input(prepass.input).dtype
        block = 1 if table is None else table.block
        least, greatest = (np.empty((*array.shape[:-1], -(-array.shape[-1] // block)), array.dtype) for _ in range(2))
        holds = np.full((*array.shape[:-1], HINT_PIECES), 99, np.uint8)
        padded = array.reshape((1,) * (4 - array.ndim) + array.shape)
        values = {"input": array.ctypes.data, "minimum": 0, "maximum": 0, "holds": 0, "starts": 0, "block": block}
        values |= {f"stride{axis}": stride // array.itemsize for axis, stride in enumerate(padded.strides)}
        values |= {f"size{axis}": length for axis, length in enumerate(padded.shape)}
        values |= {"checked": array.shape[-1], "sequences": call.batch}
        if call.cu is not None and call.cu[1] is not None:
            values["starts"] = call.cu[1].ctypes.data
        if table is not None:
            values |= {"minimum": least.ctypes.data, "maximum": greatest.ctypes.data}
            found |= {table.min_name: least, table.max_name: greatest}
        if prepass.sorted_hint:
            values["holds"] = holds.ctypes.data
            found[sorted_name(prepass.input)] = holds if call.q_offset is None else np.zeros_like(holds)
        helper = min_max_table_kernel.kernel(dtype, plan.target)
        kernel.run(rendered_helper(helper), helper.parameters, values, 2)
    return found


def _list_words(plan: KernelPlan, call: Call, values: Values) -> int:
    """Sets the sizes of lists of live tiles: how many words there are of all blocks of queries."""
    lists = TileLists.of(plan, problem_of(plan, call))
    values |= {"list_batch": lists.batch, "list_heads": lists.heads, "list_words": lists.words, "list_parts": 3}
    return lists.count * lists.words


def _blocks(plan: KernelPlan, values: Values) -> int:
    if plan.loop == "kv_outer":
        return int(values["batch"] * values["num_heads"])
    heads = values["num_heads"] // values.get("row_heads", 1)
    return int(values["outer"] * heads * values["splits"] * values["q_blocks"])
