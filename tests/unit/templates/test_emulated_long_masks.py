"""Masks that ask so much about a pair that the test is a called function: results, and how long the code is."""

from __future__ import annotations

import numpy as np
import pytest

from attncc import api, settle
from attncc.codegen.render import render
from attncc.codegen.structs import CALLED_FUNCTION
from attncc.compiler import Specification
from attncc.ir import Search, walk
from attncc.machine_code import compiled
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call
from tests.unit.templates import test_emulated_backward, test_emulated_hopper, test_emulated_kernels
from tests.unit.templates.test_emulated_kernels import qkv

pytestmark = pytest.mark.slow

emulated = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

MANY_LOOKUPS = """attn 1
variant many_lookups {
    input t: i32[kv] nondecreasing
    keep if any(t[kv_idx // (i + 1)] < q_idx + i for i in range(64))
}
"""
FEWER_LOOKUPS = MANY_LOOKUPS.replace("64", "20").replace("q_idx + i", "q_idx - 40 * i")


def call_of(plan: KernelPlan) -> Call:
    """Some rows keep nothing, others a part of the keys."""
    thresholds = np.sort(np.random.default_rng(2).integers(20, 90, 90).astype(np.int32))
    return Call(*qkv(plan, (1, 2, 70), (1, 1, 90)), inputs={"t": thresholds})


@emulated
def test_portable_kernels() -> None:
    plan = test_emulated_kernels.plan_of(FEWER_LOOKUPS, "bf16", (32, 32), block_q=32, block_kv=32, warps=1, stages=2)
    assert f"{CALLED_FUNCTION} bool keep(" in render(plan).text
    test_emulated_kernels.check(plan, call_of(plan))


@emulated
def test_hopper_kernels() -> None:
    plan = test_emulated_hopper.plan_of(FEWER_LOOKUPS, "bf16")
    assert f"{CALLED_FUNCTION} bool keep(" in render(plan).text
    test_emulated_kernels.check(plan, call_of(plan))


@emulated
def test_backward_kernels() -> None:
    tiles = {"stages": 2, "block_q": 32, "block_kv": 64, "warps": 2}
    plan, dq_plan = test_emulated_backward.plans_of(FEWER_LOOKUPS, "bf16", (32, 32), **tiles)
    assert f"{CALLED_FUNCTION} bool keep(" in render(plan).text
    test_emulated_backward.check(plan, dq_plan, call_of(plan))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_code_of_masks_with_many_lookups_is_short(target: str) -> None:
    """Of the first candidate: NVRTC took minutes when each pair had a copy of the test, and each lookup a search."""
    specification = Specification(api.parse(MANY_LOOKUPS).variant, ())
    plan, *_ = (item.first for item in specification.candidates(Configuration("bf16", 64, 64), target))
    found = compiled(render(plan), target)
    assert found.instructions < settle.LONGEST_CODE[False]
    assert not any(isinstance(node, Search) for node in walk(*plan.rules.bounds))


def test_masks_with_few_lookups_are_tested_in_place() -> None:
    few = api.parse(MANY_LOOKUPS.replace("64", "8")).variant
    plan, *_ = (item.first for item in Specification(few, ()).candidates(Configuration("bf16", 64, 64), "sm_90a"))
    assert CALLED_FUNCTION not in render(plan).text
    assert any(isinstance(node, Search) for node in walk(*plan.rules.bounds))
