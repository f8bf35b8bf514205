"""Kernels of wide heads on Hopper as plans: which head dims have them, what a schedule may ask for, which calls they
serve."""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate, pairwise
from typing import Any

import pytest

from attncc import api
from attncc.checks import schedule_errors
from attncc.diagnostics import AttnccError
from attncc.kernels import legality
from attncc.kernels.candidates import make_candidates, make_plan
from attncc.kernels.crossings import Chip
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
        assert plan_for(plans, problem, Chip(132)).pass_name == expected


def test_products_read_what_has_come() -> None:
    """S = Q K^T panel by panel of K; the last may have fewer columns. As many as V has at most may be V's."""
    wanted = {(576, 512): (8, 4, 256), (264, 264): (5, 1, 192), (320, 320): (5, 4, 192), (576, 16): (2, 4, 64)}
    for head_dims, (panels, steps, columns) in wanted.items():
        facts = facts_of(first("forward", head_dims))
        made = facts.products
        assert facts.first_panels == panels
        assert (made["scores"].steps, made["last_scores"].steps) == (4, steps)
        assert made["output"].columns == made["own_output"].columns == columns


def shares(problem: Problem, tiles: list[int], multiprocessors: int = 132) -> list[tuple[int, int, int]]:
    """Of each team thread blocks, the most units that one has, and how many items are cut; `tiles` of each sequence."""
    facts = facts_of(first("forward", (576, 512)))
    units = [own for own in tiles for _ in range(facts.items(problem) // problem.batch)]
    alike = len(set(tiles)) == 1
    found = []
    for laid in facts.laid_out(problem, units, Chip(multiprocessors), multiprocessors, alike=alike):
        begins, ends = laid.runs.begins(), list(accumulate(laid.units))
        inside = [bisect(ends, begin) for begin in begins[1:-1] if begin not in ends]
        found.append((len(begins) - 1, max(b - a for a, b in pairwise(begins)), len(set(inside))))
    return found


@pytest.mark.parametrize(
    ("batch", "q_len", "tiles", "expected"),
    [
        (1, 1, 512, (64, 8, 1)),  # 66 thread blocks have 8 tiles each; the last two none
        (16, 1, 128, (64, 32, 16)),
        (64, 1, 64, (64, 64, 0)),
        (128, 1, 64, (64, 128, 0)),  # two sequences each
        (16, 2, 128, (32, 64, 16)),
        (50, 1, 64, (66, 49, 50)),  # a whole one each took 16 tiles longer
        (90, 1, 1, (45, 2, 0)),
    ],
)
@pytest.mark.parametrize("cached", [False, True])
def test_teams_cut_items_that_are_alike_in_parts_of_one_each(
    batch: int, q_len: int, tiles: int, expected: tuple[int, int, int], cached: bool
) -> None:
    """Blocks, units and cut items of each of as many teams as blocks of 64 rows, whoever knows the lengths."""
    problem = Problem(batch, 128, 1, q_len, 64 * tiles, 576, 512, cached=cached)
    assert shares(problem, [tiles] * batch) == [expected] * (2 * q_len)


def test_teams_cut_items_that_differ() -> None:
    """A part has one item where runs get little longer by that; else runs are equal."""
    problem = Problem(32, 128, 1, 1, 32768, 576, 512, cached=True)
    assert shares(problem, [512] + [16] * 31) == [(63, 16, 1)] * 2
    assert shares(problem, [64, 61] * 16) == [(64, 32, 32)] * 2
    assert shares(problem, [90, 50] * 16) == [(66, 34, 32)] * 2


def test_no_teams_where_rows_see_other_keys_or_many_would_be_idle() -> None:
    facts = facts_of(first("forward", (576, 512)))
    for problem, multiprocessors, expected in (
        (Problem(4, 128, 1, 1, 4096, 576, 512), 132, (2, 4)),
        (Problem(4, 64, 1, 1, 4096, 576, 512), 132, (1, 4)),
        (Problem(4, 128, 1, 100, 4096, 576, 512), 132, (1, -1)),
        (Problem(4, 128, 1, 1, 4096, 576, 512, packed=True), 132, (1, -1)),
        (Problem(4, 128, 1, 25, 4096, 576, 512), 132, (1, 4)),  # 50 blocks of rows: 32 of 132 would be idle
        (Problem(4, 128, 1, 1, 4096, 576, 512), 1, (1, 4)),
    ):
        shared = facts.shared_out(problem, Chip(multiprocessors))
        assert (shared["teams"], shared["run_slack"]) == expected
