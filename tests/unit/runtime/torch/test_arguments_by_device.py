"""Each argument of a call means on the CPU what it means on a GPU: both use it, or both refuse it with one code.

On the GPU that takes notes, an argument is used where launches differ from those without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from inspect import signature
from typing import Any

import numpy as np
import pytest

import attncc
from attncc import api
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_plan
from attncc.runtime.frameworks import arrays
from attncc.runtime.kernel import Kernel
from tests.unit.runtime.conftest import Bench, MakeBench

torch = pytest.importorskip("torch")
from tests.unit.runtime.torch.on_gpu import OnGpu  # noqa: E402

BATCH, HEADS, ROWS, D = 2, 4, 32, 16
TEXT = """attn 1
variant arguments {
    input slope: f32[head] learnable
    input rate: f32
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx)
    dropout rate
}
"""
INPUTS: dict[str, Any] = {"slope": np.full(HEADS, 0.25, np.float32), "rate": 0.5}
STARTS = np.array([0, 10, ROWS], np.int32)
LENGTHS = np.array([20, 30], np.int32)
NEW = np.ones((BATCH, HEADS, 1, D), np.float16)

Changes = dict[str, Any]
# An argument, and for each way to give it what stands beside it. A value that has a place changes what is computed.
USED: dict[str, list[tuple[Changes, Changes]]] = {
    "scale": [
        ({"scale": 0.5}, {}),
        ({"scale": 0}, {}),
        ({"scale": float("inf")}, {}),
        ({"scale": "1"}, {}),
        ({"scale": Fraction(1, 3)}, {}),
    ],
    "layout": [({"layout": "bshd"}, {}), ({"layout": "sbhd"}, {}), ({"layout": None}, {})],
    "cu_seqlens_q": [({"cu_seqlens_q": STARTS}, {}), ({"cu_seqlens_q": STARTS}, {"cu_seqlens_kv": STARTS})],
    "cu_seqlens_kv": [({"cu_seqlens_kv": STARTS}, {}), ({"cu_seqlens_kv": 3}, {"cu_seqlens_q": STARTS})],
    "kv_lens": [({"kv_lens": LENGTHS}, {}), ({"kv_lens": 3}, {}), ({"kv_lens": LENGTHS.astype(np.float32)}, {})],
    "block_table": [
        ({"block_table": LENGTHS[:, None]}, {}),
        ({"block_table": LENGTHS}, {"kv_lens": LENGTHS}),
        ({"block_table": 1}, {}),
    ],
    "q_offset": [({"q_offset": 3}, {}), ({"q_offset": LENGTHS}, {}), ({"q_offset": 1.5}, {}), ({"q_offset": True}, {})],
    "k_scale": [({"k_scale": np.ones((BATCH, HEADS), np.float32)}, {}), ({"k_scale": 2.0}, {})],
    "v_scale": [({"v_scale": np.ones((BATCH, HEADS), np.float32)}, {}), ({"v_scale": 2.0}, {})],
    "shared_prefix": [({"shared_prefix": 3}, {}), ({"shared_prefix": -1}, {"kv_lens": LENGTHS})],
    "seed": [({"seed": 8}, {}), ({"seed": 1.5}, {}), ({"seed": 2**64}, {}), ({"seed": "8"}, {})],
    "out": [({"out": np.zeros((BATCH, HEADS, ROWS, D), np.float16)}, {}), ({"out": STARTS}, {}), ({"out": 1}, {})],
    "return_lse": [({"return_lse": True}, {})],
    "stream": [({"stream": "a text"}, {})],
    "k_new": [({"k_new": NEW}, {}), ({"k_new": NEW}, {"v_new": NEW}), ({"k_new": 1}, {"v_new": 1, "kv_lens": LENGTHS})],
    "v_new": [({"v_new": NEW}, {}), ({"v_new": NEW}, {"k_new": NEW})],
    "rotary": [({"rotary": (NEW, NEW)}, {}), ({"rotary": 1}, {"k_new": NEW, "v_new": NEW, "kv_lens": LENGTHS})],
    # The other way to rotate, in a call that does; alone it is refused where it isn't a bool.
    "interleaved": [({"interleaved": 3}, {"k_new": NEW, "v_new": NEW, "kv_lens": LENGTHS})],
    "slope": [({"slope": np.full(2 * HEADS, 0.5, np.float32)[::2]}, {}), ({"slope": 1.0}, {}), ({"slope": None}, {})],
    "rate": [({"rate": 0.25}, {}), ({"rate": 1.0}, {}), ({"rate": STARTS}, {}), ({"rate": True}, {})],
    "unknown": [({"unknown": 1.0}, {})],
    "dlse": [({"dlse": np.ones((BATCH, HEADS, ROWS), np.float32)}, {}), ({"dlse": STARTS}, {}), ({"dlse": 1}, {})],
    "deterministic": [({"deterministic": True}, {})],
}
BY_ORDER = ("self", "q", "k", "v", "dout", "lse", "inputs")
# Results are the same: sums have one order on the CPU in any case, and `out` says where.
WITHOUT_EFFECT = ("deterministic", "out")


def named(call: Callable[..., Any]) -> set[str]:
    return set(signature(call).parameters) - set(BY_ORDER)


def test_the_table_has_every_argument() -> None:
    inputs = {"slope", "rate", "unknown"}
    assert set(USED) == named(Kernel.__call__) | named(Kernel.backward) | inputs


@pytest.fixture
def on_gpu(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setitem(arrays.known_frameworks, torch.Tensor, OnGpu())
    variant = api.parse(TEXT).variant
    passes = ("forward", "backward", "backward_dq")
    sizes = {"dtype": "fp16", "head_dim": D, "value_head_dim": D, "target": "sm_90"}
    yield bench(*(make_plan(variant, pass_name=name, **sizes) for name in passes))


@pytest.fixture(scope="module")
def on_cpu() -> attncc.Kernel:
    return attncc.compile(TEXT, dtype="fp16", head_dim=D)


def operands(given: Changes) -> list[Any]:
    random = np.random.default_rng(0)
    shape = (HEADS, ROWS, D) if "cu_seqlens_q" in given else (BATCH, HEADS, ROWS, D)
    return [random.standard_normal(shape).astype(np.float16) for _ in range(3)]


def forward(kernel: Any, given: Changes, convert: Callable[[Any], Any]) -> Any:
    keywords = {"seed": 7, **INPUTS, **given}
    return kernel(*map(convert, operands(given)), **{name: convert(x) for name, x in keywords.items()})


def backward(kernel: Any, given: Changes, convert: Callable[[Any], Any]) -> Any:
    keywords = {"seed": 7, **INPUTS, **given}
    q, k, v = operands(given)
    lse = np.zeros(q.shape[:-1], np.float32)
    out = keywords.pop("out", q)
    array = [convert(x) for x in (q, q, k, v, out, lse)]
    found = kernel.backward(*array, **{name: convert(x) for name, x in keywords.items()})
    return found.dq, found.dk, found.dv, found.inputs["slope"]


def said(call: Callable[..., Any], kernel: Any, given: Changes, convert: Callable[[Any], Any]) -> Any:
    """The code of the error, or the results."""
    try:
        return call(kernel, given, convert)
    except AttnccError as error:
        return error.diagnostics[0].code


def as_tensor(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(as_tensor, value))
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def launched(bench: Bench, call: Callable[..., Any], given: Changes) -> Any:
    """What was launched, with a mark for addresses; or the code of the error."""
    bench.cuda.launches.clear()
    found = said(call, bench.kernel, given, as_tensor)
    if isinstance(found, str):
        assert not bench.cuda.launches
        return found
    shapes = [tuple(x.shape) for x in (found if isinstance(found, tuple) else (found,))]
    return [sorted((name, told(value)) for name, value in x.params.items()) for x in bench.cuda.launches], shapes


def told(value: Any) -> str:
    return "an address" if isinstance(value, int) and 1 << 32 < value < 1 << 48 else str(value)


CASES = [
    pytest.param(call, name, *ways, id=f"{call.__name__} {name} {number}")
    for call in (forward, backward)
    for name, each in USED.items()
    for number, ways in enumerate(each)
]


@pytest.mark.parametrize(("call", "name", "change", "beside"), CASES)
def test_used_or_refused_alike(  # noqa: PLR0917
    on_gpu: Bench, on_cpu: Any, call: Callable[..., Any], name: str, change: Changes, beside: Changes
) -> None:
    found = said(call, on_cpu, {**beside, **change}, copied)
    launches = launched(on_gpu, call, {**beside, **change})
    if isinstance(found, str) or isinstance(launches, str):
        assert found == launches
        return
    if name in WITHOUT_EFFECT:
        return
    plain = said(call, on_cpu, beside, copied)
    assert isinstance(plain, str) or not same(found, plain), f"{name} has no effect on the CPU"
    assert launches != launched(on_gpu, call, beside), f"{name} has no effect on the GPU"


def same(found: Any, plain: Any) -> bool:
    one, other = (x if isinstance(x, tuple) else (x,) for x in (found, plain))
    return len(one) == len(other) and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
