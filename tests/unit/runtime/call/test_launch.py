"""What calls with device arrays launch: every field of `Params`, grids, splits, streams, and what is refused before."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc.analysis.mask.tiles import analyse
from attncc.diagnostics import AttnccError
from attncc.ir import Const, Type, Variant
from attncc.kernels.parameters import HINT_PIECES
from tests import plans
from tests.unit.runtime.calls import BATCH, HEADS, KV_HEADS, KV_LEN, Q_LEN, D, plan, qkv
from tests.unit.runtime.conftest import MakeBench
from tests.unit.runtime.fakes import CONTEXT, FakeArray


def test_every_field_of_a_plain_call(bench: MakeBench) -> None:
    made = bench(plan(plans.CAUSAL))
    q, k, v = qkv()
    out = made.kernel(q, k, v)
    (launch,) = made.cuda.launches
    assert (launch.kernel, launch.threads, launch.shared_bytes) == ("causal_forward_fp16_d16_sm_90", 128, 4096)
    assert launch.grid == BATCH * HEADS * 2  # 45 rows in blocks of 32
    assert launch.stream == made.framework.stream
    assert launch.params == {
        "q": q.pointer, "k": k.pointer, "v": v.pointer, "out": out.pointer, "lse": 0, "partial_out": 0,
        "row_max": 0, "row_sum": 0, "cu_seqlens_q": 0, "cu_seqlens_kv": 0, "kv_lens": 0, "block_table": 0,
        "q_offsets": 0, "q_offset": 0, "q_offset_form": 0,
        "q_stride_batch": HEADS * Q_LEN * D, "q_stride_head": Q_LEN * D, "q_stride_row": D,
        "k_stride_batch": KV_HEADS * KV_LEN * D, "k_stride_head": KV_LEN * D, "k_stride_row": D,
        "v_stride_batch": KV_HEADS * KV_LEN * D, "v_stride_head": KV_LEN * D, "v_stride_row": D,
        "out_stride_batch": HEADS * Q_LEN * D, "out_stride_head": Q_LEN * D, "out_stride_row": D,
        "batch": BATCH, "num_heads": HEADS, "num_kv_heads": KV_HEADS, "q_len": Q_LEN, "kv_len": KV_LEN,
        "q_blocks": 2, "splits": 1, "head_swizzle": 12, "scale": 0.25,
    }  # fmt: skip
    assert (out.shape, out.dtype) == (q.shape, "float16")


def test_lse_and_out(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    q, k, v = qkv()
    mine = FakeArray(q.shape, "float16")
    out, lse = made.kernel(q, k, v, out=mine, return_lse=True)
    assert out is mine
    assert (lse.shape, lse.dtype) == ((BATCH, HEADS, Q_LEN), "float32")
    assert (made.params()["out"], made.params()["lse"]) == (mine.pointer, lse.pointer)
    assert len(made.framework.allocated) == 1  # lse alone
    assert not made.framework.released


def test_layout_bshd_and_broadcast_strides(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    q = FakeArray((BATCH, Q_LEN, HEADS, D), "float16")
    k = FakeArray((BATCH, KV_LEN, KV_HEADS, D), "float16", strides=(0, D, 0, 1))
    made.kernel(q, k, k, layout="bshd")
    params = made.params()
    assert (params["q_stride_batch"], params["q_stride_head"], params["q_stride_row"]) == (
        Q_LEN * HEADS * D,
        D,
        HEADS * D,
    )
    assert (params["k_stride_batch"], params["k_stride_head"], params["k_stride_row"]) == (0, 0, D)
    assert (params["q_len"], params["kv_len"], params["num_heads"]) == (Q_LEN, KV_LEN, HEADS)
    assert params["out_stride_row"] == HEADS * D


def test_inputs_by_pointer_and_by_value(bench: MakeBench) -> None:
    made = bench(plan(plans.ALIBI))
    slope, cap = FakeArray((HEADS,), "float32", strides=(3,)), FakeArray((), "float32")
    made.kernel(*qkv(), slope=slope, cap=30)
    params = made.params()
    assert (params["slope"], params["slope_stride0"], params["slope_size0"]) == (slope.pointer, 3, HEADS)
    assert (params["cap"], params["cap_value"]) == (0, 30.0)
    made.kernel(*qkv(), cap=cap, slope=slope)
    assert (made.params()["cap"], made.params()["cap_value"]) == (cap.pointer, 0.0)
    made.kernel(*qkv(), slope=slope, cap=1e300)  # f32 can't hold it
    assert made.params()["cap_value"] == math.inf
    made.kernel(*qkv(), slope=slope, cap=-(10**400))
    assert made.params()["cap_value"] == -math.inf


def test_a_0d_array_of_the_cpu_is_a_number(bench: MakeBench) -> None:
    made = bench(plan(plans.ALIBI))
    for cap in (np.float64(2.5), np.array(2.5, np.float32)):
        made.kernel(*qkv(), slope=FakeArray((HEADS,), "float32"), cap=cap)
        assert (made.params()["cap"], made.params()["cap_value"]) == (0, 2.5)


def test_scale(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    made.kernel(*qkv(), scale=-2)
    assert made.params()["scale"] == -2.0
    own = bench(plan(Variant("scaled", scale=Const(Type.FLOAT, 3.0))))
    own.kernel(*qkv())
    assert math.isnan(own.params()["scale"])  # the kernel computes the variant's own
    own.kernel(*qkv(), scale=0.5)
    assert own.params()["scale"] == 0.5


def test_seed_by_value_and_by_pointer(bench: MakeBench) -> None:
    made = bench(plan(plans.DROPOUT))
    made.kernel(*qkv(), seed=-1)
    assert (made.params()["seed"], made.params()["seed_pointer"]) == (2**64 - 1, 0)
    pointer = FakeArray((), "int64")
    made.kernel(*qkv(), seed=pointer)
    assert (made.params()["seed"], made.params()["seed_pointer"]) == (0, pointer.pointer)
    with pytest.raises(AttnccError, match="`seed` is missing"):
        made.kernel(*qkv())
    made.kernel(*qkv(), seed=0)
    with pytest.raises(AttnccError, match="`seed` is missing"):
        made.kernel(*qkv())


def test_packed_batches(bench: MakeBench) -> None:
    made = bench(plan(plans.DOCUMENTS, skip="never"))
    q, k = FakeArray((HEADS, 100, D), "float16"), FakeArray((KV_HEADS, 130, D), "float16")
    cu = FakeArray((4,), "int32")
    doc = FakeArray((130,), "int32")
    out, lse = made.kernel(q, k, k, cu_seqlens_q=cu, cu_seqlens_kv=cu, doc=doc, return_lse=True)
    params = made.params()
    assert made.cuda.launches[-1].grid == HEADS * (100 // 32 + 3)
    assert (params["batch"], params["q_len"], params["kv_len"], params["q_blocks"]) == (3, 100, 130, 6)
    assert (params["cu_seqlens_q"], params["cu_seqlens_kv"]) == (cu.pointer, cu.pointer)
    assert (params["q_stride_batch"], params["q_stride_head"], params["q_stride_row"]) == (0, 100 * D, D)
    assert (params["doc_stride0"], params["doc_stride1"]) == (0, 1)  # batch has no axis of its own
    assert (params["doc_size0"], params["doc_size1"]) == (3, 130)
    assert (out.shape, lse.shape) == ((HEADS, 100, D), (HEADS, 100))


def test_splits_go_through_the_workspace(bench: MakeBench) -> None:
    made = bench(plan(plans.CAUSAL, split_kv=3))
    out, lse = made.kernel(*qkv(), return_lse=True)
    main, combine = made.cuda.launches
    rows = BATCH * HEADS * Q_LEN
    assert main.grid == BATCH * HEADS * 3 * 2
    assert combine.kernel == "combine_fp16_sm_90"
    assert combine.grid == 264 < rows  # as many blocks as the GPU holds
    assert (main.params["out"], main.params["lse"]) == (0, 0)
    assert main.params["partial_out"] == combine.params["partial_out"]
    state = [main.params[name] for name in ("partial_out", "row_max", "row_sum")]
    assert state == [combine.params[name] for name in ("partial_out", "row_max", "row_sum")]
    assert state[1] - state[0] >= 3 * rows * D * 4
    assert state[2] - state[1] >= 3 * rows * 4
    assert (combine.params["out"], combine.params["lse"]) == (out.pointer, lse.pointer)
    sizes = {name: combine.params[name] for name in ("batch", "num_heads", "q_len", "splits", "value_head_dim")}
    assert sizes == {"batch": BATCH, "num_heads": HEADS, "q_len": Q_LEN, "splits": 3, "value_head_dim": D}
    (workspace,) = made.framework.released
    assert workspace.pointer == main.params["partial_out"]
    assert math.prod(workspace.shape) * 4 >= 3 * rows * (D + 2) * 4


def test_splits_that_just_add_up_have_no_weights(bench: MakeBench) -> None:
    made = bench(plan(plans.SIGMOID, split_kv=2))
    made.kernel(*qkv())
    assert [item.params["row_max"] for item in made.cuda.launches] == [0, 0]


def test_packed_splits_are_one_dense_sequence_to_the_combine(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL, split_kv=2))
    q, cu = FakeArray((HEADS, 100, D), "float16"), FakeArray((3,), "int32")
    made.kernel(q, q, q, cu_seqlens_q=cu, cu_seqlens_kv=cu)
    combine = made.cuda.launches[-1]
    assert (combine.params["batch"], combine.params["q_len"], combine.params["out_stride_batch"]) == (1, 100, 0)


def test_automatic_splits_fill_the_gpu(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL, split_kv=None))
    made.kernel(*qkv(batch=1, q_len=1, kv_len=64000))
    splits = made.params()["splits"]
    assert splits == 44  # 264 resident blocks over 6 heads
    made.kernel(*qkv(batch=64, q_len=100, kv_len=64000))
    assert made.params()["splits"] == 1
    assert made.params()["partial_out"] == 0
    assert made.params()["out"] != 0


def test_kv_outer_keeps_its_state_in_the_workspace(bench: MakeBench) -> None:
    made = bench(plan(plans.CAUSAL, loop="kv_outer"))
    out = made.kernel(*qkv())
    (launch,) = made.cuda.launches
    assert launch.grid == BATCH * HEADS
    rows = BATCH * HEADS * Q_LEN * 4
    places = [launch.params[name] for name in ("partial_out", "row_max", "row_sum")]
    assert places[0] + rows * D <= places[1] < places[1] + rows <= places[2]
    assert launch.params["out"] == out.pointer


def test_min_max_tables_come_before_the_kernel(bench: MakeBench) -> None:
    made = bench(plan(plans.DOCUMENTS, skip="in_kernel"))
    doc = FakeArray((BATCH, KV_LEN), "int32", strides=(0, 1))
    made.kernel(*qkv(), doc=doc)
    min_max_table, main = made.cuda.launches
    assert min_max_table.kernel == "min_max_table_i32_sm_90"
    blocks = math.ceil(KV_LEN / 32)
    assert min_max_table.grid == math.ceil(BATCH * blocks / 4)
    assert {name: min_max_table.params[name] for name in ("input", "block")} == {"input": doc.pointer, "block": 32}
    assert [min_max_table.params[f"size{axis}"] for axis in range(4)] == [1, 1, BATCH, KV_LEN]
    assert [min_max_table.params[f"stride{axis}"] for axis in range(4)] == [0, 0, 0, 1]
    for end, name in (("min", "minimum"), ("max", "maximum")):
        assert main.params[f"doc__{end}"] == min_max_table.params[name] != 0
        assert (main.params[f"doc__{end}_stride0"], main.params[f"doc__{end}_stride1"]) == (blocks, 1)
        assert (main.params[f"doc__{end}_size0"], main.params[f"doc__{end}_size1"]) == (BATCH, blocks)
    assert main.params["doc"] == doc.pointer


@pytest.mark.parametrize("packed", [False, True])
def test_lists_of_tiles_come_before_the_kernel(bench: MakeBench, packed: bool) -> None:
    """From the same fields; a list for each block of queries, whatever the head, and room for two words of 32 tiles."""
    made = bench(plan(plans.DOCUMENTS))
    q, k = (FakeArray((n, length, D), "float16") for n, length in ((HEADS, 100), (KV_HEADS, 600)))
    if packed:
        starts = {name: FakeArray((4,), "int32") for name in ("cu_seqlens_q", "cu_seqlens_kv")}
        made.kernel(q, k, k, doc=FakeArray((600,), "int32"), **starts)
    else:
        made.kernel(*qkv(q_len=100, kv_len=600), doc=FakeArray((BATCH, 600), "int32"))
    min_max_table, lists, main = made.cuda.launches
    blocks = 100 // 32 + 3 if packed else 4
    count = blocks if packed else BATCH * blocks
    assert lists.kernel == "tile_lists_documents_fp16_d16_sm_90" and lists.grid == -(-count * 2 // 4)
    fields = {"list_batch": 1 if packed else BATCH, "list_heads": 1, "list_words": 2, "q_blocks": blocks}
    fields["list_parts"] = 2  # a word each: the GPU has more warps than there are lists
    assert {name: main.params[name] for name in fields} == fields
    assert main.params == lists.params
    assert main.params["tile_lists"] - min_max_table.params["maximum"] >= 600 // 32 * 4
    (workspace,) = made.framework.released
    assert math.prod(workspace.shape) * 4 - (main.params["tile_lists"] - workspace.pointer) >= count * 2 * 8


MANY_KEYS = 256


def sorted_documents() -> Any:
    hinted = tuple(replace(item, nondecreasing=True) for item in plans.DOCUMENTS.inputs)
    documents = replace(plans.DOCUMENTS, inputs=hinted)
    return plan(documents, rules=analyse(documents, 32, 16))


@pytest.mark.parametrize("packed", [False, True])
def test_hints_are_verified_before_the_kernel(bench: MakeBench, packed: bool) -> None:
    """In one launch, of the positions in use; nothing is cleared, and no min/max tables are made where none is read."""
    made = bench(sorted_documents())
    if packed:
        q, k = (FakeArray(shape, "float16") for shape in ((HEADS, 60, D), (KV_HEADS, 90, D)))
        doc = FakeArray((90,), "int32")
        starts = {"cu_seqlens_q": FakeArray((4,), "int32"), "cu_seqlens_kv": FakeArray((4,), "int32")}
        made.kernel(q, k, k, doc=doc, **starts)
    else:
        doc, starts = FakeArray((BATCH, MANY_KEYS + 9), "int32"), {}
        made.kernel(*qkv(kv_len=MANY_KEYS), doc=doc)
    prepass, main = made.cuda.launches
    lines = 1 if packed else BATCH
    assert (prepass.kernel, prepass.grid) == ("min_max_table_i32_sm_90", lines * HINT_PIECES)
    assert prepass.params["input"] == doc.pointer and prepass.params["minimum"] == prepass.params["maximum"] == 0
    assert prepass.params["checked"] == (90 if packed else MANY_KEYS)
    assert prepass.params["starts"] == (starts["cu_seqlens_kv"].pointer if packed else 0)
    assert prepass.params["sequences"] == (3 if packed else 0)
    assert main.params["doc__sorted"] == prepass.params["holds"] != 0
    assert main.params["doc__sorted_stride0"] == (0 if packed else HINT_PIECES)


@pytest.mark.parametrize("batch", [2, 23])
def test_hints_are_not_verified_for_few_keys(bench: MakeBench, batch: int) -> None:
    """No line is said to hold, by zeros that lie ready; but not where there are more blocks than the GPU holds."""
    made = bench(sorted_documents())
    doc = FakeArray((batch, MANY_KEYS - 1), "int32")
    made.kernel(*qkv(batch=batch, kv_len=MANY_KEYS - 1), doc=doc)
    assert len(made.cuda.launches) == (1 if batch == 2 else 2)  # of 12 blocks for each sequence, 264 at once
    main = made.params()
    if batch == 2:
        ((zeros, _, launches),) = made.cuda.zeroed
        assert (zeros, launches, made.cuda.zeroed_words) == (main["doc__sorted"], 0, [HINT_PIECES // 4])
        assert not made.framework.released
    assert (main["doc__sorted_stride0"], main["doc__sorted_stride1"]) == (0 if batch == 2 else HINT_PIECES, 1)
    assert main["doc"] == doc.pointer


@pytest.mark.parametrize("what", ["base", "stride"])
def test_what_16_byte_copies_cannot_read_is_packed_first(bench: MakeBench, what: str) -> None:
    made = bench(plan(plans.FULL))
    q, k, v = qkv()
    if what == "base":
        k = FakeArray(k.shape, "float16", pointer=k.pointer + 2)
    else:
        k = FakeArray(k.shape, "float16", strides=(KV_HEADS * KV_LEN * (D + 1), KV_LEN * (D + 1), D + 1, 1))
    made.kernel(q, k, v)
    (copy,) = made.framework.released
    assert copy.contents == [f"copy of {k.pointer}"]
    assert made.params()["k"] == copy.pointer
    assert made.params()["k_stride_row"] == D
    assert made.params()["q"] == q.pointer


@pytest.mark.parametrize("axis", [0, 2], ids=["pages", "rows"])
def test_pools_that_go_downwards_are_packed_first(bench: MakeBench, axis: int) -> None:
    """Kernels of pages take a row before the pool's first for none."""
    made = bench(replace(plan(plans.FULL), paged=True))
    q, _, _ = qkv()
    k, v = (FakeArray((9, KV_HEADS, 16, D), "float16") for _ in range(2))
    strides = tuple(-stride if own == axis else stride for own, stride in enumerate(v.strides))
    v = FakeArray(v.shape, "float16", strides, pointer=v.pointer)
    lengths, table = FakeArray((BATCH,), "int32"), FakeArray((BATCH, 3), "int32")
    made.kernel(q, k, v, kv_lens=lengths, block_table=table)
    (copy,) = made.framework.released
    assert copy.contents == [f"copy of {v.pointer}"]
    params = made.params()
    assert (params["k"], params["v"], params["v_stride_batch"]) == (k.pointer, copy.pointer, KV_HEADS * 16 * D)


def test_an_unaligned_out_is_copied_to(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    q, k, v = qkv()
    out = FakeArray(q.shape, "float16", pointer=0x6F0000000008)
    assert made.kernel(q, k, v, out=out) is out
    assert out.contents == [f"copy of {made.params()['out']}"]
    assert made.params()["out"] != out.pointer


def test_strides_of_axes_of_length_1_do_not_matter(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    q, _, _ = qkv(batch=1, q_len=1, kv_len=1)
    k = FakeArray((1, KV_HEADS, 1, D), "float16", strides=(7, D, 3, 1))
    made.kernel(q, k, k)
    assert not made.framework.released
    assert made.params()["k_stride_batch"] == 0


@pytest.mark.parametrize(("batch", "q_len"), [(0, 5), (3, 0)])
def test_no_rows_launch_nothing(bench: MakeBench, batch: int, q_len: int) -> None:
    made = bench(plan(plans.CAUSAL, split_kv=2))
    out, lse = made.kernel(*qkv(batch=batch, q_len=q_len), return_lse=True)
    assert (out.shape, lse.shape) == ((batch, HEADS, q_len, D), (batch, HEADS, q_len))
    assert not made.cuda.launches


def test_no_sequences_launch_nothing(bench: MakeBench) -> None:
    made = bench(plan(plans.CAUSAL))
    q, cu = FakeArray((HEADS, 100, D), "float16"), FakeArray((1,), "int32")
    made.kernel(q, q, q, cu_seqlens_q=cu, cu_seqlens_kv=cu)
    assert not made.cuda.launches


def test_no_keys_still_write_the_rows(bench: MakeBench) -> None:
    made = bench(plan(plans.CAUSAL))
    made.kernel(*qkv(kv_len=0))
    assert len(made.cuda.launches) == 1


def test_a_given_stream_is_used(bench: MakeBench) -> None:
    class Stream:
        cuda_stream = 0xAB

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0xCD

    made = bench(plan(plans.FULL))
    for stream, handle in ((Stream(), 0xAB), (Protocol(), 0xCD), (7, 7)):
        made.kernel(*qkv(), stream=stream)
        assert made.cuda.launches[-1].stream == handle
    with pytest.raises(AttnccError, match="A651"):
        made.kernel(*qkv(), stream="default")


def test_what_the_framework_records_is_not_launched(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bench(plan(plans.FULL))
    monkeypatch.setattr("attncc.runtime.torch.autograd.recorded", lambda kernel, call: (kernel, call.q))
    monkeypatch.setattr("attncc.runtime.torch.autograd.traced", lambda kernel, call, stream: (kernel, call.q, stream))
    monkeypatch.setattr(made.framework, "records", lambda variant, configurations, call: True)
    q, k, v = qkv()
    assert made.kernel(q, k, v) == (made.kernel, q)
    assert not made.cuda.launches
    monkeypatch.setattr(made.framework, "traces", lambda: True)
    monkeypatch.setattr("attncc.runtime.kernel.is_traced", lambda: True)
    assert made.kernel(q, k, v, stream=7) == (made.kernel, q, 7)


def test_another_device_than_the_current_one(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    arrays = [FakeArray(array.shape, array.dtype, ordinal=1) for array in qkv()]
    assert made.kernel(*arrays).ordinal == 1
    assert made.cuda.launches[-1].context == CONTEXT + 1
    assert made.cuda.contexts == [CONTEXT]  # as it was


def test_a_thread_without_a_context(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    made.cuda.contexts.clear()
    made.kernel(*qkv())
    assert made.cuda.launches[-1].context == CONTEXT
    assert made.cuda.contexts == []


def test_threads_share_no_arguments(bench: MakeBench) -> None:
    """A launch that starts while another's arguments are being read, as the driver releases Python's lock then."""
    made = bench(plan(plans.FULL))
    first, second = qkv(), qkv()
    made.kernel(*first)
    body = made.cuda.cuLaunchKernelEx._body
    results = []

    def interrupted(*arguments: Any) -> Any:
        made.cuda.cuLaunchKernelEx._body = body
        results.append(made.kernel(*second))
        return body(*arguments)

    made.cuda.cuLaunchKernelEx._body = interrupted
    results.append(made.kernel(*first))
    seen = [(item.params["q"], item.params["out"]) for item in made.cuda.launches[1:]]
    assert seen == [(second[0].pointer, results[0].pointer), (first[0].pointer, results[1].pointer)]
    for arrays in (first, second):
        made.kernel(*arrays)
        assert made.params()["q"] == arrays[0].pointer


def test_everything_is_loaded_at_the_first_call(bench: MakeBench) -> None:
    made = bench(plan(plans.DOCUMENTS, split_kv=None))
    made.kernel(*qkv(batch=100, q_len=Q_LEN), doc=FakeArray((100, KV_LEN), "int32"))
    assert "combine_fp16_sm_90" not in [item.kernel for item in made.cuda.launches]
    assert {"combine_fp16_sm_90", "min_max_table_i32_sm_90"} <= set(made.cuda.loaded)
    count = len(made.cuda.loaded)
    made.kernel(*qkv(batch=1, q_len=1, kv_len=64000), doc=FakeArray((1, 64000), "int32"))
    assert len(made.cuda.loaded) == count


# -------------------------------------------------------------------- host time


def test_prepared_calls_are_kept_within_bounds(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.runtime.call.launch._MOST_PREPARED", 3)
    made = bench(plan(plans.FULL))
    for kv_len in range(1, 10):
        made.kernel(*qkv(kv_len=kv_len))
    assert len(made.kernel._launcher._prepared) <= 3


def test_host_time(bench: MakeBench) -> None:
    """A loose bound for a slow machine with a driver written in Python; on a GPU a call stays under 20 microseconds."""
    made = bench(plan(plans.ALIBI))
    slope, arrays = FakeArray((HEADS,), "float32"), qkv()
    out = FakeArray(arrays[0].shape, "float16")
    made.cuda.cuLaunchKernelEx._body = lambda *_: 0
    samples = []
    for _ in range(200):
        start = time.perf_counter()
        made.kernel(*arrays, slope=slope, cap=30.0, out=out)
        samples.append(time.perf_counter() - start)
    assert min(samples) < 60e-6


def test_nothing_is_loaded_while_sizes_are_swept(bench: MakeBench) -> None:
    """Lengths, batches, heads and scalars, by value and by pointer: one load of each kernel serves them all."""
    made = bench(plan(plans.ALIBI))
    for batch, q_len, kv_len, cap in ((1, 1, 1, 1.0), (2, 1, 999, 2.0), (3, 500, 700, 3.0), (1, 4096, 4096, 4.0)):
        slope = FakeArray((HEADS,), "float32")
        made.kernel(*qkv(batch=batch, q_len=q_len, kv_len=kv_len), slope=slope, cap=cap)
        made.kernel(*qkv(batch=batch, q_len=q_len, kv_len=kv_len), slope=slope, cap=FakeArray((), "float32"))
    assert len(made.cuda.launches) == 8 and len(made.cuda.loaded) == 1
