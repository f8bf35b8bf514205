"""Calls over caches on an emulated GPU: lengths on the device, positions that the call says.

Rows behind a sequence's last key hold what is no number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from attncc import api, reference
from attncc.analysis.mask.tiles import analyse
from attncc.kernels.candidates import make_candidates
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import SPLIT, Build, KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward, problem_of
from tests.unit.templates import test_emulated_hopper as hopper
from tests.unit.templates.test_emulated_kernels import (
    CAUSAL,
    DOCUMENTS,
    SCATTERED,
    WINDOW,
    check,
    decode_plan,
    plan_of,
    qkv,
)

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

FULL = "attn 1\nvariant full {\n}\n"
ROOM = 260  # of each sequence, keys
LENGTHS = (ROOM, 131, 1, 0)


def warpgroups(plan: KernelPlan, count: int = 1, stages: int = 3) -> KernelPlan:
    """The kernel for many rows in place of a decode kernel, with so many warpgroups, of 64 keys of a tile each."""
    tile: dict[str, Any] = {"block_q": 64, "block_kv": 64 * count, "warps": 4 * count, "stages": stages}
    own = replace(plan, family="hopper", least_rows=17, keys_at_once=0, **tile)
    return replace(own, rules=analyse(own.variant, own.block_q, own.block_kv))


def splitting(text: str) -> KernelPlan:
    """The forward kernel that splits keys, whose tiles hold all heads of a group."""
    build = Build("forward", "sm_90a", "bf16", 64, 64, **SPLIT._asdict())
    plan = replace(make_candidates(api.parse(text).variant, build).first, block_q=64, block_kv=32, warps=4, stages=2)
    return replace(plan, rules=analyse(plan.variant, plan.block_q, plan.block_kv))


PLANS: dict[str, Callable[[str], KernelPlan]] = {
    "portable": lambda text: plan_of(
        text, "bf16", (64, 64), block_q=64, block_kv=32, warps=2, stages=1, target="sm_80"
    ),
    "staged": lambda text: plan_of(text, "fp16", (40, 72), block_q=64, block_kv=32, warps=2, stages=3, target="sm_80"),
    "tma": lambda text: plan_of(text, "bf16", (64, 128), block_q=64, block_kv=32, warps=2, stages=2),
    "keys first": lambda text: plan_of(
        text, "bf16", (64, 64), loop="kv_outer", block_q=32, block_kv=32, warps=2, split_kv=1
    ),
    "fp32": lambda text: plan_of(text, "fp32", (32, 32)),
    "decode": lambda text: decode_plan(text, "bf16", (64, 64)),
    "portable splits": lambda text: plan_of(
        text, "bf16", (64, 64), block_q=64, block_kv=32, warps=2, stages=2, split_kv=3
    ),
    "hopper": lambda text: hopper.plan_of(text, "bf16"),
    "hopper splits": splitting,
    "decode of warpgroups": lambda text: warpgroups(decode_plan(text, "bf16", (64, 64))),
}
MASKS = {"full": FULL, "causal": CAUSAL, "window": WINDOW, "documents": DOCUMENTS}
EVERY_PLAN = pytest.mark.parametrize("name", PLANS)
# Those that other tests need, too, and of every second plan another mask; the rest is slow.
EVERY_MASK = pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(name, text, id=f"{name}-{mask}", marks=() if mask in {"causal", other} else pytest.mark.slow)
        for name, other in zip(PLANS, cycle(["full", None, "window", None, "documents", None]))
        for mask, text in MASKS.items()
    ],
)


def cache(
    plan: KernelPlan, q_len: int, lengths: tuple[int, ...] = LENGTHS, packed: tuple[int, ...] = ()
) -> dict[str, Any]:
    """A call's arrays, over a cache that holds NaN behind each sequence's last key."""
    batch = len(lengths)
    q_shape = (2, packed[-1]) if packed else (batch, 2, q_len)
    q, k, v = qkv(plan, q_shape, (batch, 1, ROOM))
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
    arrays: dict[str, Any] = {"q": q, "k": k, "v": v, "kv_lens": np.int32(lengths)}
    if plan.variant.inputs:
        doc = np.sort(np.random.default_rng(2).integers(0, 4, (batch, ROOM)).astype(np.int32))
        arrays["inputs"] = {"doc": doc}
    if packed:
        arrays["cu"] = np.int32(packed), None
    return arrays | ({"splits": 3} if plan.split or plan.split_kv not in (None, 1) else {})


@EVERY_MASK
def test_lengths(name: str, text: str) -> None:
    plan = PLANS[name](text)
    check(plan, Call(**cache(plan, 3 if name.startswith("decode") else 70)))


@EVERY_PLAN
def test_packed_queries_over_a_cache(name: str) -> None:
    """Chunks of prefill beside single rows."""
    plan = PLANS[name](CAUSAL)
    starts = (0, 2, 4, 5, 6) if name.startswith("decode") else (0, 70, 71, 75, 80)
    check(plan, Call(**cache(plan, 0, packed=starts)))


@pytest.mark.parametrize(
    "offset",  # one below 0 is among those of sequences
    [40, pytest.param(-3, marks=pytest.mark.slow), np.int32([100, 300, 0, -70]), np.asarray(7, np.int32)],
    ids=str,
)
@EVERY_MASK
def test_positions_that_the_call_says(name: str, text: str, offset: Any) -> None:
    """Among the keys, before the first of them, and beyond the last."""
    plan = PLANS[name](text)
    arrays = cache(plan, 3 if name.startswith("decode") else 70)
    check(plan, Call(**arrays, q_offset=offset))


def test_positions_without_a_cache() -> None:
    plan = PLANS["hopper"](WINDOW)
    arrays = {name: x for name, x in cache(plan, 70, (ROOM,) * 4).items() if name != "kv_lens"}
    check(plan, Call(**arrays, q_offset=25))


def test_splits() -> None:
    plan = replace(PLANS["decode"](CAUSAL), split_kv=3)
    check(plan, Call(**cache(plan, 3)))


def test_lists_of_tiles_tell_sequences_apart() -> None:
    plan = hopper.plan_of(SCATTERED, "bf16", skip="lists")
    arrays = cache(plan, 70)
    wanted = np.random.default_rng(6).random((2, 5, 20)) < 0.1
    check(plan, Call(**arrays | {"inputs": {"wanted": wanted}}))


@EVERY_PLAN
def test_a_length_that_cannot_be_makes_nan(name: str) -> None:
    """Nothing outside the arrays is read, and the other sequences have their results."""
    plan = PLANS[name](CAUSAL)
    arrays = cache(plan, 3 if name.startswith("decode") else 70)
    arrays["k"], arrays["v"] = np.nan_to_num(arrays["k"]), np.nan_to_num(arrays["v"])
    out, lse = forward(plan, Call(**arrays | {"kv_lens": np.int32([ROOM + 1, 131, -1, 2**31 - 1])}))
    assert all(np.isnan(array[b].astype(np.float32)).all() for array in (out, lse) for b in (0, 2, 3))
    q, k, v = (arrays[x][1:2] for x in "qkv")
    expected, _ = reference.forward(plan.variant, q, k[:, :, :131], v[:, :, :131])
    np.testing.assert_allclose(out[1:2].astype(np.float64), expected, atol=2e-2)


def in_pages(arrays: dict[str, Any], page: int) -> dict[str, Any]:
    """The same cache in a pool of pages, in any order; what isn't in use holds NaN, tables go on with -1."""
    lengths, rng = arrays["kv_lens"], np.random.default_rng(8)
    batch, heads, _, _ = arrays["k"].shape
    blocks = -(-ROOM // page)
    used = [-(-int(length) // page) for length in lengths]
    numbers = iter(rng.permutation(sum(used) + 3))
    table = np.full((batch, blocks), -1, np.int32)
    pools = {}
    for name in "kv":
        rows = arrays[name]
        pools[name] = np.full((sum(used) + 3, heads, page, rows.shape[-1]), np.nan, rows.dtype)
    for b, count in enumerate(used):
        for block in range(count):
            table[b, block] = next(numbers)
            for name, pool in pools.items():
                rows = arrays[name][b, :, block * page : min((block + 1) * page, lengths[b])]
                pool[table[b, block], :, : rows.shape[1]] = rows
    return {**arrays, **pools, "block_table": table}


def paged(plan: KernelPlan) -> KernelPlan:
    return replace(plan, paged=True)


@pytest.mark.parametrize("page", [1, 7, pytest.param(16, marks=pytest.mark.slow), 64])  # 16 is what others below have
@pytest.mark.parametrize("text", [CAUSAL, pytest.param(WINDOW, marks=pytest.mark.slow)], ids=["causal", "window"])
@EVERY_PLAN
def test_pages(name: str, text: str, page: int) -> None:
    """Smaller than a tile, larger, and of a size that no tile has."""
    plan = paged(PLANS[name](text))
    call = Call(**in_pages(cache(plan, 3 if name.startswith("decode") else 70), page))
    if facts_of(plan).fits_pages(problem_of(plan, call)):
        check(plan, call)
    else:
        assert plan.family == "hopper" and page in (1, 7)


SHARES: dict[str, dict[str, int]] = {
    "as chosen": {},
    "some warps copy nothing": {"block_q": 128, "block_kv": 128, "warps": 8, "stages": 2},
    "a lane looks up two rows": {"block_q": 16, "block_kv": 64, "warps": 1, "stages": 2},
    "nothing ahead": {"stages": 1},
}


@pytest.mark.parametrize("page", [7, pytest.param(16, marks=pytest.mark.slow), 64])
@pytest.mark.parametrize(
    "shares", [*SHARES][:2] + [pytest.param(name, marks=pytest.mark.slow) for name in [*SHARES][2:]]
)
def test_pages_give_the_bits_of_contiguous_keys(shares: str, page: int) -> None:
    """However threads share a tile's rows."""
    plan = replace(decode_plan(CAUSAL, "bf16", (128, 80)), **SHARES[shares])
    arrays = cache(plan, 3)
    found = forward(paged(plan), Call(**in_pages(arrays, page)))
    for mine, wanted in zip(found, forward(plan, Call(**arrays)), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("name", ["portable", "staged", "keys first", "fp32"])
def test_forward_over_pages_gives_the_bits_of_contiguous_keys(name: str) -> None:
    plan = PLANS[name](CAUSAL)
    arrays = cache(plan, 70)
    found = forward(paged(plan), Call(**in_pages(arrays, 16)))
    for mine, wanted in zip(found, forward(plan, Call(**arrays)), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("name", ["portable", "decode", "hopper"])
def test_packed_queries_over_pages(name: str) -> None:
    plan = paged(PLANS[name](CAUSAL))
    starts = (0, 2, 4, 5, 6) if name.startswith("decode") else (0, 70, 71, 75, 80)
    check(plan, Call(**in_pages(cache(plan, 0, packed=starts), 16)))


@pytest.mark.parametrize("number", [-1, 1000])
@EVERY_PLAN
def test_a_page_that_cannot_be_makes_nan(name: str, number: int) -> None:
    plan = paged(PLANS[name](CAUSAL))
    arrays = in_pages(cache(plan, 3 if name.startswith("decode") else 70), 16)
    arrays["block_table"][1, 4] = number
    out, lse = forward(plan, Call(**arrays))
    assert all(np.isnan(array[1].astype(np.float32)).all() for array in (out, lse))
    assert all(np.isfinite(out[b].astype(np.float32)).all() for b in (0, 2, 3))
