"""What calls of decode kernels launch: grids, partial results, counters, and which calls they are."""

from __future__ import annotations

import math
from dataclasses import replace

from tests import plans
from tests.unit.runtime.calls import BATCH, HEADS, KV_HEADS, KV_LEN, D, plan, qkv
from tests.unit.runtime.conftest import MakeBench
from tests.unit.runtime.fakes import FakeArray


def test_decode_plans_serve_few_rows(bench: MakeBench) -> None:
    """As many as a tile of the three heads of a group holds."""
    decode = plan(plans.CAUSAL, pass_name="decode", block_q=48, warps=3, split_kv=None)
    made = bench(plan(plans.CAUSAL), decode)
    for q_len, name in ((1, "decode"), (16, "decode"), (17, "forward")):
        made.kernel(*qkv(q_len=q_len))
        assert made.cuda.launches[-1].kernel == f"causal_{name}_fp16_d16_sm_90"
    items, tiles = BATCH * KV_HEADS, math.ceil(KV_LEN / 16)  # an item has the rows of a group
    assert [launch.grid for launch in made.cuda.launches] == [items * tiles, items * tiles, BATCH * HEADS]
    q, k, cu = FakeArray((HEADS, 8, D), "float16"), FakeArray((KV_HEADS, 8, D), "float16"), FakeArray((9,), "int32")
    made.kernel(q, k, k, cu_seqlens_q=cu, cu_seqlens_kv=cu)
    assert made.cuda.launches[-1].kernel == "causal_decode_fp16_d16_sm_90"
    assert made.cuda.launches[-1].grid == KV_HEADS * (8 * 3 // 48 + 8)  # no more tiles than that


def test_decode_serves_what_would_leave_the_gpu_idle(bench: MakeBench) -> None:
    """24 blocks of rows on 132 multiprocessors: not over few keys, and not if the forward kernel splits them itself.

    That spares it 1 - 1.25 * 24 / 132 of the keys' time, for a start that takes that of 250 keys.
    """
    decode = plan(plans.CAUSAL, pass_name="decode", block_q=16, warps=1, split_kv=None)
    made = bench(plan(plans.CAUSAL), decode)
    for kv_len, name in ((324, "decode"), (323, "forward")):
        made.cuda.launches.clear()
        made.kernel(*qkv(q_len=30, kv_len=kv_len))
        assert made.cuda.launches[0].kernel == f"causal_{name}_fp16_d16_sm_90"
    for forward in (plan(plans.CAUSAL, split_kv=None), plan(plans.CAUSAL, loop="kv_outer")):
        made = bench(forward, decode)
        made.kernel(*qkv(q_len=30, kv_len=9000))
        assert made.cuda.launches[0].kernel == "causal_forward_fp16_d16_sm_90"
    made = bench(plan(plans.CAUSAL, block_q=16, warps=1), decode)
    made.kernel(*qkv(q_len=150, kv_len=8000))  # 116 blocks of rows
    assert made.cuda.launches[0].kernel == "causal_forward_fp16_d16_sm_90"


def test_blocks_share_the_keys_that_a_window_keeps(bench: MakeBench) -> None:
    """40 keys of 100,000, which are in three tiles at most."""
    decode = plan(plans.WINDOW, pass_name="decode", block_q=48, warps=3, split_kv=None)
    made = bench(plan(plans.WINDOW), decode)
    made.kernel(*qkv(q_len=1, kv_len=100_000))
    assert [launch.grid for launch in made.cuda.launches] == [BATCH * KV_HEADS * 3]
    made = bench(plan(plans.CAUSAL), replace(decode, variant=plans.CAUSAL, rules=plans.CAUSAL_RULES))
    made.kernel(*qkv(q_len=1, kv_len=100_000))
    assert [launch.grid for launch in made.cuda.launches] == [264]  # all that the GPU holds at once


def test_decode_counts_who_has_come(bench: MakeBench) -> None:
    """With counters of the stream, or of the recorded launch: cleared ahead, once. A block has two partial results."""
    decode = plan(plans.CAUSAL, pass_name="decode", block_q=48, warps=3, split_kv=None)
    made = bench(plan(plans.CAUSAL), decode)
    arrays = qkv(q_len=1, kv_len=100_000)
    made.cuda.captured.add(0x57)
    found = []
    for stream in (0x10, 0x10, 0x57, 0x57):
        made.kernel(*arrays, stream=stream)
        found.append(made.cuda.launches[-1].params["arrivals"])
    assert [found.index(item) for item in found] == [0, 0, 2, 3]
    assert [item[1] for item in made.cuda.zeroed] == [0, 0x10]  # those of graphs, and of the stream
    state = [made.cuda.launches[-1].params[name] for name in ("partial_out", "row_max", "row_sum")]
    assert state[1] - state[0] >= 2 * 264 * 3 * D * 4 and state[2] - state[1] >= 2 * 264 * 3 * 4


def test_fixed_splits_have_slots_of_their_own(bench: MakeBench) -> None:
    decode = plan(plans.FULL, pass_name="decode", block_q=48, warps=3, split_kv=5)
    made = bench(plan(plans.FULL), decode)
    made.kernel(*qkv(q_len=1, kv_len=1000))
    (launch,) = made.cuda.launches
    assert launch.grid == BATCH * KV_HEADS * 5
    assert launch.params["row_max"] - launch.params["partial_out"] >= launch.grid * 3 * D * 4
