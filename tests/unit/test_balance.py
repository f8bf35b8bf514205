"""How work is shared out over caches of different lengths, held against what emulated kernels do."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from attncc import resources
from attncc.analysis.cost.roofline import DEVICES
from attncc.analysis.mask.tiles import analyse
from attncc.balance import balance
from attncc.explain import capacity
from attncc.kernels.decode.facts import _ABOUT, _AGAIN, _LEAST_RUN, _MOST_PIECES, _ROW_PADDING, Decode
from attncc.kernels.registry import facts_of
from attncc.runtime.call.decode_launch import decode_grid
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, decode_parts, problem_of
from tests.unit.templates.test_emulated_kernels import CAUSAL, DOCUMENTS, WINDOW, decode_plan, qkv

FULL = "attn 1\nvariant full {\n}\n"
LENS = np.int32([310, 1, 64, 200, 129])


def plan_of(text: str, split_kv: int | None = None) -> KernelPlan:
    plan = replace(decode_plan(text, "bf16", (32, 16)), block_kv=64, stages=2, split_kv=split_kv)
    return replace(plan, rules=analyse(plan.variant, plan.block_q, plan.block_kv, searches=False))


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("text", "q_len", "split_kv"), [(CAUSAL, 1, None), (WINDOW, 7, None), (DOCUMENTS, 40, None), (CAUSAL, 2, 3)]
)
@pytest.mark.parametrize("multiprocessors", [3, 11])
def test_parts_are_those_that_the_kernel_writes(
    text: str, q_len: int, split_kv: int | None, multiprocessors: int
) -> None:
    plan, rng = plan_of(text, split_kv), np.random.default_rng(1)
    device = replace(DEVICES["a100"], multiprocessors=multiprocessors)
    inputs = {"doc": np.sort(rng.integers(0, 3, (5, 310)).astype(np.int32))} if text == DOCUMENTS else {}
    call = Call(*qkv(plan, (5, 4, q_len), (5, 2, 310)), inputs=inputs, kv_lens=LENS)
    problem = replace(problem_of(plan, call), kv_lens=tuple(LENS.tolist()))
    found = balance(plan, problem, inputs, device)
    facts = facts_of(plan)
    assert isinstance(facts, Decode)
    grid = decode_grid(facts, problem, capacity(plan, device))
    *_, parts = decode_parts(plan, replace(call, blocks=grid, multiprocessors=multiprocessors, order=1))
    assert found.parts == parts


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("q_len", [1, 40])
def test_equal_heads_are_cut_each_by_itself(q_len: int) -> None:
    """Five tiles for each of ten heads: 30 thread blocks have two or one. Of 33 equal runs some would have two."""
    plan, device = plan_of(FULL), replace(DEVICES["a100"], multiprocessors=33)
    lengths = np.int32([310] * 5)
    call = Call(*qkv(plan, (5, 4, q_len), (5, 2, 310)), kv_lens=lengths)
    problem = replace(problem_of(plan, call), kv_lens=tuple(lengths.tolist()))
    found = balance(plan, problem, {}, device)
    facts = facts_of(plan)
    assert isinstance(facts, Decode)
    grid = decode_grid(facts, problem, capacity(plan, device))
    *_, parts = decode_parts(plan, replace(call, blocks=grid, multiprocessors=33, order=1))
    assert found.parts == parts
    if q_len == 1:
        assert (found.blocks, found.parts, found.least, found.most) == (30, 30, 1, 2)


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
def test_equal_heads_stay_whole_where_runs_have_several() -> None:
    """Five tiles for each of ten heads: four thread blocks have three heads, or one. Equal runs have 12.5 tiles."""
    plan, device = plan_of(FULL), replace(DEVICES["a100"], multiprocessors=4)
    lengths = np.int32([310] * 5)
    call = Call(*qkv(plan, (5, 4, 1), (5, 2, 310)), kv_lens=lengths)
    problem = replace(problem_of(plan, call), kv_lens=tuple(lengths.tolist()))
    found = balance(plan, problem, {}, device)
    facts = facts_of(plan)
    assert isinstance(facts, Decode)
    grid = decode_grid(facts, problem, capacity(plan, device))
    *_, parts = decode_parts(plan, replace(call, blocks=grid, multiprocessors=4, order=1))
    assert found.parts == parts == 0 and (found.blocks, found.cut, found.most) == (4, 0, 15)


@pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("text", "kv_len", "blocks", "figures"),
    [
        # Two heads of three blocks of rows: 19, 20 and 20 tiles, taken for 20 each, in four parts of five tiles.
        (CAUSAL, 1275, 24, (6, 24, 5)),
        (FULL, 1275, 24, (6, 24, 5)),
        (CAUSAL, 1275, 6, (0, 0, 20)),  # a block of rows for each thread block
        (CAUSAL, 1275, 3, (0, 0, 40)),  # two
        (CAUSAL, 1275, 10, (6, 14, 12)),  # parts of heads: of blocks of rows they would be as long as those
        (CAUSAL, 133, 24, (2, 4, 2)),  # 2, 2 and 3 tiles
        (CAUSAL, 85, 24, (4, 8, 2)),  # 1, 2 and 2
    ],
)
def test_equal_blocks_of_rows_are_cut_each_by_itself(
    text: str, kv_len: int, blocks: int, figures: tuple[int, int, int]
) -> None:
    """`figures`: how many items are cut, into how many parts, and the most tiles of a thread block."""
    plan, device = plan_of(text), replace(DEVICES["a100"], multiprocessors=blocks)
    call = Call(*qkv(plan, (1, 4, 80), (1, 2, kv_len)))
    problem = problem_of(plan, call)
    facts = facts_of(plan)
    assert isinstance(facts, Decode) and facts.q_blocks(problem) == 3
    found = balance(plan, problem, {}, device)
    grid = decode_grid(facts, problem, capacity(plan, device))
    *_, written = decode_parts(plan, replace(call, blocks=grid, multiprocessors=blocks, order=1))
    assert found.parts == written
    assert (found.cut, found.parts, found.most) == figures


def test_figures_of_a_launch() -> None:
    """Two caches, of 10 tiles and 1, for each of two key heads."""
    plan, device = plan_of(CAUSAL), replace(DEVICES["a100"], multiprocessors=1000)
    call = Call(*qkv(plan, (2, 4, 1), (2, 2, 640)), kv_lens=np.int32([640, 5]))
    problem = replace(problem_of(plan, call), kv_lens=(640, 5))
    found = balance(plan, problem, {}, device)
    assert (found.items, found.blocks, found.least, found.most, found.mean) == (4, 22, 1, 1, 1.0)
    assert (found.cut, found.parts, found.busiest, found.imbalance) == (2, 20, 1, 1.0)
    assert found.kv_bytes == 2 * 645 * (32 + 16) * 2 and not found.v_in_k
    assert found.roofline.bound_by == "memory" and found.one_count_busiest == 1


def test_one_number_of_splits_waits_for_the_longest() -> None:
    plan, device = plan_of(CAUSAL), replace(DEVICES["a100"], multiprocessors=8)
    lens = (64 * 400, *[64] * 31)
    call = Call(*qkv(plan, (32, 1, 1), (32, 1, 64)), kv_lens=np.int32(lens))
    problem = replace(problem_of(plan, call), kv_len=max(lens), kv_lens=lens)
    found = balance(plan, problem, {}, device)
    assert found.imbalance < 1.1 and found.one_count_busiest > 2 * found.busiest


def test_host_and_kernel_cut_heads_by_the_same_number() -> None:
    text = resources.read("templates", "scheduler", "head_runs.cuh")
    assert re.findall(r"constexpr int AGAIN = (\d+);", text) == [str(_AGAIN)]
    assert re.findall(r"constexpr int LEAST = (\d+);", text) == [str(_LEAST_RUN)]
    text = resources.read("templates", "decode", "items.cu.j2")
    assert re.findall(r"constexpr int ABOUT = (\d+);", text) == [str(_ABOUT)]


def test_host_and_kernel_cut_rows_into_as_many_pieces() -> None:
    text = resources.read("templates", "decode", "merge_pieces.cuh")
    assert re.findall(r"constexpr int MOST = (\d+);", text) == [str(_MOST_PIECES)]


def test_host_and_kernel_pad_rows_alike() -> None:
    text = resources.read("templates", "decode", "merge_rows.cuh")
    assert re.findall(r"PITCH = COLUMNS \+ (\d+);", text) == [str(_ROW_PADDING)]
