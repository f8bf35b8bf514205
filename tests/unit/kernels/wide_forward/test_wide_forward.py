"""Kernels of wide heads as plans: which tiles fit, what a schedule may ask for, which calls they serve."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from attncc import api
from attncc.checks import schedule_errors
from attncc.diagnostics import AttnccError
from attncc.kernels import legality
from attncc.kernels.candidates import make_candidates, make_plan, make_tiles_2d
from attncc.kernels.crossings import Chip
from attncc.kernels.registry import facts_of
from attncc.kernels.serving import plan_for
from attncc.problem import Problem
from attncc.schedule.plan import Build
from attncc.schedule.schedule import from_asts
from attncc.schedule.target import TARGETS
from attncc.semantics.load import load
from attncc.source import SourceFile

DIMS = ((264, 264), (320, 320), (384, 384), (512, 512), (576, 512), (64, 512), (576, 16))
CAUSAL = "attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n"


def build(pass_name: str, target: str, head_dims: tuple[int, int]) -> Build:
    return Build(pass_name, target, "bf16", *head_dims)


@pytest.mark.parametrize(("pass_name", "target"), list(product(("forward", "decode"), TARGETS)))
def test_every_target_has_tiles_for_every_head_dim(pass_name: str, target: str) -> None:
    variant = api.parse(CAUSAL).variant
    for head_dims in DIMS:
        found = make_candidates(variant, build(pass_name, target, head_dims)).plans()
        plans = [plan for plan in found if plan.family != "hopper_wide"]  # which comes before, where it can be
        assert {plan.family for plan in plans} == {"wide"}
        for plan in plans:
            assert sum(legality.shared_memory(plan).values()) + 1024 <= TARGETS[target].shared_bytes


def test_latents_are_some_columns_of_keys() -> None:
    variant = api.parse(CAUSAL).variant
    stages = {
        dims: facts_of(make_candidates(variant, build("decode", "sm_90", dims)).first).latent_stages  # type: ignore[attr-defined]
        for dims in ((576, 512), (320, 264), (320, 320), (64, 512))
    }
    assert stages == {(576, 512): 2, (320, 264): 3, (320, 320): 0, (64, 512): 0}


def scheduled(settings: str, head_dim: int = 320, **given: Any) -> None:
    text = f"{CAUSAL}schedule s for causal on sm_90 {{ {settings} }}\n"
    program = load(SourceFile("<text>", text), {})
    (schedule,) = from_asts(program.schedules)
    dims = {"head_dim": head_dim, "value_head_dim": head_dim, "dtype": "bf16", "target": "sm_90"}
    make_plan(program.variants[0], schedule=schedule, **dims | given)


@pytest.mark.parametrize(
    ("settings", "code", "help_text"),
    [
        ("block_q = 64 warps = 6", "A405", "a multiple of block_q / 16 warps"),
        ("block_kv = 48", "A405", "choose 16 or 32 or 64"),
        ("block_q = 16 block_kv = 64 warps = 3", "A405", "choose 16 or 32"),
        ("loop = kv_outer", "A412", "its warps hold O in registers"),
        ("loop = kv_outer", "A412", "remove `loop = kv_outer`"),
        ("block_q = 128 warps = 8 block_kv = 16 stages = 1", "A407", "fewer rows a warp"),
        ("block_q = 64 block_kv = 64 warps = 8 stages = 4", "A406", "fewer stages"),
        ("family = portable", "A412", "head dims above 256"),
        ("skip = lists", "A408", "write `skip = auto`"),
    ],
)
def test_what_a_schedule_cannot_have(settings: str, code: str, help_text: str) -> None:
    with pytest.raises(AttnccError) as caught:
        scheduled(settings, 512)
    assert code in str(caught.value) and help_text in str(caught.value)


def test_a_schedule_for_wide_heads_serves_no_narrow_ones() -> None:
    scheduled("family = wide block_q = 32 warps = 4 block_kv = 32 split_kv = 2")
    with pytest.raises(AttnccError, match="A412"):
        scheduled("family = wide", head_dim=128)


def test_check_judges_such_a_schedule_by_wide_heads() -> None:
    def found(settings: str) -> set[str]:
        text = f"{CAUSAL}schedule s for causal on sm_90 {{ {settings} }}\n"
        return {item.code for item in schedule_errors(load(SourceFile("<text>", text), {}))}

    assert found("family = wide block_q = 32 warps = 4 block_kv = 32") == set()
    assert found("family = wide block_q = 32 warps = 5") == {"A405"}


def test_few_rows_run_decode() -> None:
    variant = api.parse(CAUSAL).variant
    plans = [make_candidates(variant, build(name, "sm_90", (576, 512))).first for name in ("forward", "decode")]
    for heads, q_len, expected in ((16, 1, "decode"), (8, 2, "decode"), (128, 1, "forward"), (16, 2, "forward")):
        problem = Problem(1, heads, 1, q_len, 100_000, 576, 512)
        assert plan_for(plans, problem, Chip(132)).pass_name == expected


def test_there_are_no_2d_tiles() -> None:
    variant = api.parse("natten").variant
    assert make_tiles_2d(make_candidates(variant, build("forward", "sm_90", (128, 128)))) is not None
    assert make_tiles_2d(make_candidates(variant, build("forward", "sm_90", (320, 320)))) is None
