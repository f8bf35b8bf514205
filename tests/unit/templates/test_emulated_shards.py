"""Kernels of keys and queries that are parts of a sequence, on an emulated GPU: together they give the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncc
from attncc import first_query, reference
from attncc.distributed import key_places, query_places
from attncc.kernels.candidates import make_plan
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.unit.templates.test_emulated_kernels import qkv

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

ROOM, LENGTHS, RANKS, TURN = 160, np.int32([160, 70, 9]), 2, 16
PLACED = """attn 1
import masks
variant placed {
    input bias: f32[pos]
    keep if kv_idx < 4 or window(30) or kv_idx == kv_len - 1
    score = score + bias[kv_idx] + 0.01 * kv_len
}
"""
TOP_LEFT = """attn 1
variant top_left {
    input row: f32[batch, q]
    keep if q_idx >= kv_idx or q_len - q_idx < 5
    score = score + row[b, q_idx] * kv_idx
}
"""


def plan_of(variant: Any, pass_name: str) -> KernelPlan:
    return make_plan(variant, dtype="fp16", head_dim=64, value_head_dim=64, target="sm_90", pass_name=pass_name)


def own_keys(rank: int, turns: key_places.Turns | None) -> list[Any]:
    every = [np.arange(length) for length in LENGTHS]
    if turns is not None:
        return [keys[keys // TURN % RANKS == rank] for keys in every]
    return [keys[(keys >= 50) == bool(rank)] for keys in every]  # the last sequence has none on rank 1


@pytest.mark.parametrize("turns", [None, key_places.Turns(TURN, RANKS)], ids=["neighbours", "turns"])
def test_keys_of_two_ranks(turns: key_places.Turns | None) -> None:
    variant = attncc.parse(PLACED).variant
    plan = plan_of(key_places.with_places(variant, turns), "decode")
    q, k, v = qkv(plan, (3, 2, 2), (3, 1, ROOM))
    bias = np.random.default_rng(0).standard_normal(ROOM).astype(np.float32)
    wanted, wanted_lse = reference.forward(variant, q, k, v, kv_lens=LENGTHS, bias=bias)
    parts = []
    for rank in range(RANKS):
        keys, own = own_keys(rank, turns), [np.full_like(x, np.nan) for x in (k, v)]
        for b, rows in enumerate(keys):
            for x, whole in zip(own, (k, v), strict=True):
                x[b, :, : len(rows)] = whole[b][:, rows]
        first = np.full(3, rank * (50 if turns is None else TURN), np.int32)
        place = LENGTHS - 2 if turns is not None else LENGTHS - 2 - first
        inputs = {"bias": bias, key_places.KV_OFFSET: np.stack([first, LENGTHS], axis=1)}
        lens = np.int32([len(rows) for rows in keys])
        parts += forward(plan, Call(q, *own, kv_lens=lens, q_offset=place.astype(np.int32), inputs=inputs))
    out, lse = attncc.merge(*parts)
    np.testing.assert_allclose(out.astype(np.float64), wanted, atol=2e-3)
    np.testing.assert_allclose(lse, wanted_lse, atol=1e-5, rtol=1e-6)


def test_queries_of_a_part() -> None:
    variant = attncc.parse(TOP_LEFT).variant
    plan = plan_of(query_places.with_places(variant, packed=False), "forward")
    q, k, v = qkv(plan, (2, 2, ROOM), (2, 1, ROOM))
    row = np.random.default_rng(0).standard_normal((2, ROOM)).astype(np.float32) / 50
    wanted, wanted_lse = reference.forward(variant, q, k, v, row=row)
    for begin, end in ((0, 50), (50, ROOM)):
        inputs = {"row": row[:, begin:end].copy(), first_query.Q_PLACE: np.int32([[begin, ROOM]] * 2)}
        own = np.ascontiguousarray(q[:, :, begin:end])
        out, lse = forward(plan, Call(own, k, v, q_offset=begin, inputs=inputs))
        np.testing.assert_allclose(out.astype(np.float64), wanted[:, :, begin:end], atol=4e-3)
        np.testing.assert_allclose(lse, wanted_lse[:, :, begin:end], atol=1e-5, rtol=1e-6)
