"""Calls of wide heads on Hopper: maps of k and v alone, and the launch of decode."""

from __future__ import annotations

from typing import Any

from attncc.kernels.candidates import make_candidates
from attncc.schedule.plan import Build
from tests import plans
from tests.unit.runtime.conftest import MakeBench
from tests.unit.runtime.fakes import FakeArray

D, LATENTS, PAGE = 576, 512, 16


def plan(**given: Any) -> Any:
    found = make_candidates(plans.CAUSAL, Build("forward", "sm_90a", "bf16", D, LATENTS, **given)).first
    assert found.family == "hopper_wide"
    return found


def array(*shape: int, dtype: str = "bfloat16") -> FakeArray:
    return FakeArray(shape, dtype)


def test_maps_are_those_of_keys_and_values(bench: MakeBench) -> None:
    made = bench(plan())
    q, k, v = array(2, 128, 1, D), array(2, 1, 700, D), array(2, 1, 700, LATENTS)
    made.kernel(q, k, v)
    launch = made.cuda.launches[-1]
    of_k, of_v = (made.cuda.maps[address] for address in launch.maps)
    assert of_k == {
        "dtype": 9, "base": k.pointer, "sizes": (D, 700, 1, 2), "strides": (2 * D, 128, 1400 * D),
        "box": (64, 64, 1, 1),
    }  # fmt: skip
    assert (of_v["base"], of_v["sizes"], of_v["box"]) == (v.pointer, (LATENTS, 700, 1, 2), (64, 64, 1, 1))
    assert (launch.params["group"], launch.params["slot_rows"]) == (128, 64)
    assert (launch.params["k"], launch.params["v"]) == (k.pointer, v.pointer)


def test_boxes_of_pages(bench: MakeBench) -> None:
    made = bench(plan(paged=True))
    pools = array(40, 1, PAGE, D), array(40, 1, PAGE, LATENTS)
    table, lengths = array(2, 20, dtype="int32"), array(2, dtype="int32")
    made.kernel(array(2, 128, 1, D), *pools, kv_lens=lengths, block_table=table)
    launch = made.cuda.launches[-1]
    assert [made.cuda.maps[address]["box"] for address in launch.maps] == [(64, PAGE, 1, 1)] * 2
    assert launch.params["box_rows"] == PAGE
