"""What calls with device arrays are refused for, before anything is launched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime.frameworks import arrays as framework_module
from tests import plans
from tests.unit.runtime.calls import BATCH, HEADS, Q_LEN, D, plan, qkv
from tests.unit.runtime.conftest import MakeBench
from tests.unit.runtime.fakes import FakeArray, FakeFramework


def refused(made: Any, *arrays: FakeArray, **call: Any) -> AttnccError:
    with pytest.raises(AttnccError) as caught:
        made.kernel(*arrays, **call)
    assert not made.cuda.launches
    return caught.value


def test_bad_arguments_are_refused_before_any_launch(bench: MakeBench) -> None:
    made, (q, k, v) = bench(plan(plans.ALIBI)), qkv()
    slope = FakeArray((HEADS,), "float32")
    good = {"slope": slope, "cap": 2.0}
    assert "A607" in str(refused(made, q, k, v, slope=slope))
    assert "A608" in str(refused(made, q, k, v, slope=slope, cap=1.0, slop=slope))
    assert "A608" in str(refused(made, q, k, v, slope=slope, crop=1.0))
    assert "A618" in str(refused(made, q, k, v, **good, layout=["bhsd"]))
    assert "A605" in str(refused(made, q, FakeArray(k.shape, k.dtype, ordinal=1), v, **good))
    assert "A622" in str(refused(made, q, [1.0], v, **good))
    assert "A622" in str(refused(made, q, k, v, **good, cu_seqlens_q=3, cu_seqlens_kv=3))
    assert "A610" in str(refused(made, q, k, v, slope=slope, cap=True))
    assert "A610" in str(refused(made, q, k, v, slope=slope, cap=None))
    for value in ("3", 1j, [3.0]):
        assert "A610]: input `cap` is not a number" in str(refused(made, q, k, v, slope=slope, cap=value))
        assert "A612]: `seed` can't be used" in str(refused(made, q, k, v, **good, seed=value))
    assert "A614" in str(refused(made, q, k, v, **good, return_lse="yes"))
    assert "A619" in str(refused(made, q, k, v, **good, scale=math.nan))
    assert "A604" in str(refused(made, *qkv("float32"), **good))


def test_arrays_of_the_cpu_and_of_other_frameworks_are_refused(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OtherArray(FakeArray):
        pass

    monkeypatch.setitem(framework_module.known_frameworks, OtherArray, FakeFramework())
    made, (q, k, v) = bench(plan(plans.ALIBI)), qkv()
    assert "A605" in str(refused(made, q, k, v, slope=np.ones(HEADS, np.float32), cap=1.0))
    assert "A654" in str(refused(made, q, k, v, slope=OtherArray((HEADS,), "float32"), cap=1.0))
    assert "A654" in str(refused(made, q, OtherArray(k.shape, k.dtype), v, slope=slope(), cap=1.0))


def test_0d_arrays_of_the_cpu_have_the_declared_types(bench: MakeBench) -> None:
    made, arrays = bench(plan(plans.ALIBI)), qkv()
    made.kernel(*arrays, slope=slope(), cap=np.array(2.0, np.float32))
    made.cuda.launches.clear()
    assert "A604" in str(refused(made, *arrays, slope=slope(), cap=np.array(2.0)))
    assert "A612" in str(refused(made, *arrays, slope=slope(), cap=1.0, seed=np.array(2, np.int32)))
    assert "A619" in str(refused(made, *arrays, slope=slope(), cap=1.0, scale=np.array(2.0)))


@pytest.mark.parametrize("scale", [FakeArray((1,), "float32"), FakeArray((), "float32"), np.ones(3, np.float32)])
def test_an_array_is_no_scale(bench: MakeBench, scale: Any) -> None:
    """Its address would be one."""
    made, arrays = bench(plan(plans.ALIBI)), qkv()
    assert "A619" in str(refused(made, *arrays, slope=slope(), cap=1.0, scale=scale))


def test_out_shares_no_memory_with_what_is_read(bench: MakeBench) -> None:
    made, (q, k, v) = bench(plan(plans.ALIBI)), qkv()
    good: dict[str, Any] = {"slope": slope(), "cap": 2.0}
    fused = FakeArray(q.shape, q.dtype, (HEADS * Q_LEN * 2 * D, Q_LEN * 2 * D, 2 * D, 1))
    between = FakeArray(q.shape, q.dtype, fused.strides, pointer=fused.pointer + 2 * D)
    made.kernel(fused, k, v, out=between, **good)
    made.kernel(q, k, v, out=FakeArray(q.shape, q.dtype), **good)  # prepares the form of the calls below
    made.cuda.launches.clear()
    for name, array in (("q", q), ("k", k), ("v", v), ("slope", good["slope"])):
        out = FakeArray(q.shape, q.dtype, pointer=array.pointer)
        assert f"A617]: `out` shares memory with `{name}`" in str(refused(made, q, k, v, out=out, **good))


def slope() -> FakeArray:
    return FakeArray((HEADS,), "float32")


def test_a_grid_that_is_too_large(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    k = FakeArray((BATCH, 1, 4, D), "float16", strides=(0, 0, D, 1))
    q = FakeArray((2**20, 2**13, 1, D), "float16", strides=(0, 0, 0, 1))
    k = FakeArray((2**20, 1, 4, D), "float16", strides=(0, 0, D, 1))
    assert "A653" in str(refused(made, q, k, k))


def test_missing_kernels_of_pages_name_the_build_command(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    q, k, v = qkv()
    lengths, table = FakeArray((BATCH,), "int32"), FakeArray((BATCH, 3), "int32")
    error = refused(made, q, k, v, kv_lens=lengths, block_table=table)
    assert error.diagnostics[0].code == "A505"
    assert "--serving" in error.diagnostics[0].help


def test_a_missing_target_names_the_build_command(bench: MakeBench) -> None:
    made = bench(plans.plan(plans.FULL, "fp16", target="sm_80"), capability=90)
    error = refused(made, *qkv())
    assert error.diagnostics[0].code == "A505"
    assert "--arch sm_80,sm_90a" in error.diagnostics[0].help


def test_an_old_driver_is_named(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL), cuda_version=12040)
    error = refused(made, *qkv())
    assert error.diagnostics[0].code == "A504"
    assert "580" in error.diagnostics[0].message


def test_a_missing_configuration_names_the_build_command(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL), plans.plan(plans.FULL, "bf16", target="sm_90"))
    error = refused(made, *qkv("float32"))
    assert error.diagnostics[0].code == "A506"
    assert "--dtype fp32 --head-dim 16" in error.diagnostics[0].help


def test_a_failing_launch_is_reported(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL))
    made.cuda.results["cuLaunchKernelEx"] = 700
    assert "a made-up error (CUDA error 700)" in str(refused(made, *qkv()))
