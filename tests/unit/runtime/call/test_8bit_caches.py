"""Calls over caches of 8 bits, with device arrays: which kernels they load, what these are told of scales."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.schedule.plan import KernelPlan
from tests import plans
from tests.unit.runtime.calls import BATCH, HEADS, KV_HEADS, KV_LEN, Q_LEN, D, plan, qkv
from tests.unit.runtime.conftest import MakeBench
from tests.unit.runtime.fakes import FakeArray

PAGES, PAGE = 50, 16


def of_cache(**changes: Any) -> tuple[KernelPlan, KernelPlan]:
    """The plan of plain calls, and that of a cache of int8."""
    whole = plan(plans.CAUSAL)
    return whole, replace(whole, kv_dtype="int8", **changes)


def cache(dtype: str = "int8", head_dim: int = D) -> tuple[FakeArray, FakeArray]:
    shape = BATCH, KV_HEADS, KV_LEN, head_dim
    return FakeArray(shape, dtype), FakeArray(shape, dtype)


def test_scales_of_sequences(bench: MakeBench) -> None:
    made = bench(*of_cache())
    q, (k, v) = qkv()[0], cache()
    k_scale, v_scale = FakeArray((BATCH, KV_HEADS), "float32"), FakeArray((1, KV_HEADS), "float32")
    made.kernel(q, k, v, k_scale=k_scale, v_scale=v_scale)
    (launch,) = made.cuda.launches
    assert launch.kernel == "causal_forward_fp16_d16_kv_int8_sm_90"
    params = launch.params
    assert (params["k"], params["k_scale"], params["v_scale"]) == (k.pointer, k_scale.pointer, v_scale.pointer)
    assert (params["k_scale_stride_row"], params["k_scale_stride_head"]) == (KV_HEADS, 1)
    assert (params["v_scale_stride_row"], params["scales_of_pages"]) == (0, 0)
    assert (params["k_stride_row"], params["q_stride_row"]) == (D, D)
    made.kernel(q, k, v)
    assert (made.params()["k_scale"], made.params()["v_scale"]) == (0, 0)


def test_plain_calls_know_nothing_of_it(bench: MakeBench) -> None:
    made = bench(*of_cache())
    made.kernel(*qkv())
    assert made.cuda.launches[0].kernel == "causal_forward_fp16_d16_sm_90" and "k_scale" not in made.params()


def test_scales_of_pages(bench: MakeBench) -> None:
    made = bench(*of_cache(paged=True))
    pool, scale = FakeArray((PAGES, KV_HEADS, PAGE, D), "int8"), FakeArray((PAGES, KV_HEADS), "float32", strides=(0, 1))
    given = {"kv_lens": FakeArray((BATCH,), "int32"), "block_table": FakeArray((BATCH, 3), "int32")}
    made.kernel(qkv()[0], pool, pool, **given, k_scale=scale, v_scale=scale)
    params = made.params()
    assert made.cuda.launches[0].kernel.endswith("_kv_int8_paged_sm_90")
    assert (params["scales_of_pages"], params["k_scale_stride_row"], params["pages"]) == (1, 0, PAGES)


def test_rows_are_aligned_as_those_of_8_bits(bench: MakeBench) -> None:
    """A head dim of 24 is read in 24 columns of fp16, in 32 of int8."""
    whole = replace(plan(plans.CAUSAL), head_dim=24, value_head_dim=24)
    made = bench(whole, replace(whole, kv_dtype="int8"))
    k, v = cache(head_dim=24)
    made.kernel(FakeArray((BATCH, HEADS, Q_LEN, 24), "float16"), k, v)
    params = made.params()
    assert (params["q_stride_row"], params["k_stride_row"], params["v_stride_row"]) == (24, 32, 32)
    assert len(made.framework.released) == 2


def refused(made: Any, *operands: FakeArray, **arguments: Any) -> AttnccError:
    with pytest.raises(AttnccError) as caught:
        made.kernel(*operands, **arguments)
    assert not made.cuda.launches
    return caught.value


def test_what_is_refused(bench: MakeBench) -> None:
    made = bench(*of_cache())
    q, k, v = qkv()
    narrow = cache()[0]
    scale = FakeArray((BATCH, KV_HEADS), "float32")
    assert "A604" in str(refused(made, q, narrow, v))
    assert "A604" in str(refused(made, q, narrow, cache("float8_e4m3fn")[0]))
    assert "A604" in str(refused(made, narrow, narrow, narrow))
    assert "A629" in str(refused(made, q, k, v, k_scale=scale))
    for wrong in (FakeArray((BATCH + 1, KV_HEADS), "float32"), FakeArray((BATCH, KV_HEADS), "float16")):
        assert "A629" in str(refused(made, q, narrow, narrow, v_scale=wrong))
    one = FakeArray((BATCH, KV_HEADS), "float32", ordinal=1)
    assert "A605" in str(refused(made, q, narrow, narrow, k_scale=one))


def test_missing_kernels_name_the_build_command(bench: MakeBench) -> None:
    made = bench(plan(plans.CAUSAL))
    error = refused(made, qkv()[0], *cache("float8_e4m3fn"))
    assert error.diagnostics[0].code == "A505" and "--kv-dtype e4m3" in error.diagnostics[0].help


def test_a_kernel_of_fp32_has_none(bench: MakeBench) -> None:
    made = bench(replace(plan(plans.CAUSAL), dtype="fp32"))
    q = FakeArray((BATCH, HEADS, Q_LEN, D), "float32")
    assert "A604" in str(refused(made, q, *cache()))
