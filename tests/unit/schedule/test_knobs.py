"""A knob has all of its parts: a field of plans and of what a schedule chooses, and a check of plans that are read."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from attncc.schedule.knobs import KNOBS
from attncc.schedule.plan import FOLLOWING, Choice, KernelPlan
from attncc.schedule.plan_check import check_plan
from tests import plans

WITH_DEFAULT = [name for name, knob in KNOBS.items() if knob.default is not None]


def test_choices_and_plans_have_a_field_for_each() -> None:
    assert {item.name for item in fields(Choice)} == {*KNOBS, *FOLLOWING}
    assert {*KNOBS, *FOLLOWING} <= {item.name for item in fields(KernelPlan)}


@pytest.mark.parametrize("name", WITH_DEFAULT)
def test_plans_that_are_read_hold_values_of_the_knob(name: str) -> None:
    plan = plans.plan(plans.CAUSAL)
    check_plan(replace(plan, **{name: KNOBS[name].default}))
    with pytest.raises(ValueError, match=f"`{name}` is none that a plan has"):
        check_plan(replace(plan, **{name: "*/ evil /*"}))
