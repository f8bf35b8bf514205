"""`attncc.parse` and `attncc.compile`."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncc
from attncc import api, compiler, reference
from attncc.diagnostics import AttnccError, AttnccWarning
from attncc.executor import run_bound
from attncc.resources import folder
from attncc.runtime.call import host
from attncc.runtime.cuda import nvrtc
from attncc.schedule.schedule import Schedule
from tests import elf, plans

SPECS = folder("specs")
TWO = "attn 1\nvariant one {}\nvariant two { const width: int = 4\n keep if q_pos - kv_idx < width }\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(api, "_kernels", {})


# -------------------------------------------------------------------- parse


def test_a_path_or_a_text() -> None:
    assert attncc.parse(SPECS / "causal.attn").name == "causal"
    assert attncc.parse(str(SPECS / "causal.attn")).name == "causal"
    assert attncc.parse("attn 1\nvariant mine {}\n").variant.name == "mine"
    with pytest.raises(AttnccError, match=r"A511.*nothing.attn"):
        attncc.parse("nothing.attn")
    with pytest.raises(AttnccError, match="A0"):
        attncc.parse("attn 1\nvarient mine {}\n")


def test_a_file_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.attn"
    path.write_bytes("attn 1\n# Schräge\nvariant mine {}\n".encode("latin-1"))
    with pytest.raises(AttnccError, match=r"A511.*line 2 is not UTF-8: byte 0xe4"):
        attncc.parse(path)


def test_one_of_several() -> None:
    assert attncc.parse(TWO, variant="two").name == "two"
    with pytest.raises(AttnccError, match=r"A512.*2 variants"):
        attncc.parse(TWO)
    with pytest.raises(AttnccError, match="A512") as caught:
        attncc.parse(TWO, variant="tow")
    assert caught.value.diagnostics[0].help == "did you mean `two`?"
    assert "one, two" in caught.value.diagnostics[0].notes[0]


def test_defines() -> None:
    assert attncc.parse(TWO, variant="two", defines={"width": 1}).mask(5, 5).sum() == 15
    with pytest.raises(AttnccError, match="A114"):
        attncc.parse(TWO, variant="two", defines={"length": 1})


@pytest.mark.parametrize(
    "condition",
    [
        "h > 0 and q_pos // 64 == kv_idx // 64",
        "h % 4 == 3 and (q_pos - kv_idx) % 4 == 0",
        "q_pos - kv_idx >= 4096 and kv_idx % 4 == 0",
        "q_pos < 0 and kv_idx // 64 % 2 == 1",
        "q_len > 5 and num_heads * num_kv_heads % 3 != 1",
        "h > 0 and q_idx // 3 == kv_idx // 3",
    ],
)
def test_masks_that_are_empty_for_some_heads_or_lengths(condition: str) -> None:
    text = f"attn 1\nvariant rare {{ keep if {condition} }}\n"
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, heads, 150, 16)) for heads in (4, 2, 2))
    out = attncc.compile(text, dtype="fp64", head_dim=16)(q, k, v)
    exact, _ = reference.forward(attncc.parse(text).variant, q, k, v)
    np.testing.assert_allclose(out, exact, atol=1e-12)


def test_a_call_without_heads_gives_an_empty_result() -> None:
    q, k = np.zeros((2, 0, 5, 16)), np.zeros((2, 1, 7, 16))
    assert attncc.compile("attn 1\nvariant mine {}\n", dtype="fp64", head_dim=16)(q, k, k).shape == q.shape


def test_mask_tile_map_and_reference_agree() -> None:
    documents = attncc.parse(SPECS / "documents.attn")
    doc = np.array([[0] * 10 + [1] * 30 + [2] * 24, [0] * 64], np.int32)
    mask = documents.mask(64, 64, doc=doc)
    assert mask.shape == (2, 1, 64, 64)
    assert np.array_equal(mask[:, 0], np.tril(doc[:, :, None] == doc[:, None, :]))
    kinds = documents.tile_map(64, 64, 16, 8, doc=doc)
    assert (kinds.shape, kinds.dtype) == ((2, 1, 4, 8), np.uint8)
    tiles = mask.reshape(2, 1, 4, 16, 8, 8).swapaxes(3, 4)
    assert not tiles.any((-1, -2))[kinds == 0].any()
    assert tiles.all((-1, -2))[kinds == 2].all()
    assert set(np.unique(kinds)) == {0, 1, 2}

    q, k, v = plans.qkv(lengths=(64, 64))
    out, lse = documents.reference(q, k, v, doc=doc)
    score = np.einsum("bhqd,bhkd->bhqk", q.astype(float), np.repeat(k, 2, 1).astype(float)) / 4
    prob = np.exp(np.where(mask, score, -np.inf))
    assert np.allclose(out, np.einsum("bhqk,bhkd->bhqd", prob, np.repeat(v, 2, 1)) / prob.sum(-1, keepdims=True))
    assert lse is not None
    assert np.allclose(lse, np.log(prob.sum(-1)))


def test_a_tile_map_of_no_sequences() -> None:
    kinds = attncc.parse("documents").tile_map(20, 33, 8, 8, doc=np.zeros((0, 33), np.int32))
    assert kinds.shape == (0, 1, 3, 5)


def test_a_tile_map_of_full_attention_and_of_heads() -> None:
    assert np.array_equal(attncc.parse(TWO, variant="one").tile_map(5, 9, 4, 4), np.full((1, 1, 2, 3), 2))
    headwise = attncc.parse("attn 1\nvariant headwise {\n keep if q_pos - kv_idx >= h }\n")
    assert headwise.tile_map(32, 32, 16, 16, num_heads=3).shape == (1, 3, 2, 2)
    with pytest.raises(AttnccError, match="A620"):
        headwise.tile_map(32, 32, 16, 16)


# -------------------------------------------------------------------- compile


def test_kernels_are_kept_by_content() -> None:
    text = (SPECS / "causal.attn").read_text()
    first = attncc.compile(SPECS / "causal.attn", dtype="bf16", head_dim=64)
    assert attncc.compile(text, dtype="bf16", head_dim=64) is first
    assert attncc.compile(text, dtype="bf16", head_dim=64, value_head_dim=64) is first
    assert attncc.compile(text, dtype="bf16", head_dim=64, value_head_dim=32) is not first
    assert attncc.compile(text, dtype="fp16", head_dim=64) is not first
    changed = text.replace("keep if causal()", "keep if causal_top_left()")
    assert attncc.compile(changed, dtype="bf16", head_dim=64) is not first


def test_what_is_imported_is_content_too(tmp_path: Path) -> None:
    (tmp_path / "mine.attn").write_text("attn 1\nmask mine() = q_pos >= kv_idx\n")
    spec = tmp_path / "spec.attn"
    spec.write_text('attn 1\nimport "mine.attn"\nvariant v { keep if mine() }\n')
    first = attncc.compile(spec, dtype="fp32", head_dim=16)
    (tmp_path / "mine.attn").write_text("attn 1\nmask mine() = q_pos > kv_idx\n")
    assert attncc.compile(spec, dtype="fp32", head_dim=16) is not first


@pytest.mark.parametrize("dtype", ["fp16", "fp64"])
def test_numpy_runs_without_a_gpu(dtype: str) -> None:
    kernel = attncc.compile(SPECS / "alibi.attn", dtype=dtype, head_dim=16)
    q, k, v = plans.qkv(dtype)
    slope = np.ones(4, np.float32)
    out = kernel(q, k, v, slope=slope)
    expected, _ = reference.forward(attncc.parse(SPECS / "alibi.attn").variant, q, k, v, slope=slope)
    assert np.abs(out - expected).max() < {"fp16": 2e-3, "fp64": 1e-12}[dtype]


def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    def submit(text: str, target: str, name: str, done: Callable[[nvrtc.Cubin], None]) -> Future[nvrtc.Cubin]:
        seen.append(name)
        future: Future[nvrtc.Cubin] = Future()
        future.set_result(nvrtc.Cubin(elf.image(100), nvrtc.Resources(1, 0, 0, 0, 0.0), "13.0"))
        done(future.result())
        return future

    monkeypatch.setattr(nvrtc, "submit", submit)
    return seen


def test_nothing_is_compiled_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = compilations(monkeypatch)
    attncc.compile(TWO, variant="one", dtype="bf16", head_dim=16)
    assert seen == []
    attncc.compile(TWO, variant="one", dtype="bf16", head_dim=16, arch="sm_90")
    names = ("one_decode_bf16_d16", "one_forward_bf16_d16")
    assert sorted(seen) == [f"{name}_sm_90.cu" for name in names]
    attncc.compile(TWO, variant="one", dtype="bf16", head_dim=16, arch=["sm_80", "sm_90"])
    assert all(name.endswith("sm_80.cu") for name in seen[2:])  # the others are in the cache
    assert len(seen) == 4
    attncc.compile(TWO, variant="one", dtype="fp64", head_dim=16, arch=())


def test_gpus_of_this_machine_are_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from attncc.runtime.cuda.driver import Driver
    from tests.unit.runtime.fakes import FakeCuda

    seen = compilations(monkeypatch)
    monkeypatch.setattr(compiler, "driver", lambda: Driver(FakeCuda({}, capability=89)))  # type: ignore[arg-type]
    attncc.compile(SPECS / "decode.attn", dtype="bf16", head_dim=64)
    assert sorted(seen) == ["decode_decode_bf16_d64_sm_80.cu", "decode_forward_bf16_d64_sm_80.cu"]


def test_a_schedule_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    compilations(monkeypatch)
    given = Schedule("mine", "one", "forward", "sm_90", (("block_q", (16,)),))
    kernel = attncc.compile(TWO, variant="one", dtype="bf16", head_dim=64, schedule=given)
    store = kernel._store
    forward, decode = store.plans(kernel.configurations[0], "sm_90")
    assert forward.block_q == 16 and decode.pass_name == "decode"
    assert store.plans(kernel.configurations[0], None)[0].block_q == 16  # what the CPU walks has a schedule, if any has
    assert store.plans(kernel.configurations[0], "sm_90a")[0].block_q == 16
    assert store.plans(kernel.configurations[0], "sm_80")[0].block_q != 16


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"dtype": "int8"}, "A4"),
        ({"dtype": None}, "A4"),
        ({"head_dim": 577}, "A4"),
        ({"arch": "sm_75"}, "A513"),
        ({"variant": "three"}, "A512"),
        ({"variant": 3}, "A512"),
    ],
)
def test_bad_settings(settings: dict[str, Any], code: str) -> None:
    with pytest.raises(AttnccError, match=code):
        attncc.compile(TWO, **{"dtype": "bf16", "head_dim": 64, "variant": "one", **settings})


def test_head_dims_are_ints() -> None:
    for head_dim in (64.0, "64"):
        with pytest.raises(AttnccError, match=r"A615.*`head_dim`"):
            attncc.compile(TWO, variant="one", dtype="bf16", head_dim=head_dim)  # type: ignore[arg-type]


def test_warnings_of_a_spec_are_shown() -> None:
    spec = "attn 1\nvariant unused {\n input cap: f32\n}\n"
    with pytest.warns(AttnccWarning, match="A120"):
        attncc.compile(spec, dtype="fp32", head_dim=16)


def test_threads_may_compile_at_once() -> None:
    made: list[Any] = []

    def work() -> None:
        made.append(attncc.compile(TWO, variant="two", dtype="fp32", head_dim=16))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, made))) == 1


# -------------------------------------------------------------------- the package itself


def test_exports() -> None:
    assert {"compile", "parse", "AttnccError", "Kernel"} <= set(attncc.__all__) <= set(dir(attncc))
    for name in attncc.__all__:
        assert getattr(attncc, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        attncc.nothing  # noqa: B018


def test_few_rows_take_the_decode_plan_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "attn 1\nvariant plain {}\nschedule few for plain decode on sm_90 { block_q = 16 block_kv = 32 }\n"
    kernel = attncc.compile(text, dtype="fp32", head_dim=16)
    walked = []
    monkeypatch.setattr(host.executor, "run_bound", lambda plan, *given: walked.append(plan) or run_bound(plan, *given))
    k = np.ones((1, 1, 40, 16), np.float32)
    for rows in (16, 17):
        kernel(k[:, :, :rows], k, k)
    starts = np.array([0, 10, 30], np.int32)  # a mean of 15 rows
    kernel(k[0, :, :30], k[0], k[0], cu_seqlens_q=starts, cu_seqlens_kv=starts)
    assert [plan.pass_name for plan in walked] == ["decode", "forward", "decode"]
    assert (walked[0].target, walked[0].block_kv) == ("sm_90", 32)


def test_fp64_is_compiled_for_no_gpu() -> None:
    with pytest.raises(AttnccError, match="A514"):
        attncc.compile(TWO, variant="one", dtype="fp64", head_dim=64, arch="sm_80")
    attncc.compile(TWO, variant="one", dtype="fp64", head_dim=64)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "float16"}, r"A410.*\n.*`fp16`"),
        ({"dtype": "torch.bfloat16"}, r"A410.*\n.*`bf16`"),
        ({"arch": 80}, "A513.*80"),
        ({"arch": "H100"}, r"A513(.|\n)*`sm_90a`"),
        ({"arch": {"sm_80"}}, "A513.*sm_80"),
        ({"arch": [None]}, "A513.*None"),
        ({"allow_imports": None}, "A518.*`allow_imports`"),
        ({"allow_imports": ["masks", 3]}, "A518.*`allow_imports`"),
        ({"schedule": "fast"}, "A518.*`schedule`"),
        ({"spec": ""}, "A511.*empty"),
        ({"spec": None}, "A511.*NoneType"),
        ({"defines": {"width": None}}, "A208.*`width`.*NoneType"),
        ({"defines": {"width": "8"}}, "A208.*`width`.*of type str"),
        ({"defines": {8: 1}}, "A114.*8"),
        ({"defines": "width=8"}, "A114.*`defines`"),
    ],
)
def test_what_compile_refuses_by_name(settings: dict[str, Any], message: str) -> None:
    given = {"spec": TWO, "variant": "two", "dtype": "bf16", "head_dim": 64, **settings}
    with pytest.raises(AttnccError, match=message):
        attncc.compile(**given)


def test_defines_may_be_numpy_scalars() -> None:
    assert attncc.parse(TWO, variant="two", defines={"width": np.int64(1)}).mask(5, 5).sum() == 15


SIZED = "attn 1\nvariant sized { keep if kv_idx % head_dim <= h + b }\n"


def test_sizes_of_masks_and_tile_maps() -> None:
    sized = attncc.parse(SIZED)
    given = {"batch": 1, "num_heads": 2, "head_dim": 4}
    assert sized.tile_map(8, 8, 4, 4, **given).shape == (1, 2, 2, 2)
    assert sized.mask(8, 8, **{**given, "num_heads": 0}).shape == (1, 0, 8, 8)
    for name, value in (("batch", -2), ("num_heads", "2"), ("head_dim", 0), ("num_kv_heads", 0)):
        with pytest.raises(AttnccError, match=rf"A615.*`{name}`"):
            sized.mask(8, 8, **{**given, name: value})
    with pytest.raises(AttnccError, match=r"A615.*`q_len`"):
        sized.mask(4.0, 8, **given)  # type: ignore[arg-type]
    with pytest.raises(AttnccError, match=r"A615.*`block_q`"):
        sized.tile_map(8, 8, 0, 4, **given)


def test_the_reference_of_gradients_is_the_slope_of_the_reference() -> None:
    variant = attncc.parse("attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n")
    rng = np.random.default_rng(2)
    q, k, v, dout = (rng.standard_normal((1, 1, 5, 16)) for _ in range(4))
    found = variant.reference_backward(dout, q, k, v)
    step = 1e-6 * rng.standard_normal(q.shape)
    for name, gradient in (("q", found.dq), ("k", found.dk), ("v", found.dv)):
        arrays = {"q": q, "k": k, "v": v}
        ends = [variant.reference(**arrays | {name: arrays[name] + side * step})[0] for side in (1, -1)]
        slope = (dout * (ends[0] - ends[1])).sum() / 2
        np.testing.assert_allclose((gradient * step).sum(), slope, rtol=1e-5)


def test_an_unknown_argument_is_not_its_own_correction() -> None:
    q = np.zeros((1, 1, 4, 16))
    with pytest.raises(AttnccError, match="A608") as caught:
        attncc.parse(TWO, variant="one").reference(q, q, q, stream=3)
    assert "`stream`?" not in str(caught.value)


@pytest.mark.parametrize(
    ("library", "names"),
    [("jax", "jax.wrap"), ("torch", "torch.Attention"), ("torch", "distributed.plan"),
     ("transformers", "integrations.transformers.register")],
)  # fmt: skip
def test_modules_are_there_after_import_attncc(library: str, names: str) -> None:
    """As pages write them, `attncc.jax.wrap`. A process of its own: here others may have imported them."""
    pytest.importorskip(library)
    subprocess.run([sys.executable, "-c", f"import attncc; attncc.{names}"], check=True)


def test_help_asks_for_no_library() -> None:
    members = dict(inspect.getmembers(attncc))
    assert "compile" in members
    with pytest.raises(AttributeError, match="has no attribute 'nobody'"):
        attncc.nobody  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'nobody'"):
        attncc.integrations.nobody  # noqa: B018
