from __future__ import annotations

import json
from pathlib import Path

import pytest

from attncc.analysis.mask.tiles import analyse
from attncc.ir import apply, const, symbol
from attncc.kernels.kernel_names import kernel_name
from attncc.package import prepare
from attncc.resources import folder
from attncc.runtime.store.package_store import read_plan
from attncc.schedule.plan_json import from_json, to_json
from tests import plans

SPECS = sorted(folder("specs").glob("*.attn"))


@pytest.mark.parametrize("variant", plans.VARIANTS, ids=lambda variant: variant.name)
def test_a_plan_survives_json(variant: plans.Variant) -> None:
    plan = plans.plan(variant, rules=analyse(variant, 64, 64))
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.stem)
def test_packages_read_the_plans_of_every_spec(spec: Path) -> None:
    """Such as those in 2-D tiles, whose masks are in other words."""
    packages = prepare(spec, archs=["sm_80", "sm_90a"], head_dims=[128], decode=True, serving=True, backward=True)
    for plan in (plan for package in packages for plan in package.plans):
        assert read_plan(kernel_name(plan), json.dumps(to_json(plan)).encode()) == plan


def test_shared_expressions_are_written_and_built_once() -> None:
    expr = symbol("q_idx")
    for _ in range(60):  # 2**60 nodes, if written in full
        expr = apply("add", expr, expr)
    text = json.dumps(to_json((expr, apply("sub", expr, const(1)))))
    assert len(text) < 10_000
    first, second = from_json(json.loads(text))
    assert hash(first) == hash(expr)  # `==` would walk all of it
    assert second.args[0] is first and first.args[0] is first.args[1]


@pytest.mark.parametrize("value", [{"class": "int"}, {"same": 0}, {"same": -1}, {"x": 1}])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not part of a plan"):
        from_json(value)
