"""Which kernels have one maximum for all rows: those whose scores are proven to lie near it, where it is faster."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from attncc import api
from attncc.codegen.render import render
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_plan
from attncc.kernels.unified_max import EXPONENTS, LOG2_E, told, unified_exponent
from attncc.schedule.plan import KernelPlan
from attncc.schedule.plan_check import check_plan
from attncc.schedule.plan_json import from_json, to_json
from attncc.schedule.schedule import Schedule

CAP = "score = 50 * tanh(score / 50)"


def plan_of(
    line: str, dtype: str = "bf16", head_dim: int = 128, row_max: str | None = None, **given: str
) -> KernelPlan:
    variant = api.parse(f"attn 1\nvariant v {{\n{line}\n}}\n").variant
    named = {"target": "sm_90a", "pass_name": "forward"} | given
    settings = () if row_max is None else (("row_max", (row_max,)),)
    schedule = Schedule("s", "v", named["pass_name"], named["target"], settings)
    return make_plan(variant, dtype=dtype, head_dim=head_dim, value_head_dim=head_dim, schedule=schedule, **named)


def test_where_it_was_measured_to_be_faster() -> None:
    taken = {dim: plan_of(CAP, head_dim=dim).score_bounds is not None for dim in (64, 96, 104, 128, 192, 256)}
    assert taken == {64: False, 96: False, 104: True, 128: True, 192: False, 256: False}


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_a_schedule_decides(head_dim: int) -> None:
    assert plan_of(CAP, head_dim=head_dim, row_max="unified").score_bounds is not None
    assert plan_of(CAP, head_dim=head_dim, row_max="running").score_bounds is None


@pytest.mark.parametrize(
    ("line", "dtype", "given", "why"),
    [
        ("score = 80 * tanh(score / 80)", "bf16", {}, "109.5 apart"),
        (CAP, "fp16", {}, "20.03 apart"),
        ("score = 2 * score", "bf16", {}, "nothing bounds"),
        ("", "bf16", {}, "nothing bounds"),
        (f"normalize sigmoid\n{CAP}", "bf16", {}, "no maximum"),
        (CAP, "e4m3", {}, "too few exponents"),
        (CAP, "bf16", {"target": "sm_80"}, "the family portable"),
        (CAP, "bf16", {"pass_name": "decode"}, "in the pass decode"),
    ],
)
def test_refused_where_there_is_no_proof(line: str, dtype: str, given: dict[str, str], why: str) -> None:
    assert plan_of(line, dtype, **given).score_bounds is None
    with pytest.raises(AttnccError) as caught:
        plan_of(line, dtype, row_max="unified", **given)
    assert [item.code for item in caught.value.diagnostics] == ["A416"]
    assert why in caught.value.diagnostics[0].notes[0]


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        (CAP, "bf16"),
        ("score = 54 * tanh(score / 54)", "bf16"),
        ("score = 100 * sigmoid(score) + 900", "bf16"),
        ("score = 10 * tanh(score / 10)", "fp16"),
        ("score = clamp(score, -300, -281)", "fp16"),
    ],
)
def test_probabilities_stay_within_their_type(line: str, dtype: str) -> None:
    """Those of the bounds, half an exponent aside."""
    plan = plan_of(line, dtype)
    assert plan.score_bounds is not None
    low, high = (bound * LOG2_E - unified_exponent(plan) for bound in plan.score_bounds)
    assert EXPONENTS[dtype][0] <= low - 0.5 < high + 0.5 <= EXPONENTS[dtype][1]


def test_plans_go_to_json_and_back() -> None:
    plan = plan_of(CAP)
    check_plan(plan)
    again = from_json(json.loads(json.dumps(to_json(plan))))
    assert again == plan and again.score_bounds == plan.score_bounds
    assert not {"row_max", "score_bounds"} & set(to_json(plan_of("")))  # so plans without it are as they were
    for bad in ((1.0, float("inf")), (2.0, 1.0)):
        with pytest.raises(ValueError, match="score_bounds"):
            check_plan(replace(plan, score_bounds=bad))


def test_the_kernel_looks_for_no_maximum() -> None:
    text, before = render(plan_of(CAP)).text, render(plan_of(CAP, row_max="running")).text
    assert "UNIFIED_MAX = 6.5" in text and "max_still_valid" not in text and "max_still_valid" in before
    assert "row_max = running" in before and "row_max" not in text.split("tiles")[0]


def test_what_people_are_told() -> None:
    assert told(plan_of(CAP)).startswith("one for all rows: scores are proven to lie between -50.04 and 50.04, so P is")
    assert told(plan_of(CAP, head_dim=64)).startswith("running: one for all rows is not known to be faster")
    assert told(plan_of(CAP, row_max="running")) == "running, as the schedule asks"
    assert told(plan_of("score = 2 * score")) == "running: nothing bounds the scores from above and below"
    assert told(plan_of(f"normalize sigmoid\n{CAP}")) == "none"
