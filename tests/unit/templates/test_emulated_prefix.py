"""Calls whose sequences share a prefix, whole, on an emulated GPU: both launches, as the runtime prepares them.

Of all sequences but the first, what stands in the prefix is no number: it must never be read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import api, reference
from attncc.kernels.candidates import make_candidates
from attncc.kernels.over_prefix import over_prefix, prefix_schedule
from attncc.problem.facts import KERNEL_DTYPES
from attncc.runtime.cuda.driver import Driver
from attncc.runtime.frameworks import arrays
from attncc.runtime.kernel import Kernel
from attncc.runtime.store import loaded_kernels
from attncc.schedule.plan import Build, KernelPlan
from tests.emulator import kernel
from tests.emulator.launches import DeviceArray, EmulatedCuda, EmulatedFramework
from tests.unit.runtime.fakes import FakeStore
from tests.unit.templates.test_emulated_kernels import CAUSAL, TOLERANCE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

PREFIX, LENGTHS, ROOM = 150, (260, 152, 199), 272  # 150 keys are 128 of whole tiles, and 22
KV_HEADS, GROUP, PAGE = 2, 3, 16

EVERYTHING = """attn 1
variant everything {
    input slope: f32[head]
    input doc: i32[batch, pos]
    input bias: f32[batch, head, pos]
    input logit: f32[head]
    keep if q_pos >= kv_idx
    keep if doc[b, kv_idx] != q_idx + h % 2
    keep if q_pos - kv_idx < kv_len - 7
    score = score - slope[h] * (q_pos - kv_idx) + bias[b, h, kv_idx] + 0.01 * (kv_h + q_len)
    sink logit
}
"""
SIGMOID = "attn 1\nvariant sigmoid {\n    keep if q_pos >= kv_idx\n    normalize sigmoid\n}\n"
WINDOW = "attn 1\nvariant window {\n    keep if 0 <= q_pos - kv_idx < 120\n}\n"


def plans_of(text: str, dtype: str, target: str, *, paged: bool, **decode: Any) -> tuple[KernelPlan, KernelPlan]:
    """Of small tiles, where those that the family has first are large."""
    variant = api.parse(text).variant
    seen = over_prefix(variant)
    over, behind = (Build(name, target, dtype, 64, 64, paged, None, True) for name in ("forward", "decode"))
    schedule, tile = prefix_schedule(seen, over), (("block_q", (64,)), ("block_kv", (32,)))
    first = make_candidates(seen, over, replace(schedule, settings=(*schedule.settings, *tile))).first
    return first, replace(make_candidates(variant, behind).first, **decode)


def inputs_of(variant: Any, batch: int, heads: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    made = {
        "slope": rng.random(heads, np.float32) / 8,
        "doc": rng.integers(0, 9, (batch, ROOM)).astype(np.int32),
        "bias": rng.standard_normal((batch, heads, ROOM), np.float32),
        "logit": rng.standard_normal(heads, np.float32),
    }
    return {name: array for name, array in made.items() if any(item.name == name for item in variant.inputs)}


def in_pages(array: Any, rng: Any, layout: str) -> tuple[Any, Any]:
    """A pool and the table of [batch, heads, ROOM, head dim], the first pages those of sequence 0."""
    batch, heads, room, dim = array.shape
    count, shared = room // PAGE, PREFIX // PAGE
    table = rng.permutation(batch * count).reshape(batch, count).astype(np.int32)
    table[1:, :shared] = table[0, :shared]
    pool = np.full((batch * count, heads, PAGE, dim), np.nan, array.dtype)
    for b in range(batch):
        for number in range(shared if b else 0, count):
            pool[table[b, number]] = array[b, :, number * PAGE : (number + 1) * PAGE]
    return (pool if layout == "bhsd" else np.ascontiguousarray(pool.swapaxes(1, 2))), table


def check(  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch,
    plans: tuple[KernelPlan, KernelPlan],
    q_len: int = 1,
    layout: str = "bhsd",
    prefix: int = PREFIX,
    launches: int = 2,
) -> None:
    """Against the dense reference, of keys that every sequence has."""
    plan, rng = plans[1], np.random.default_rng(7)
    batch, heads, dtype = len(LENGTHS), KV_HEADS * GROUP, KERNEL_DTYPES[plan.dtype]
    q = rng.standard_normal((batch, heads, q_len, 64), np.float32).astype(dtype)
    k, v = (rng.standard_normal((batch, KV_HEADS, ROOM, 64), np.float32).astype(dtype) for _ in range(2))
    k[1:, :, :prefix], v[1:, :, :prefix] = k[:1, :, :prefix], v[:1, :, :prefix]
    lengths = np.int32([max(length, prefix + q_len) for length in LENGTHS])
    given = inputs_of(plan.variant, batch, heads)
    expected, expected_lse = reference.forward(plan.variant, q, k, v, kv_lens=lengths, shared_prefix=prefix, **given)
    k, v = k.copy(), v.copy()
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
    whole = prefix // 128 * 128  # of these keys the others are never read
    k[1:, :, :whole] = v[1:, :, :whole] = np.nan
    call: dict[str, Any] = {"kv_lens": lengths, **given}
    if plan.paged:
        seed = np.random.default_rng(11)
        k, call["block_table"] = in_pages(k, seed, layout)
        v, _ = in_pages(v, np.random.default_rng(11), layout)
    elif layout == "bshd":
        k, v = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (k, v))
    q = np.ascontiguousarray(q.swapaxes(1, 2)) if layout == "bshd" else q

    framework, store = EmulatedFramework(), FakeStore(*plans[::-1])
    cuda = EmulatedCuda(plans, store.structs(), framework)
    monkeypatch.setitem(arrays.known_frameworks, DeviceArray, framework)
    driver = Driver(cuda)  # type: ignore[arg-type]
    monkeypatch.setattr(loaded_kernels, "driver", lambda: driver)
    arguments = {name: framework.array(array) for name, array in call.items()}
    q, k, v = map(framework.array, (q, k, v))
    softmax, built = plan.variant.normalize == "softmax", Kernel(store)
    for _ in range(3):  # the third time as a form that is known
        result = built(q, k, v, **arguments, layout=layout, shared_prefix=prefix, return_lse=softmax)
    out, lse = result if softmax else (result, None)
    assert len(cuda.launches) == 3 * launches
    found = out.memory.swapaxes(1, 2) if layout == "bshd" else out.memory
    size = max(1, np.abs(expected).max())
    np.testing.assert_allclose(found.astype(np.float64) / size, expected / size, atol=TOLERANCE[plan.dtype], rtol=0)
    if lse is not None:
        np.testing.assert_allclose(lse.memory, expected_lse, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize(("target", "dtype"), [("sm_80", "fp16"), ("sm_90a", "bf16")])
def test_both_launches(monkeypatch: pytest.MonkeyPatch, target: str, dtype: str, paged: bool) -> None:
    check(monkeypatch, plans_of(CAUSAL, dtype, target, paged=paged))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_any_mask_and_score(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Each row's own sequence, head, query, position and lengths; several queries, whose rows two blocks share. The
    kernel behind the prefix has a table made for its mask first."""
    plans = plans_of(EVERYTHING, "fp16", target, paged=target == "sm_80")
    check(monkeypatch, plans, q_len=8, layout="bshd", launches=3)


@pytest.mark.parametrize(("text", "dtype"), [(SIGMOID, "fp16"), (WINDOW, "bf16"), (CAUSAL, "fp32")])
def test_other_parts(monkeypatch: pytest.MonkeyPatch, text: str, dtype: str) -> None:
    """Parts that just add up; windows, of which some sequences have no key in the prefix; parts of fp32."""
    check(monkeypatch, plans_of(text, dtype, "sm_80", paged=False), q_len=2)


@pytest.mark.parametrize("splits", [1, 3])
def test_splits_of_each_item(monkeypatch: pytest.MonkeyPatch, splits: int) -> None:
    check(monkeypatch, plans_of(CAUSAL, "fp16", "sm_80", paged=True, split_kv=splits), q_len=2)


def test_a_prefix_of_less_than_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch goes over all keys."""
    check(monkeypatch, plans_of(CAUSAL, "fp16", "sm_80", paged=False), prefix=31, launches=1)
