"""Kernels of wide heads on an emulated GPU: warps share the keys of a tile for S and P, and the columns of O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import api, reference
from attncc.analysis.mask.tiles import analyse
from attncc.kernels.candidates import make_plan
from attncc.kernels.registry import facts_of
from attncc.reference.accuracy import accuracy
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates.test_emulated_caches import cache, in_pages
from tests.unit.templates.test_emulated_decode import CHECKERED, CU, FULL, GROUPED
from tests.unit.templates.test_emulated_kernels import (
    CAUSAL,
    DOCUMENTS,
    DROPPED,
    EVERYTHING,
    SIGMOID,
    WINDOW,
    check,
    qkv,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

SOFTCAP = "attn 1\nvariant softcap {\n    keep if q_pos >= kv_idx\n    score = 20 * tanh(score / 20)\n}\n"
LINEAR = "attn 1\nvariant linear {\n    keep if q_pos >= kv_idx\n    normalize none\n}\n"


def wide(
    text: str,
    head_dims: tuple[int, int],
    pass_name: str = "forward",
    *,
    dtype: str = "bf16",
    target: str = "sm_90",
    **changes: Any,
) -> KernelPlan:
    dims = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
    plan = make_plan(api.parse(text).variant, dtype=dtype, target=target, pass_name=pass_name, **dims)
    plan = replace(plan, **changes)
    return replace(plan, rules=analyse(plan.variant, plan.block_q, plan.block_kv))


def judge(plan: KernelPlan, call: Call) -> None:
    """By the accuracy rule, against the dense reference in fp64."""
    out, lse = forward(plan, call)
    arrays, given = (call.q, call.k, call.v), call.arguments()
    exact, exact_lse = reference.forward(plan.variant, *arrays, **given)
    found = accuracy(out, reference.baseline(plan.variant, *arrays, **given)[0], exact, plan.dtype)
    assert found.holds, found
    if exact_lse is not None:
        np.testing.assert_allclose(lse, exact_lse, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize("head_dims", [(264, 264), (576, 512), (320, 320), (64, 264), (512, 512), (384, 40), (576, 16)])
@pytest.mark.parametrize(("pass_name", "group", "q_len"), [("decode", 5, 3), ("forward", 2, 70)])
def test_head_dims(head_dims: tuple[int, int], pass_name: str, group: int, q_len: int) -> None:
    dtype = "fp16" if head_dims[0] % 3 else "bf16"
    plan = wide(CAUSAL, head_dims, pass_name, dtype=dtype)
    judge(plan, Call(*qkv(plan, (2, group, q_len), (2, 1, 150)), blocks=4))


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("head_dims", [(576, 512), (512, 512), (384, 384), (264, 264)])
def test_targets(target: str, head_dims: tuple[int, int]) -> None:
    """Shared memory decides on tiles; in the first guess of each target rows fill a tile, and begin another."""
    plan = wide(WINDOW, head_dims, target=target)
    judge(plan, Call(*qkv(plan, (1, 3, 30), (1, 1, 100)), blocks=2, order=1))


@pytest.mark.parametrize("text", [FULL, SOFTCAP, DOCUMENTS, DROPPED, SIGMOID, LINEAR, CHECKERED, GROUPED, EVERYTHING])
@pytest.mark.parametrize(("pass_name", "q_len"), [("decode", 2), ("forward", 40)])
def test_masks_scores_and_what_else_there_is(text: str, pass_name: str, q_len: int) -> None:
    plan = wide(text, (320, 264), pass_name)
    heads, rng = 6, np.random.default_rng(2)
    doc = np.sort(rng.integers(0, 4, (2, 230)).astype(np.int32))
    slope, logit = (0.1 * rng.standard_normal((2, heads))).astype(np.float32)
    known = {"doc": doc, "slope": slope, "logit": logit}
    inputs = {item.name: known[item.name] for item in plan.variant.inputs}
    judge(plan, Call(*qkv(plan, (2, heads, q_len), (2, 2, 230)), scale=-0.1, seed=5, inputs=inputs, blocks=5, order=3))


@pytest.mark.parametrize("blocks", [1, 4, 13])
@pytest.mark.parametrize(("pass_name", "split_kv"), [("forward", None), ("decode", 3), ("forward", 1)])
def test_packed_batches(pass_name: str, split_kv: int | None, blocks: int) -> None:
    """Sequences without rows, without keys, and one much longer than the others: parts are cut anywhere."""
    plan = wide(CAUSAL, (272, 264), pass_name, split_kv=split_kv)
    check(plan, Call(*qkv(plan, (6, 33), (2, 651)), cu=CU, blocks=blocks, order=blocks))


@pytest.mark.parametrize("text", [CAUSAL, DOCUMENTS])
@pytest.mark.parametrize(("pass_name", "q_len"), [("decode", 3), ("forward", 40)])
def test_caches(text: str, pass_name: str, q_len: int) -> None:
    """Lengths of 0 and 1 among them; behind a sequence's last key is NaN."""
    plan = wide(text, (320, 264), pass_name)
    check(plan, Call(**cache(plan, q_len)))
    if text == CAUSAL:
        check(plan, Call(**cache(plan, q_len), q_offset=np.int32([100, 300, 0, -70])))
        check(replace(plan, paged=True), Call(**in_pages(cache(plan, q_len), 7)))


def as_latents(arrays: dict[str, Any], columns: int) -> dict[str, Any]:
    """V is the first columns of K."""
    return {**arrays, "v": arrays["k"][..., :columns]}


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize(("pass_name", "group"), [("decode", 16), ("forward", 50)])
def test_latents_are_loaded_once(pass_name: str, group: int, target: str) -> None:
    """MLA: V is a view of K. Tiles that serve as both give the bits that those loaded apart do."""
    plan = wide(CAUSAL, (576, 512), pass_name, target=target)
    facts: Any = facts_of(plan)
    assert facts.latent_stages == 2
    arrays = cache(plan, 1)
    q = np.random.default_rng(1).standard_normal((4, group, 1, 576), np.float32).astype(arrays["k"].dtype)
    arrays = as_latents(arrays | {"q": q}, 512)
    pages = as_latents(in_pages(arrays, 16), 512)
    for own, given in ((plan, arrays), (replace(plan, paged=True), pages)):
        check(own, Call(**given))
        apart = forward(own, Call(**given | {"v": given["v"].copy()}))
        for x, y in zip(forward(own, Call(**given)), apart, strict=True):
            np.testing.assert_array_equal(x.view(np.uint8), y.view(np.uint8))


def test_bits_dont_depend_on_who_comes_last() -> None:
    plan = wide(CAUSAL, (272, 264))
    call = Call(*qkv(plan, (6, 33), (2, 651)), cu=CU, blocks=11)
    first = forward(plan, call)
    for order in range(1, 4):
        again = forward(plan, replace(call, order=order))
        assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(first, again, strict=True))
