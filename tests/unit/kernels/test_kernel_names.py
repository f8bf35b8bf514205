"""Names of kernels: what is rendered has the name under which launches look for it."""

from __future__ import annotations

import pytest

from attncc import api
from attncc.kernels.candidates import make_plan
from attncc.kernels.kernel_names import configuration_name
from attncc.kernels.launched import kernel_names
from attncc.package import prepare
from attncc.resources import folder


@pytest.mark.parametrize(
    ("dims", "name"), [((64, 64), "bf16_d64"), ((192, 128), "bf16_d192x128")], ids=["alike", "of values"]
)
def test_configurations(dims: tuple[int, int], name: str) -> None:
    assert configuration_name("bf16", *dims) == name


@pytest.mark.parametrize(("spec", "dtype", "backward"), [("natten", "bf16", True), ("causal", "e4m3", False)])
def test_launches_look_for_what_is_rendered(spec: str, dtype: str, backward: bool) -> None:
    path = folder("specs") / f"{spec}.attn"
    (package,) = prepare(path, archs=["sm_90a"], dtypes=[dtype], head_dims=[64], backward=backward)
    assert package.kernel_names == set(package.sources)


def test_a_plans_own_comes_first() -> None:
    variant = api.parse("attn 1\nvariant v {\n    keep if q_pos >= kv_idx\n}\n").variant
    plan = make_plan(variant, dtype="bf16", head_dim=64, value_head_dim=64, target="sm_80")
    assert kernel_names(plan)[0] == "v_forward_bf16_d64_sm_80"
