"""Calls of JAX on a GPU that isn't there: the launches of kernels' own calls, in buffers of XLA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)

import jax.numpy as jnp  # noqa: E402  (after importorskip)

import attncc.jax  # noqa: E402
from attncc import api  # noqa: E402
from attncc.ir import Variant  # noqa: E402
from attncc.jax import primitives  # noqa: E402
from attncc.jax.calls import Backward, Forward, Work  # noqa: E402
from attncc.jax.form import ArrayForm, Form  # noqa: E402
from attncc.kernels.candidates import make_plan  # noqa: E402
from attncc.schedule.schedule import Schedule  # noqa: E402
from tests import plans  # noqa: E402
from tests.unit.runtime.conftest import Bench, MakeBench, bench, framework  # noqa: E402, F401
from tests.unit.runtime.fakes import FakeArray, Launch  # noqa: E402

BATCH, HEADS, KV_HEADS, Q_LEN, KV_LEN = 2, 6, 2, 45, 70
STREAM = 0x57  # the fake framework's
LEARNED = api.parse("""attn 1
variant learned {
    input slope: f32[head] learnable
    input cap:   f32 learnable
    score = cap * tanh((score - slope[h] * (q_pos - kv_idx)) / cap)
}
""").variant


def made_of(bench: MakeBench, variant: Variant, head_dim: int = 16, family: str = "portable", **settings: Any) -> Bench:  # noqa: F811
    target = "sm_90a" if family == "hopper" else "sm_90"
    sizes = {"dtype": "fp16", "head_dim": head_dim, "value_head_dim": head_dim, "target": target}
    passes = ("forward", "backward") if family == "hopper" else ("forward", "backward", "backward_dq")

    def asked(name: str) -> Schedule:
        return Schedule("asked", variant.name, name, target, (("family", (family,)),))

    forward, *others = (make_plan(variant, pass_name=name, schedule=asked(name), **sizes) for name in passes)
    return bench(replace(forward, **settings), *others)


def form_of(made: Bench, *arrays: str, deterministic: bool = False, **numbers: float) -> Form:
    statics = ("scale", None), ("layout", "bhsd"), ("seed", None)
    return Form(made.kernel, statics, tuple(numbers.items()), arrays, True, deterministic)


def operands(head_dim: int, kv_batch: int = BATCH) -> list[FakeArray]:
    kv = (kv_batch, KV_HEADS, KV_LEN, head_dim)
    return [FakeArray((BATCH, HEADS, Q_LEN, head_dim), "float16"), FakeArray(kv, "float16"), FakeArray(kv, "float16")]


def forms(arrays: Sequence[FakeArray]) -> tuple[ArrayForm, ...]:
    return tuple(ArrayForm(array.shape, array.dtype) for array in arrays)


def taken(made: Bench) -> tuple[list[Launch], list[tuple[int, int, int]]]:
    """The launches since this was asked last, tensor maps by what they were made of; and what was cleared."""
    cuda = made.cuda
    found = [replace(item, maps=tuple(str(cuda.maps[at]) for at in item.maps)) for item in cuda.launches]
    zeroed = list(cuda.zeroed)
    cuda.launches.clear()
    cuda.zeroed.clear()
    return found, zeroed


def started(made: Bench, work: Work, arrays: Sequence[FakeArray], buffers: Sequence[int]) -> Any:
    """What a call of XLA launches, given operands and buffers at these addresses."""
    call = work.on_device(0)
    taken(made)
    call.start(STREAM, [array.pointer for array in arrays], buffers)
    return call


CASES = [
    (plans.CAUSAL, "portable", {}),
    (plans.CAUSAL, "portable", {"split_kv": 3}),
    (LEARNED, "portable", {}),
    (plans.CAUSAL, "hopper", {}),
    (plans.SIGMOID, "hopper", {}),
]


@pytest.mark.parametrize(("variant", "family", "settings"), CASES)
def test_forward_calls_launch_the_same(
    variant: Variant,
    family: str,
    settings: dict[str, Any],
    bench: MakeBench,  # noqa: F811
) -> None:
    made, arrays = made_of(bench, variant, 64, family, **settings), operands(64)
    slope = [FakeArray((HEADS,), "float32")] if variant is LEARNED else []
    inputs = {"slope": slope[0], "cap": 2.5} if slope else {}
    softmax = variant.normalize == "softmax"
    made.kernel(*arrays, return_lse=softmax, **inputs)
    wanted, _ = taken(made)
    allocated = list(made.framework.allocated)
    form = form_of(made, "slope", cap=2.5) if slope else form_of(made)
    work = Forward(replace(form, return_lse=softmax), forms([*arrays, *slope]), softmax)
    call = started(made, work, [*arrays, *slope], [item.pointer for item in allocated])
    assert taken(made)[0] == wanted and wanted
    assert [(item.shape, item.dtype) for item in call.buffers[: len(allocated)]] == [
        (item.shape, item.dtype) for item in allocated
    ]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    ("variant", "family"), [(plans.CAUSAL, "portable"), (LEARNED, "portable"), (plans.CAUSAL, "hopper")]
)
def test_backward_calls_launch_the_same(
    variant: Variant,
    family: str,
    deterministic: bool,
    bench: MakeBench,  # noqa: F811
) -> None:
    made, arrays = made_of(bench, variant, 64, family), operands(64)
    rows = arrays[0].shape[:-1]
    given = [FakeArray(arrays[0].shape, "float16"), FakeArray(arrays[0].shape, "float16"), FakeArray(rows, "float32")]
    slope = [FakeArray((HEADS,), "float32")] if variant is LEARNED else []
    inputs = {"slope": slope[0], "cap": 2.5} if slope else {}
    dout, out, lse = given
    made.kernel.backward(dout, *arrays, out, lse, deterministic=deterministic, **inputs)
    wanted, cleared = taken(made)
    allocated = list(made.framework.allocated)
    numbers = {"cap": 2.5} if slope else {}
    form = form_of(made, *["slope"] * len(slope), deterministic=deterministic, **numbers)
    everything = [*given, *arrays, *slope]
    work = Backward(form, ("dout", "out", "lse"), forms(everything))
    call = started(made, work, everything, [item.pointer for item in allocated])
    assert taken(made) == (wanted, cleared) and wanted
    assert [(item.shape, item.dtype) for item in call.buffers] == [(item.shape, item.dtype) for item in allocated]
    assert [item.shape for item in work.results] == [item.shape for item in (*arrays, *slope)]


def test_a_counter_of_its_own_where_the_launch_is_recorded(bench: MakeBench) -> None:  # noqa: F811
    made = made_of(bench, plans.CAUSAL, 64, "hopper")
    arrays = [FakeArray((64, HEADS, 4096, 64), "float16") for _ in range(3)]
    work = Forward(form_of(made), forms(arrays), True)
    pointers = [array.pointer for array in arrays]
    call = work.on_device(0)
    assert [item.shape for item in call.buffers[2:]] == [(1,)]
    taken(made)
    call.start(STREAM, pointers, [0x1000, 0x2000, 0x3000])
    (launch,), _ = taken(made)
    assert launch.params["next_block"] not in (0, 0x3000)
    made.cuda.captured.add(STREAM)
    call.start(STREAM, pointers, [0x1000, 0x2000, 0x3000])
    (launch,), cleared = taken(made)
    assert launch.params["next_block"] == 0x3000 and [item[:2] for item in cleared] == [(0x3000, STREAM)]


def test_decode_calls_count_with_the_counters_of_decode_kernels(bench: MakeBench) -> None:  # noqa: F811
    """As a kernel's own calls do: a word for each block. Where none are clear ahead, those of the call are cleared."""
    sizes = {"dtype": "fp16", "head_dim": 16, "value_head_dim": 16, "target": "sm_90"}
    made = bench(*(make_plan(plans.CAUSAL, pass_name=name, **sizes) for name in ("forward", "decode")))
    kv = (BATCH, KV_HEADS, 100_000, 16)
    arrays = [FakeArray((BATCH, HEADS, 1, 16), "float16"), FakeArray(kv, "float16"), FakeArray(kv, "float16")]
    made.kernel(*arrays, return_lse=True, stream=STREAM)
    (wanted,), _ = taken(made)
    work = Forward(form_of(made), forms(arrays), True)
    call = started(made, work, arrays, [0x1000, 0x2000, 0x3000, 0x4000])
    (launch,), _ = taken(made)
    assert launch.kernel == wanted.kernel and "decode" in launch.kernel and launch.grid == wanted.grid
    counters = call._prepared.counters
    assert counters is call._prepared.kernels.arrivals and call.buffers[-1].shape == (counters.words,)
    assert counters.words >= launch.grid and launch.params["arrivals"] == counters.of(STREAM)
    made.cuda.captured.add(STREAM)
    counters._clear.clear()
    call.start(STREAM, [array.pointer for array in arrays], [0x1000, 0x2000, 0x3000, 0x4000])
    (launch,), cleared = taken(made)
    assert launch.params["arrivals"] == 0x4000 and cleared[-1][:2] == (0x4000, STREAM)
    assert made.cuda.zeroed_words[-1] == counters.words


def lowered(monkeypatch: pytest.MonkeyPatch, function: Any, *given: Any) -> str:
    monkeypatch.setattr(primitives, "_a_gpu", lambda: 0)
    return str(jax.jit(function).trace(*given).lower(lowering_platforms=("cuda",)).as_text())


def test_programs_for_gpus_bring_buffers_and_rows_filled_up(
    bench: MakeBench,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = made_of(bench, plans.CAUSAL, 12, split_kv=3)
    q, kv = jnp.zeros((BATCH, HEADS, Q_LEN, 12), jnp.float16), jnp.zeros((1, KV_HEADS, KV_LEN, 12), jnp.float16)
    attention = attncc.jax.wrap(made.kernel)
    text = lowered(monkeypatch, attention, q, kv, kv)
    (call,) = [line for line in text.splitlines() if "@attncc_attention" in line]
    words = 3 * BATCH * HEADS * Q_LEN
    parts = -(-words * 16 * 4 // 256), -(-words * 4 // 256), -(-words * 4 // 256)
    assert f"tensor<2x6x45x16xf16>, tensor<{sum(parts) * 64}xf32>" in call.rpartition("->")[2]
    assert call.count("x16xf16>") == 4 and text.count("stablehlo.pad") + text.count("@_pad") >= 3
    gradient = lowered(monkeypatch, jax.grad(lambda k: attention(q, k, kv).sum()), kv)
    assert gradient.count("@attncc_attention") == 2 and "stablehlo.reduce" in gradient  # keys serve both sequences
