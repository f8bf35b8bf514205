"""Kernels of wide heads on Hopper as plans: which head dims have them, what a schedule may ask for, which calls they
serve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attncc import api
from attncc.checks import schedule_errors
from attncc.diagnostics import AttnccError
from attncc.kernels import legality
from attncc.kernels.candidates import make_candidates, make_plan
from attncc.kernels.registry import facts_of
from attncc.kernels.serving import plan_for
from attncc.problem import Problem
from attncc.schedule.plan import Build
from attncc.schedule.schedule import from_asts
from attncc.schedule.target import TARGETS
from attncc.semantics.load import load
from attncc.source import SourceFile

CAUSAL = "attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n"


def first(pass_name: str, head_dims: tuple[int, int], **given: Any) -> Any:
    return make_candidates(api.parse(CAUSAL).variant, Build(pass_name, "sm_90a", "bf16", *head_dims, **given)).first


@pytest.mark.parametrize(
    "head_dims", [(264, 264), (320, 320), (384, 384), (512, 512), (576, 512), (576, 16), (257, 257)]
)
def test_wide_heads_on_hopper_have_such_a_kernel(head_dims: tuple[int, int]) -> None:
    plan = first("forward", head_dims)
    assert plan.family == "hopper_wide"
    assert sum(legality.shared_memory(plan).values()) + 1024 <= TARGETS["sm_90a"].shared_bytes


def test_others_have_the_portable_one() -> None:
    """Few rows, values wider than keys."""
    assert first("decode", (576, 512)).family == "wide"
    assert first("forward", (64, 512)).family == "wide"


def scheduled(settings: str, head_dim: int = 512, **given: Any) -> Any:
    text = f"{CAUSAL}schedule s for causal on sm_90a {{ {settings} }}\n"
    program = load(SourceFile("<text>", text), {})
    (schedule,) = from_asts(program.schedules)
    dims = {"head_dim": head_dim, "value_head_dim": head_dim, "dtype": "bf16", "target": "sm_90a"}
    return make_plan(program.variants[0], schedule=schedule, **dims | given)


@pytest.mark.parametrize(
    ("settings", "code", "help_text"),
    [
        ("family = hopper_wide block_q = 128", "A405", "write `block_q = 64`"),
        ("family = hopper_wide block_kv = 32", "A405", "write `block_kv = 64`"),
        ("family = hopper_wide warps = 8", "A405", "write `warps = 12`"),
        ("family = hopper_wide stages = 2", "A406", "fewer stages"),
        ("family = hopper_wide loop = kv_outer", "A412", "its warps hold O in registers"),
        ("family = hopper", "A412", "write `family = hopper_wide`"),
    ],
)
def test_what_a_schedule_cannot_have(settings: str, code: str, help_text: str) -> None:
    with pytest.raises(AttnccError) as caught:
        scheduled(settings)
    assert code in str(caught.value) and help_text in str(caught.value)


def test_a_schedule_chooses_between_the_two() -> None:
    assert scheduled("family = wide").family == "wide"
    assert scheduled("family = hopper_wide split_kv = 4").split_kv == 4
    with pytest.raises(AttnccError, match="A412"):
        scheduled("family = hopper_wide", head_dim=128)


def test_check_judges_such_a_schedule_by_wide_heads() -> None:
    text = f"{CAUSAL}schedule s for causal on sm_90a {{ family = hopper_wide stages = 2 }}\n"
    assert schedule_errors(load(SourceFile("<text>", text), {})) == []


def test_few_rows_and_odd_pages_run_decode() -> None:
    plans = [first(name, (576, 512), paged=True) for name in ("forward", "decode")]
    for heads, q_len, page, kv_len, expected in (
        (16, 1, 64, 8192, "forward"),
        (16, 1, 12, 8192, "decode"),
        (16, 1, 64, 1200, "decode"),
        (128, 1, 64, 1200, "forward"),
        (16, 2, 16, 1200, "forward"),
        (128, 1, 200, 1200, "forward"),
        (128, 1, 12, 1200, "decode"),
        (128, 1, 1, 1200, "decode"),
    ):
        problem = Problem(1, heads, 1, q_len, kv_len, 576, 512, cached=True, page=page)
        assert plan_for(plans, problem, 132).pass_name == expected


def test_products_read_what_has_come() -> None:
    """The first of S = Q K^T reads columns that are the first half of V, where V is the first columns of K."""
    wanted = {(576, 512): ((16, 20), 256), (320, 320): ((12, 8), 192), (576, 16): ((4, 32), 64)}
    for head_dims, (steps, columns) in wanted.items():
        made = facts_of(first("forward", head_dims)).products
        assert (made["first_scores"].steps, made["scores"].steps) == steps
        assert made["output"].columns == made["own_output"].columns == columns


@pytest.mark.parametrize(
    ("batch", "q_len", "kv_len", "parts"),
    [
        (1, 1, 32768, 66),
        (16, 1, 8192, 4),
        (64, 1, 4096, 1),
        (16, 2, 8192, 2),
        (50, 1, 4096, 0),
        (2, 1, 129, 3),
        (90, 1, 64, 0),
    ],
)
def test_thread_blocks_have_one_part_each_where_that_costs_little(
    batch: int, q_len: int, kv_len: int, parts: int
) -> None:
    facts = facts_of(first("forward", (576, 512)))
    problem = Problem(batch, 128, 1, q_len, kv_len, 576, 512)
    shared = facts.shared_out(problem, 132)
    assert shared["item_parts"] == max(parts, 1)
    runs = facts.runs(problem, 10**6, facts.items(problem), 132, 132, alike=True)
    assert runs.parts == (parts * facts.items(problem) if parts else 132)
    cached = facts.shared_out(replace(problem, cached=True), 132)
    assert (cached["item_parts"], cached["fewer_runs"]) == (1, 132)
