"""Decode kernels that begin while the kernel ahead is at work, on an emulated GPU.

All tests of decode kernels for such targets run them so: what a launch may touch holds garbage until all threads of a
block have waited, and must be as it was. Here is what those tests rest on.
"""

from __future__ import annotations

import faulthandler
from dataclasses import replace
from multiprocessing import get_context
from signal import SIGABRT
from typing import Any

import numpy as np
import pytest

from attncc.codegen.render import KernelSource, render
from attncc.schedule.plan import KernelPlan
from tests.emulator import attention, kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates import test_emulated_8bit_caches as eight_bits
from tests.unit.templates.test_emulated_caches import cache, in_pages, paged
from tests.unit.templates.test_emulated_decode import FULL, narrow
from tests.unit.templates.test_emulated_kernels import CAUSAL, WINDOW, check, qkv

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

OWN_WAIT = "            if (i == 0) await_kernel_ahead();\n"  # ahead of the first copies
BEHIND_LOOP = "            if (!warp.leads()) continue;\n"
LATE_WAIT = "            await_kernel_ahead();\n"
FIRST_WAIT = "    await_lengths<false>(params);\n"  # ahead of lengths
SCALES_WAIT = "    await_lengths<true>(params);\n"  # and of scales


def dense(plan: KernelPlan) -> Call:
    return Call(*qkv(plan, (2, 6, 1), (2, 2, 310)), blocks=7, order=3)


def of_lengths(plan: KernelPlan) -> Call:
    return Call(**cache(plan, 1, (130, 131, 64, 7)), blocks=5)


def changed(monkeypatch: pytest.MonkeyPatch, **pieces: str) -> None:
    """Kernels of another text: other text in place of these constants."""

    def cut(plan: KernelPlan) -> KernelSource:
        source = render(plan)
        text = source.text
        for name, other in pieces.items():
            assert text.count(globals()[name]) == 1
            text = text.replace(globals()[name], other)
        return replace(source, text=text)

    monkeypatch.setattr(attention, "rendered", cut)


def bits(results: tuple[Any, Any]) -> list[bytes]:
    return [item.tobytes() for item in results]


def quietly_forward(plan: KernelPlan, call: Call) -> None:
    """In a process of its own, whose end Python needn't explain."""
    faulthandler.disable()
    forward(plan, call)


@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_who_reads_before_the_wait_reads_garbage(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the wait behind the loop over keys, a kernel is wrong."""
    plan = narrow(text)
    check(plan, dense(plan))
    changed(monkeypatch, OWN_WAIT="", BEHIND_LOOP=LATE_WAIT + BEHIND_LOOP)
    with pytest.raises(AssertionError):
        check(plan, dense(plan))


def test_who_writes_before_the_wait_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = narrow(FULL)
    changed(monkeypatch, OWN_WAIT="")
    process = get_context("fork").Process(target=quietly_forward, args=(plan, dense(plan)))
    process.start()
    process.join()
    assert process.exitcode == -SIGABRT


def test_lengths_are_read_behind_the_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = narrow(CAUSAL)
    check(plan, of_lengths(plan))
    changed(monkeypatch, FIRST_WAIT="")
    with pytest.raises(AssertionError):
        check(plan, of_lengths(plan))


def test_the_first_wait_is_enough_where_lengths_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = narrow(CAUSAL)
    changed(monkeypatch, OWN_WAIT="")
    check(plan, of_lengths(plan))


@pytest.mark.parametrize("offset", [np.int32([100, 3]), np.asarray(7, np.int32), 9], ids=str)
def test_places_of_queries_without_lengths(offset: Any) -> None:
    plan = narrow(CAUSAL)
    check(plan, replace(dense(plan), q_offset=offset))


@pytest.mark.parametrize("kv_dtype", ["int8", "e4m3"])
def test_scales_without_lengths(kv_dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read before keys are asked for, so the first wait is for them, too."""
    plan = eight_bits.narrow(eight_bits.PLANS["decode"](CAUSAL, "bf16"), kv_dtype)
    q, k, v = qkv(plan, (2, 6, 1), (2, 2, 310))
    call = Call(**eight_bits.quantized({"q": q, "k": k, "v": v}, kv_dtype), blocks=7)
    eight_bits.check(plan, call)
    changed(monkeypatch, SCALES_WAIT=FIRST_WAIT)
    with pytest.raises(AssertionError):
        eight_bits.check(plan, call)


@pytest.mark.parametrize("stages", [1, 3])
def test_stages(stages: int) -> None:
    """With one, keys are asked for in the loop alone."""
    plan = narrow(CAUSAL, stages=stages)
    check(plan, dense(plan))


@pytest.mark.parametrize("dims", [(256, 256), (64, 128)])
def test_heads_of_any_size(dims: tuple[int, int]) -> None:
    """Of wide ones a block keeps what it knows in shared memory."""
    plan = replace(narrow(CAUSAL), head_dim=dims[0], value_head_dim=dims[1])
    check(plan, dense(plan))


def test_bits_are_those_of_a_kernel_that_waits_for_nobody() -> None:
    plan = paged(narrow(WINDOW))
    late = replace(plan, begins_early=False)
    assert "griddepcontrol" in render(plan).text and "griddepcontrol" not in render(late).text
    call = Call(**in_pages(cache(plan, 1), 16))
    assert bits(forward(plan, call)) == bits(forward(late, call))
