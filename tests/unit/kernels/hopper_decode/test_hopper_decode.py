"""Decode kernels with wgmma: which calls have them, what they are, what takes their place."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from attncc.codegen.render import render
from attncc.compiler import load_specification
from attncc.kernels import legality
from attncc.kernels.registry import facts_of, forward_facts, tells_rows
from attncc.problem import Problem
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import LEAST_ROWS, Build, KernelPlan
from attncc.schedule.plan_json import from_json, to_json
from attncc.schedule.target import TARGETS

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"


def plans(least_rows: int = LEAST_ROWS[0], head_dim: int = 128, **asked: Any) -> list[KernelPlan]:
    configuration = Configuration("bf16", head_dim, head_dim, least_rows=least_rows)._replace(**asked)
    found = load_specification(SPEC, None, {})[0].candidates(configuration, "sm_90a")
    return [plan for item in found for plan in islice(item.plans(), 3)]


@pytest.mark.parametrize(("head_dim", "tile"), [(128, "64 x 64"), (64, "64 x 128")])
def test_the_kernel(head_dim: int, tile: str) -> None:
    """One thread block fills a multiprocessor; where it spills, that of mma.sync is tried."""
    plan, *others = plans(head_dim=head_dim)
    assert plan.tiles == f"hopper {tile}, 8 warps, 6 stages, 2 tiles at once"
    assert [other.family for other in others] == ["portable"] * 2
    shared = sum(legality.shared_memory(plan).values())
    assert TARGETS["sm_90a"].shared_bytes // 2 < shared <= TARGETS["sm_90a"].shared_bytes
    assert from_json(to_json(plan)) == plan and plan.begins_early
    assert forward_facts(plan).warp_keys == plan.block_kv


def test_one_kernel_for_all_numbers_of_rows() -> None:
    assert plans(LEAST_ROWS[1]) == []


@pytest.mark.parametrize("asked", [{"head_dim": 96}, {"value_head_dim": 80}, {"head_dim": 80, "value_head_dim": 64}])
def test_head_dims_of_parts_of_panels_have_those_of_mma(asked: dict[str, Any]) -> None:
    assert {plan.family for rows in LEAST_ROWS for plan in plans(rows, **asked)} == {"portable"}


@pytest.mark.parametrize("asked", [{"kv_dtype": "int8"}, {"prefixed": True}, {"dtype": "fp32"}])
def test_what_has_none(asked: dict[str, Any]) -> None:
    assert plans(**asked) == []


def test_other_targets_have_those_of_mma() -> None:
    dims = ("bf16", 128, 128)
    builds = [Build("decode", target, *dims, least_rows=rows) for target in ("sm_90", "sm_90a") for rows in LEAST_ROWS]
    assert [tells_rows(build) for build in builds] == [True, True, True, False]


def test_one_block_a_multiprocessor_has_runs_of_whole_heads() -> None:
    """16 sequences of 8 key heads: 124 tiles each of 132 thread blocks would be, and no head is cut for four more."""
    facts: Any = facts_of(plans()[0])
    problem = Problem(16, 32, 8, 16, 8192, 128, 128)
    runs = facts.runs(problem, 16 * 8 * 128, 16 * 8, 132, 132, alike=True)
    assert (runs.size, runs.parts, runs.heads) == (128, 1, 128)


def test_wgmma_reads_copies_behind_a_fence() -> None:
    """The emulator has one proxy: it can't tell."""
    text = render(plans()[0]).text
    waits = text.split("copy_wait<PENDING>();")[1:]
    assert len(waits) == 2 and all(wait.lstrip().startswith(("fence_async();", "copies_landed();")) for wait in waits)
    assert "fence.proxy.async.shared::cta" in text
