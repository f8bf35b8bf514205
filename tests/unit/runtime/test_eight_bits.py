"""Calls of e4m3: a launch that transposes V ahead where it pays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime.call import prepare
from tests import plans
from tests.unit.runtime.conftest import Bench, MakeBench
from tests.unit.runtime.fakes import FakeArray

D, BLOCK_Q, BLOCK_KV, RESIDENT = 64, 128, 96, 2 * 132


def called(
    bench: MakeBench, variant: Any, heads: int, q_len: int, kv_len: int, *, packed: int = 0, head_dim: int = D
) -> Bench:
    fields = {"target": "sm_90a", "family": "hopper", "block_q": BLOCK_Q, "block_kv": BLOCK_KV, "warps": 8}
    made = bench(plans.plan(variant, "e4m3", head_dim, head_dim, split_kv=1, **fields))
    batch: tuple[int, ...] = () if packed else (1,)
    q, k = (
        FakeArray((*batch, count, length, head_dim), "float8_e4m3fn") for count, length in ((heads, q_len), (2, kv_len))
    )
    starts = {name: FakeArray((packed + 1,), "int32") for name in ("cu_seqlens_q", "cu_seqlens_kv")} if packed else {}
    made.kernel(q, k, k, **starts)
    return made


def test_v_is_transposed_ahead_where_it_pays(bench: MakeBench) -> None:
    made = called(bench, plans.FULL, 32, 16384, 16384)
    first, main = made.cuda.launches
    tiles = math.ceil(16384 / BLOCK_KV)
    assert (first.kernel, main.kernel) == ("transpose_values_d64_k96_sm_90a", "full_forward_e4m3_d64_sm_90a")
    assert first.grid == min(2 * tiles, RESIDENT)
    assert first.params["values_ahead"] == main.params["values_ahead"] != 0
    assert first.params["kv_tiles"] == main.params["kv_tiles"] == tiles
    assert first.maps == main.maps[2:]
    (workspace,) = made.framework.released
    end = main.params["values_ahead"] + 2 * tiles * BLOCK_KV * D
    assert workspace.pointer <= main.params["values_ahead"] and end <= workspace.pointer + 4 * math.prod(
        workspace.shape
    )


def test_of_small_problems_the_kernel_transposes_it(bench: MakeBench) -> None:
    made = called(bench, plans.FULL, 4, 1024, 1024)
    (main,) = made.cuda.launches
    assert main.params["values_ahead"] == 0 and not made.framework.released


def test_tiles_of_a_packed_batch(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound for each head that needs no look at cu_seqlens."""
    monkeypatch.setattr(prepare, "pays", lambda plan, problem: True)
    first, main = called(bench, plans.FULL, 4, 100, 1000, packed=3).cuda.launches
    assert first.params["kv_tiles"] == main.params["kv_tiles"] == 1000 // BLOCK_KV + 3
    assert first.params["cu_seqlens_kv"] == main.params["cu_seqlens_kv"] != 0
    assert first.params["batch"] == 3


@pytest.mark.parametrize("ahead", [False, True])
def test_blocks_that_transpose_v_themselves_are_no_pairs(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> None:
    monkeypatch.setattr(prepare, "pays", lambda plan, problem: ahead)
    assert called(bench, plans.FULL, 4, 1024, 1024, head_dim=128).cuda.launches[-1].paired == ahead


@pytest.mark.parametrize(("rows", "refused"), [(7, True), (12, True), (8, False), (24, False)])
def test_pages_whose_rows_tma_cannot_swizzle(bench: MakeBench, rows: int, refused: bool) -> None:
    """There is no decode kernel, which loads all others."""
    fields = {"target": "sm_90a", "family": "hopper", "block_q": BLOCK_Q, "block_kv": BLOCK_KV, "warps": 8}
    whole = plans.plan(plans.FULL, "e4m3", D, D, split_kv=1, **fields)
    made = bench(whole, replace(whole, paged=True))
    q, pool = FakeArray((1, 2, 3, D), "float8_e4m3fn"), FakeArray((9, 2, rows, D), "float8_e4m3fn")
    given = {"kv_lens": FakeArray((1,), "int32"), "block_table": FakeArray((1, 5), "int32")}
    if refused:
        with pytest.raises(AttnccError, match="A625"):
            made.kernel(q, pool, pool, **given)
    else:
        made.kernel(q, pool, pool, **given)
    assert len(made.cuda.launches) == (not refused)
