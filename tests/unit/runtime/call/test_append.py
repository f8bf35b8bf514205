"""Launches of attncc.append on the fake GPU."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import attncc
from attncc import cache_append, machine_code
from attncc.diagnostics import AttnccError
from attncc.kernels.helpers import append as append_kernel
from attncc.runtime.call import appender
from attncc.runtime.cuda.driver import Driver
from tests.unit.runtime.fakes import CONTEXT, FakeArray, FakeCuda, FakeFramework


class Bench:
    """attncc.append on a GPU that takes notes, for bf16 and angles in fp32."""

    def __init__(self, framework: FakeFramework, monkeypatch: pytest.MonkeyPatch, capability: int = 90) -> None:
        self.framework, self.compiled = framework, []  # type: tuple[FakeFramework, list[tuple[str, str]]]
        self.cuda = FakeCuda({"append": append_kernel.parameters("bf16", "fp32")}, capability)
        gpu = Driver(self.cuda)  # type: ignore[arg-type]

        def compiled(source: Any, target: str) -> Any:
            self.compiled.append((source.name, target))
            code = {"image": b"\x7fELF", "nvrtc": "13.0", "entry": source.entry, "threads": source.threads}
            return SimpleNamespace(code=SimpleNamespace(**code, shared_bytes=0))

        monkeypatch.setattr(appender, "driver", lambda: gpu)
        monkeypatch.setattr(machine_code, "compiled", compiled)
        monkeypatch.setattr(cache_append, "_appender", appender.Appender(machine_code.append_code))


@pytest.fixture
def bench(framework: FakeFramework, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield Bench(framework, monkeypatch)


def array(*shape: int, dtype: str = "bfloat16", **more: Any) -> FakeArray:
    return FakeArray(shape, dtype, **more)


def paged(**changes: Any) -> dict[str, Any]:
    """5 sequences, 3 new rows, pages of 16."""
    given: dict[str, Any] = {"k_cache": array(100, 2, 16, 128), "v_cache": array(100, 2, 16, 64)}
    given |= {"k_new": array(5, 2, 3, 128), "v_new": array(5, 2, 3, 64), "q": array(5, 8, 3, 128)}
    given |= {"kv_lens": array(5, dtype="int32"), "block_table": array(5, 20, dtype="int32")}
    given["rotary"] = array(4096, 32, dtype="float32"), array(4096, 32, dtype="float32")
    return given | changes


def test_one_launch(bench: Bench) -> None:
    given = paged()
    out = attncc.append(**given)
    (launch,) = bench.cuda.launches
    params = launch.params
    assert (launch.kernel, launch.threads, launch.stream) == ("append", append_kernel.THREADS, bench.framework.stream)
    items = (2 * 128 + 2 * 64 + 8 * 128) // 8  # of a row
    assert launch.grid == 5 * 3 * params["parts"] and params["parts"] == -(-items // launch.threads)
    for name in ("k_cache", "v_cache", "k_new", "v_new", "kv_lens", "block_table", "q"):
        assert params[name] == given[name].pointer
    assert (params["cos"], params["sin"]) == tuple(item.pointer for item in given["rotary"])
    assert params["q_out"] == out.pointer and out.shape == (5, 8, 3, 128)
    assert (params["room"], params["rows"], params["page_rows"], params["pages"]) == (320, 3, 16, 100)
    assert (params["pairs"], params["positions"], params["cos_stride_row"], params["wide"]) == (32, 4096, 32, 1)
    assert (params["k_cache_stride_batch"], params["v_cache_stride_head"], params["q_stride_row"]) == (4096, 1024, 128)
    assert params["cu_seqlens_q"] == 0 and bench.compiled == [("append_bf16_fp32_sm_90a", "sm_90a")]


def test_later_calls_bring_pointers(bench: Bench) -> None:
    """And a form of its own where pointers aren't aligned."""
    attncc.append(**paged())
    given = paged()
    attncc.append(**given)
    assert [item.params["wide"] for item in bench.cuda.launches] == [1, 1] and len(bench.compiled) == 1
    assert bench.cuda.launches[1].params["k_new"] == given["k_new"].pointer
    given["k_new"].pointer += 8
    attncc.append(**given)
    assert bench.cuda.launches[2].params["wide"] == 0
    assert bench.cuda.launches[2].grid == 5 * 3 * (2 * 128 + 2 * 64 + 8 * 128) // 128  # a column for each thread


def test_packed_rows_of_a_static_cache(bench: Bench) -> None:
    given = {"k_cache": array(5, 400, 2, 128), "v_cache": array(5, 400, 2, 128), "kv_lens": array(5, dtype="int32")}
    given |= {"k_new": array(77, 2, 128), "v_new": array(77, 2, 128), "cu_seqlens_q": array(6, dtype="int32")}
    assert attncc.append(**given, rotary=paged()["rotary"], interleaved=True, layout="bshd") is None
    params = bench.cuda.launches[0].params
    assert (params["batch"], params["rows"], params["room"], params["interleaved"]) == (5, 77, 400, 1)
    assert (params["k_cache_stride_batch"], params["k_cache_stride_row"], params["k_new_stride_row"]) == (
        102400,
        256,
        256,
    )
    assert params["cu_seqlens_q"] == given["cu_seqlens_q"].pointer and params["block_table"] == params["q_out"] == 0


def test_int64_arrays_are_copied_first(bench: Bench) -> None:
    given = paged(kv_lens=array(5, dtype="int64"), block_table=array(5, 20, dtype="int64"))
    attncc.append(**given)
    copies = {item.contents[0]: item.pointer for item in bench.framework.released}
    for name in ("kv_lens", "block_table"):
        assert bench.cuda.launches[0].params[name] == copies[f"copy of {given[name].pointer}"]


def test_the_framework_is_told_that_caches_changed(bench: Bench) -> None:
    given = paged()
    attncc.append(**given)
    caches = {given["k_cache"].pointer, given["v_cache"].pointer}
    assert {item.pointer for item in bench.framework.in_place} == caches


def test_no_rows_launch_nothing(bench: Bench) -> None:
    rows = {"k_new": array(5, 2, 0, 128), "v_new": array(5, 2, 0, 64), "q": array(5, 8, 0, 128)}
    assert attncc.append(**paged(**rows)).shape == (5, 8, 0, 128)
    assert bench.cuda.launches == []


def test_each_gpu_has_its_own_kernel(bench: Bench) -> None:
    def on(ordinal: int) -> dict[str, Any]:
        given = paged()
        for item in (*given.values(), *given["rotary"]):
            if isinstance(item, FakeArray):
                item.ordinal = ordinal
        return given

    for ordinal in (0, 1, 1):
        attncc.append(**on(ordinal))
    assert [item.context for item in bench.cuda.launches] == [CONTEXT, CONTEXT + 1, CONTEXT + 1]
    assert len(bench.compiled) == 2


def test_what_is_refused_before_a_launch(bench: Bench) -> None:
    given = paged()
    over = given["k_cache"].pointer + 4096
    for changes, code in (
        ({"kv_lens": array(5, dtype="int32", ordinal=1)}, "A605"),
        ({"k_new": array(5, 2, 3, 128, dtype="float64")}, "A604"),
        ({"k_new": array(5, 2, 3, 128, pointer=over)}, "A617"),
        ({"v_cache": array(100, 2, 16, 64, pointer=over)}, "A617"),
        ({"q": array(5, 8, 3, 64)}, "A602"),
        ({"kv_lens": [1, 2]}, "A622"),
        ({"rotary": None}, "A627"),
        ({"rotary": (array(64, 32), None)}, "A627"),
        ({"layout": ["bhsd"]}, "A618"),
    ):
        with pytest.raises(AttnccError, match=code):
            attncc.append(**{**given, **changes})
    assert bench.cuda.launches == []


def test_caches_that_are_parts_of_one_array(bench: Bench) -> None:
    """[pages, 2, heads, page, head dim]: their ranges meet, their elements don't."""
    both, strides = array(100, 2, 2, 16, 128), (2 * 2 * 16 * 128, 16 * 128, 128, 1)
    first, second = (
        array(100, 2, 16, 128, strides=strides, pointer=both.pointer + 2 * number * strides[1] * 2) for number in (0, 1)
    )
    attncc.append(**paged(k_cache=first, v_cache=second, v_new=array(5, 2, 3, 128)))
    assert bench.cuda.launches[0].params["v_cache"] == second.pointer


def test_a_gpu_that_no_target_serves(framework: FakeFramework, monkeypatch: pytest.MonkeyPatch) -> None:
    Bench(framework, monkeypatch, capability=75)
    with pytest.raises(AttnccError, match="A505"):
        attncc.append(**paged())
