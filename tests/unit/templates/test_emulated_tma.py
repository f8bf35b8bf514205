"""Portable kernels whose keys and values TMA brings, on an emulated GPU: warps drift, no tile is overwritten early."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.kernels.registry import forward_facts
from tests.emulator import kernel
from tests.emulator.attention import Call
from tests.unit.templates.test_emulated_kernels import (
    CAUSAL,
    DILATED,
    DOCUMENTS,
    SIGMOID,
    WINDOW,
    check,
    decode_plan,
    plan_of,
    qkv,
)

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

FULL = "attn 1\nvariant full {\n}\n"
ALIBI = """attn 1
variant alibi {
    input slope: f32[head]
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx)
}
"""


@pytest.mark.parametrize(
    ("head_dims", "stages", "dtype"), [((64, 64), 2, "bf16"), ((128, 64), 3, "fp16"), ((64, 192), 2, "bf16")]
)
@pytest.mark.parametrize("text", [FULL, CAUSAL, WINDOW, DOCUMENTS, ALIBI, SIGMOID])
def test_dense_batches(text: str, head_dims: tuple[int, int], stages: int, dtype: str) -> None:
    """Heads share keys; the scale's sign goes into Q, for which all that was copied is waited for."""
    plan = plan_of(text, dtype, head_dims, block_q=64, block_kv=32, warps=2, stages=stages)
    assert forward_facts(plan).loads_by_tma
    doc = np.sort(np.random.default_rng(1).integers(0, 6, (2, 300)).astype(np.int32))
    inputs = {"doc": doc} if text == DOCUMENTS else {"slope": np.float32([0.5, 0.1])} if text == ALIBI else {}
    scale = -0.2 if head_dims == (64, 64) else None
    check(plan, Call(*qkv(plan, (2, 2, 250), (2, 1, 300)), scale=scale, inputs=inputs))


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("text", [FULL, CAUSAL, WINDOW, DOCUMENTS])
def test_rows_of_neighbours_are_zeros(text: str, warps: int) -> None:
    """A box reaches beyond its sequence, here into what is no number. With four warps, some have no rows in a tile."""
    plan = plan_of(text, "bf16", (64, 128), block_q=32 * warps, block_kv=64, warps=warps, stages=2)
    assert forward_facts(plan).loads_by_tma
    q, k, v = qkv(plan, (2, 331), (1, 420))
    k[:, 400:] = v[:, 400:] = np.nan
    doc = {"doc": np.sort(np.random.default_rng(1).integers(0, 6, 420).astype(np.int32))} if text == DOCUMENTS else {}
    cu = np.int32([0, 3, 3, 70, 331]), np.int32([0, 5, 12, 92, 400])
    check(plan, Call(q, k, v, cu=cu, inputs=doc))


def test_splits_and_heads_that_share_memory() -> None:
    plan = plan_of(CAUSAL, "bf16", (64, 64), block_q=64, block_kv=32, warps=2, stages=2, split_kv=None)
    q, k, v = qkv(plan, (2, 2, 91), (2, 1, 350))
    check(plan, Call(q, np.broadcast_to(k, (2, 2, 350, 64)), v.repeat(2, 1), splits=3))


def test_no_keys() -> None:
    plan = plan_of(CAUSAL, "bf16", (64, 64), block_q=64, block_kv=32, warps=2, stages=2)
    check(plan, Call(*qkv(plan, (1, 1, 70), (1, 1, 20))))


def test_what_is_copied() -> None:
    """Where boxes aren't whole panels, with one stage or in fp32, not on Hopper, and where tiles aren't in turn."""
    assert forward_facts(plan_of(WINDOW, "bf16", (64, 64))).loads_by_tma
    copied = [
        plan_of(WINDOW, "bf16", (80, 64)),
        plan_of(WINDOW, "bf16", (64, 64), stages=1),
        *(plan_of(WINDOW, "bf16", (64, 64), target=target) for target in ("sm_80", "sm_100", "sm_120")),
        plan_of(WINDOW, "fp32", (64, 64)),
        plan_of(WINDOW, "bf16", (64, 64), loop="kv_outer"),
        plan_of(DILATED, "bf16", (64, 64)),
        decode_plan(CAUSAL, "bf16", (64, 64)),
    ]
    assert not any(forward_facts(plan).loads_by_tma for plan in copied)
