"""A knob has all of its parts: a value in each plan, and a check of plans that are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attncc.schedule.choice import KNOBS
from attncc.schedule.plan_check import check_plan
from tests import plans

WITH_DEFAULT = [name for name, knob in KNOBS.items() if knob.default is not None]


def test_plans_tell_the_value_of_each() -> None:
    plan = plans.plan(plans.CAUSAL)
    assert list(plan.knobs) == list(KNOBS)
    assert all(knob.allows(plan.knobs[name]) for name, knob in KNOBS.items() if name != "block_kv")
    assert plan.knobs["block_kv"] == plan.block_kv


@pytest.mark.parametrize("name", WITH_DEFAULT)
def test_plans_that_are_read_hold_values_of_the_knob(name: str) -> None:
    plan = plans.plan(plans.CAUSAL)
    check_plan(replace(plan, **{name: KNOBS[name].default}))
    with pytest.raises(ValueError, match=f"`{name}` is none that a plan has"):
        check_plan(replace(plan, **{name: "*/ evil /*"}))
