"""What calls bring that kernels don't read as it is, and results that take the form of what came."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.diagnostics import AttnccWarning
from attncc.kernels.candidates import make_plan
from attncc.problem import swapped_axes
from attncc.runtime.kernel import Kernel
from tests import plans
from tests.unit.runtime.call.test_backward_launch import made_of, operands
from tests.unit.runtime.calls import BATCH, HEADS, KV_HEADS, KV_LEN, Q_LEN, D, plan, qkv
from tests.unit.runtime.conftest import MakeBench
from tests.unit.runtime.fakes import FakeArray, FakeStore


def test_out_has_the_order_of_q_in_memory(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    _, k, v = qkv()
    strides = (Q_LEN * HEADS * D, D, HEADS * D, 1)
    q = FakeArray((BATCH, HEADS, Q_LEN, D), "float16", strides)
    out = made.kernel(q, k, v)
    assert (out.shape, out.strides) == (q.shape, strides)
    params = made.params()
    found = params["out_stride_batch"], params["out_stride_head"], params["out_stride_row"]
    assert found == strides[:3]
    unaligned = FakeArray(q.shape, "float16", strides, pointer=q.pointer + 2)
    assert made.kernel(unaligned, k, v).strides == strides  # though q is copied first


def test_gradients_have_the_order_of_their_operands_in_memory(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands()
    _, heads, rows, columns = given["k"].shape
    strides = (rows * heads * columns, columns, heads * columns, 1)
    given["k"] = FakeArray(given["k"].shape, "float16", strides)
    found = made.kernel.backward(**given)
    assert (found.dk.strides, found.dv.strides) == (strides, given["v"].strides)
    main = made.cuda.launches[1].params
    assert tuple(main[f"dk_stride_{axis}"] for axis in ("batch", "head", "row")) == strides[:3]


def test_int64_is_copied_to_int32_at_each_call(bench: MakeBench) -> None:
    made = bench(plan(plans.DOCUMENTS))
    wide, strides = FakeArray((BATCH, KV_LEN + 3), "int64", strides=(0, 1)), KV_LEN + 3
    for _ in range(3):  # the last is read by code of its own
        made.framework.released.clear()
        made.kernel(*qkv(), doc=wide)
        copied = next(array for array in made.framework.released if array.dtype == "int32")
        assert copied.contents == [f"copy of {wide.pointer}"]
        assert (made.params()["doc"], made.params()["doc_stride0"]) == (copied.pointer, strides)
    prepass = next(item for item in made.cuda.launches if "forward" not in item.kernel)
    assert prepass.params["stride2"] == strides
    narrow = FakeArray(wide.shape, "int32")
    made.framework.released.clear()
    made.kernel(*qkv(), doc=narrow)
    assert made.params()["doc"] == narrow.pointer
    assert not [array for array in made.framework.released if array.dtype == "int32"]


def test_int64_cu_seqlens(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    q, k = FakeArray((HEADS, 100, D), "float16"), FakeArray((KV_HEADS, 130, D), "float16")
    wide, narrow = FakeArray((4,), "int64"), FakeArray((4,), "int32")
    made.kernel(q, k, k, cu_seqlens_q=wide, cu_seqlens_kv=narrow)
    (copied,) = (array for array in made.framework.released if array.contents)
    assert copied.contents == [f"copy of {wide.pointer}"]
    assert (made.params()["cu_seqlens_q"], made.params()["cu_seqlens_kv"]) == (copied.pointer, narrow.pointer)


def test_int64_of_a_backward_call(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.DOCUMENTS), operands(packed=True)
    starts, doc = FakeArray((4,), "int64"), FakeArray((KV_LEN,), "int64")
    for _ in range(2):
        made.framework.released.clear()
        made.kernel.backward(**given, cu_seqlens_q=starts, cu_seqlens_kv=starts, doc=doc)
        of = {array.contents[0]: array.pointer for array in made.framework.released if array.contents}
        _, main, rounded = (item.params for item in made.cuda.launches[-3:])
        assert rounded["cu_seqlens_q"] == main["cu_seqlens_kv"] == of[f"copy of {starts.pointer}"]
        assert main["doc"] == of[f"copy of {doc.pointer}"]


def test_k_and_v_of_batch_1_serve_all_sequences(bench: MakeBench) -> None:
    made, given = made_of(bench, plans.CAUSAL), operands()
    given["k"] = FakeArray((1, KV_HEADS, KV_LEN, D), "float16", (0, D, KV_HEADS * D, 1))
    found = made.kernel.backward(**given)
    main = made.cuda.launches[1].params
    assert (main["batch"], main["k_stride_batch"], main["v_stride_batch"]) == (BATCH, 0, KV_HEADS * KV_LEN * D)
    (each,) = (array for array in made.framework.allocated if found.dk.contents == [f"sum of {array.pointer}"])
    assert (main["dk"], each.shape) == (each.pointer, (BATCH, *given["k"].shape[1:]))
    assert tuple(main[f"dk_stride_{axis}"] for axis in ("batch", "head", "row")) == each.strides[:3]
    assert (found.dk.shape, found.dk.strides[1:]) == (given["k"].shape, given["k"].strides[1:])
    assert each in made.framework.released and not found.dv.contents
    made = bench(plan(plans.FULL))
    made.kernel(qkv()[0], given["k"], given["v"])
    assert (made.params()["batch"], made.params()["k_stride_batch"]) == (BATCH, 0)


def test_rows_of_other_head_dims_are_filled_up(bench: MakeBench) -> None:
    made = bench(plans.plan(plans.FULL, "fp16", target="sm_90", head_dim=20, value_head_dim=13))
    strides = (Q_LEN * HEADS * 20, 20, HEADS * 20, 1)
    q, k = FakeArray((BATCH, HEADS, Q_LEN, 20), "float16", strides), FakeArray((BATCH, KV_HEADS, KV_LEN, 20), "float16")
    v = FakeArray((BATCH, KV_HEADS, KV_LEN, 13), "float16")
    out = made.kernel(q, k, v)
    params, copied = made.params(), {array.contents[0]: array for array in made.framework.released}
    for name, array, columns in (("q", q, 24), ("k", k, 24), ("v", v, 16)):
        filled = copied[f"copy of {array.pointer}"]
        assert (params[name], filled.shape) == (filled.pointer, (*array.shape[:-1], columns))
        assert params[f"{name}_stride_row"] == columns
    assert params["scale"] == np.float32(20**-0.5)
    assert (out.shape, out.strides) == ((*q.shape[:-1], 13), (Q_LEN * HEADS * 16, 16, HEADS * 16, 1))
    assert (params["out"], params["out_stride_head"]) == (out.pointer, 16)
    assert made.framework.allocated[-1].shape[-1] == 16  # rows end in memory of their own
    mine = FakeArray(out.shape, "float16")
    assert made.kernel(q, k, v, out=mine) is mine
    assert mine.contents == [f"copy of {made.params()['out']}"]


def test_gradients_of_other_head_dims_are_cut(bench: MakeBench) -> None:
    sizes = {"head_dim": 20, "value_head_dim": 20, "target": "sm_90"}
    of_backward = (make_plan(plans.CAUSAL, dtype="fp16", pass_name=x, **sizes) for x in ("backward", "backward_dq"))
    made = bench(plans.plan(plans.CAUSAL, "fp16", **sizes), *of_backward)
    shapes = {name: (*array.shape[:-1], 20) for name, array in operands().items() if name != "lse"}
    given = {name: FakeArray(shape, "float16") for name, shape in shapes.items()} | {"lse": operands()["lse"]}
    found = made.kernel.backward(**given)
    delta, main, rounded = (item.params for item in made.cuda.launches)
    assert (found.dq.shape, found.dk.shape, found.dv.shape) == (shapes["q"], shapes["k"], shapes["v"])
    assert (rounded["dq"], main["dk"], main["dv"]) == (found.dq.pointer, found.dk.pointer, found.dv.pointer)
    assert main["dk_stride_row"] == main["dout_stride_row"] == delta["out_stride_row"] == rounded["dq_stride_row"] == 24


def test_heads_that_look_like_lengths_are_warned_of(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swapped_axes, "_warned", set())
    q = np.zeros((1, 200, 2, 16), np.float32)
    with pytest.warns(AttnccWarning, match='A624.*200 heads of 2 rows(.*\n)*.*layout="bshd"'):
        Kernel(FakeStore(plans.plan(plans.FULL, "fp32")))(q, q, q)
    array = FakeArray(q.shape, "float16")
    with pytest.warns(AttnccWarning, match="A624"):
        bench(plan(plans.CAUSAL)).kernel(array, array, array)
