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
from tests.unit.templates.test_emulated_caches import cache, in_pages, paged
from tests.unit.templates.test_emulated_decode import FULL, narrow
from tests.unit.templates.test_emulated_kernels import CAUSAL, WINDOW, check, qkv

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

OWN_WAIT = "            await_kernel_ahead();\n"  # ahead of Q, K and V
BEHIND_LOOP = "            if (!warp.leads()) continue;\n"
FIRST_WAIT = "    await_lengths(params);\n"  # ahead of lengths


def dense(plan: KernelPlan) -> Call:
    return Call(*qkv(plan, (2, 6, 1), (2, 2, 310)), blocks=7, order=3)


def of_lengths(plan: KernelPlan) -> Call:
    return Call(**cache(plan, 1, (130, 131, 64, 7)), blocks=5)


def changed(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of another text."""

    def cut(plan: KernelPlan) -> KernelSource:
        source = render(plan)
        assert source.text.count(old) == 1
        return replace(source, text=source.text.replace(old, new))

    monkeypatch.setattr(attention, "render", cut)


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
    source = render(plan).text
    attended = source[source.index(OWN_WAIT) : source.index(BEHIND_LOOP)]
    changed(attended, attended.removeprefix(OWN_WAIT) + OWN_WAIT, monkeypatch)
    with pytest.raises(AssertionError):
        check(plan, dense(plan))


def test_who_writes_before_the_wait_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = narrow(FULL)
    changed(OWN_WAIT, "", monkeypatch)
    process = get_context("fork").Process(target=quietly_forward, args=(plan, dense(plan)))
    process.start()
    process.join()
    assert process.exitcode == -SIGABRT


def test_lengths_are_read_behind_the_first_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = narrow(CAUSAL)
    check(plan, of_lengths(plan))
    changed(FIRST_WAIT, "", monkeypatch)
    with pytest.raises(AssertionError):
        check(plan, of_lengths(plan))


def test_the_first_wait_is_enough_where_lengths_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = narrow(CAUSAL)
    changed(OWN_WAIT, "", monkeypatch)
    check(plan, of_lengths(plan))


@pytest.mark.parametrize("offset", [np.int32([100, 3]), np.asarray(7, np.int32), 9], ids=str)
def test_places_of_queries_without_lengths(offset: Any) -> None:
    plan = narrow(CAUSAL)
    check(plan, replace(dense(plan), q_offset=offset))


@pytest.mark.parametrize("dims", [(256, 256), (64, 128)])
def test_heads_of_any_size(dims: tuple[int, int]) -> None:
    """Of wide ones a block keeps what it knows in shared memory."""
    plan = replace(narrow(CAUSAL), head_dim=dims[0], value_head_dim=dims[1])
    check(plan, dense(plan))


def test_bits_are_those_of_a_kernel_that_waits_for_nobody() -> None:
    """The text for a target without such launches, beside it."""
    plan = paged(narrow(WINDOW))
    late = replace(plan, target="sm_100")
    assert "griddepcontrol" in render(plan).text and "griddepcontrol" not in render(late).text
    call = Call(**in_pages(cache(plan, 1), 16))
    assert bits(forward(plan, call)) == bits(forward(late, call))
