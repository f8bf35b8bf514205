"""Decode kernels with wgmma: which calls have them, what they are, what takes their place."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from attncc.codegen.render import render
from attncc.compiler import load_specification
from attncc.kernels import legality
from attncc.kernels.registry import facts_of, forward_facts, has_own_kernel
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import DECODE_KERNELS, LEAST_ROWS, Build, KernelPlan
from attncc.schedule.plan_json import from_json, to_json
from attncc.schedule.target import TARGETS

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
MANY, MORE = LEAST_ROWS


def plans(least_rows: int = MANY, head_dim: int = 128, **asked: Any) -> list[KernelPlan]:
    configuration = Configuration("bf16", head_dim, head_dim, least_rows=least_rows)._replace(**asked)
    found = load_specification(SPEC, None, {})[0].candidates(configuration, "sm_90a")
    return [plan for item in found for plan in islice(item.plans(), 3)]


@pytest.mark.parametrize(
    ("asked", "tile", "blocks"),
    [
        ({}, "64 x 64, 4 warps", 2),
        ({"least_rows": MORE, "head_dim": 64}, "64 x 128, 4 warps", 2),
        ({"head_dim": 256}, "64 x 64, 4 warps", 1),
        ({"one_block": True}, "64 x 128, 8 warps", 1),
        ({"paged": True}, "64 x 64, 4 warps", 2),
    ],
)
def test_the_kernel(asked: dict[str, Any], tile: str, blocks: int) -> None:
    """So many thread blocks fill a multiprocessor; where it spills, kernels with mma.sync are tried."""
    plan, *others = plans(**asked)
    assert plan.tiles == f"hopper {tile}, 3 stages"
    assert [other.family for other in others] == ["portable"] * 2
    shared, most = sum(legality.shared_memory(plan).values()), TARGETS["sm_90a"].shared_bytes
    assert most // shared == blocks
    assert from_json(to_json(plan)) == plan and plan.begins_early
    assert forward_facts(plan).warp_keys == plan.block_kv // (plan.warps // 4)


def test_keys_are_read_once() -> None:
    """Not with one thread block a multiprocessor. All numbers of rows have one kernel, so none is for 33 and more."""
    once = {own: facts_of(plan).reads_once for own in DECODE_KERNELS for plan in plans(**own._asdict())[:1]}  # type: ignore[attr-defined]
    assert [(own.least_rows, own.one_block, known) for own, known in once.items()] == [
        (MANY, False, True), (0, True, True), (MANY, True, False)
    ]  # fmt: skip
    assert plans(MORE, 256) == [] and len(plans(MANY, 256)) == 3


def test_where_mma_is_faster() -> None:
    """Up to 32 rows of head dims up to 64."""
    assert {plan.family for plan in plans(MANY, 64)} == {"portable"}


@pytest.mark.parametrize("asked", [{"head_dim": 96}, {"value_head_dim": 80}, {"head_dim": 80, "value_head_dim": 64}])
def test_head_dims_of_parts_of_panels_have_those_of_mma(asked: dict[str, Any]) -> None:
    assert {plan.family for rows in LEAST_ROWS for plan in plans(rows, **asked)} == {"portable"}


@pytest.mark.parametrize(
    "asked", [{"kv_dtype": "int8"}, {"prefixed": True}, {"dtype": "fp32"}, {"head_dim": 192}, {"value_head_dim": 256}]
)
def test_what_has_none(asked: dict[str, Any]) -> None:
    assert plans(**asked) == []


def test_caches_of_8_bits_have_those_of_mma() -> None:
    assert {plan.family for plan in plans(kv_dtype="e4m3", paged=True)} == {"portable"}


def test_other_targets_have_those_of_mma() -> None:
    dims = ("bf16", 128, 128)
    builds = [Build("decode", "sm_90", *dims, **own._asdict()) for own in DECODE_KERNELS]
    found = {(build.least_rows, build.one_block) for build in builds if has_own_kernel(build)}
    assert found == {(MANY, False), (MORE, False), (0, True)}
    assert not any(has_own_kernel(Build("decode", "sm_100", *dims, **own._asdict())) for own in DECODE_KERNELS)


def test_wgmma_reads_copies_behind_a_fence() -> None:
    """The emulator has one proxy: it can't tell."""
    text = render(plans()[0]).text
    waits = [wait.lstrip() for wait in text.split("copy_wait<AHEAD == 0 ? 0 : AHEAD - 1>();")[1:]]
    assert len(waits) == 2 and all(wait.startswith(("fence_async();", "copies_landed();")) for wait in waits)
    assert "fence.proxy.async.shared::cta" in text
