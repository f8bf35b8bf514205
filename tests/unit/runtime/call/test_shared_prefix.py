"""What calls whose sequences share a prefix launch. tests/unit/templates/test_emulated_prefix.py runs such launches."""

from __future__ import annotations

from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_candidates
from attncc.kernels.over_prefix import over_prefix, prefix_schedule
from attncc.kernels.parameters import field_name
from attncc.kernels.shared_prefix import GROUP, LENGTHS
from attncc.kernels.shared_prefix import Q_LEN as Q_LEN_INPUT
from attncc.schedule.plan import Build, KernelPlan
from tests import plans
from tests.unit.runtime.calls import plan
from tests.unit.runtime.conftest import Bench, MakeBench
from tests.unit.runtime.fakes import FakeArray

BATCH, HEADS, KV_HEADS, Q_LEN, ROOM, D, PAGE = 6, 8, 2, 2, 1024, 64, 16


def prefixed(*, paged: bool = False, target: str = "sm_90a") -> tuple[KernelPlan, KernelPlan]:
    """The kernel behind the prefix, and that over it."""
    variant = plans.CAUSAL
    over, behind = (Build(name, target, "fp16", D, D, paged, None, True) for name in ("forward", "decode"))
    seen = over_prefix(variant)
    first = make_candidates(seen, over, prefix_schedule(seen, over)).first
    return make_candidates(variant, behind).first, first


def call(made: Bench, prefix: int, *, paged: bool = False, page: int = PAGE) -> dict[str, Any]:
    q = FakeArray((BATCH, HEADS, Q_LEN, D), "float16")
    shape = (99, KV_HEADS, page, D) if paged else (BATCH, KV_HEADS, ROOM, D)
    k, v = (FakeArray(shape, "float16") for _ in range(2))
    given: dict[str, Any] = {"kv_lens": FakeArray((BATCH,), "int32")}
    if paged:
        given["block_table"] = FakeArray((BATCH, ROOM // page), "int32")
    made.kernel(q, k, v, **given, shared_prefix=prefix)
    return {"q": q, "k": k, "v": v, **given}


@pytest.mark.parametrize("paged", [False, True])
def test_both_launches(bench: MakeBench, paged: bool) -> None:
    made = bench(*prefixed(paged=paged))
    given = call(made, 600, paged=paged)
    over, behind = made.cuda.launches
    assert (over.kernel, behind.kernel) == tuple(
        f"causal_{name}_fp16_d64{'_paged' * paged}_prefix_sm_90a" for name in ("forward", "decode")
    )
    rows, keys, parts = BATCH * Q_LEN * HEADS // KV_HEADS, over.params["kv_len"], over.params["splits"]
    (copy,) = (item for item in made.framework.released if item.contents == [f"copy of {given['q'].pointer}"])
    assert copy.shape == (KV_HEADS, BATCH, Q_LEN, HEADS // KV_HEADS, D)
    assert (over.params["q"], over.params["q_stride_head"], over.params["q_stride_row"]) == (copy.pointer, rows * D, D)
    sizes = [over.params[name] for name in ("batch", "num_heads", "num_kv_heads", "q_len")]
    assert sizes == [1, KV_HEADS, KV_HEADS, rows]
    assert 0 < 600 - keys < 128 and keys % 64 == 0 and parts >= 2
    assert (over.params["kv_lens"], over.params["out"]) == (0, 0)
    assert over.params[field_name(LENGTHS)] == given["kv_lens"].pointer
    assert [over.params[f"{field_name(name)}_value"] for name in (Q_LEN_INPUT, GROUP)] == [Q_LEN, HEADS // KV_HEADS]
    assert over.params["block_table"] == (given["block_table"].pointer if paged else 0)
    told = {name: behind.params[name] for name in ("shared_prefix", "prefix_keys", "prefix_parts", "prefix_rows")}
    assert told == {"shared_prefix": 600, "prefix_keys": keys, "prefix_parts": parts, "prefix_rows": rows}
    assert behind.params["q"] == given["q"].pointer
    # The slots of the second stand behind the parts of the first.
    for name, width in (("partial_out", D), ("row_max", 1), ("row_sum", 1)):
        assert behind.params[name] == over.params[name] + 4 * parts * KV_HEADS * rows * width


@pytest.mark.parametrize(("prefix", "page"), [(60, PAGE), (600, 4)])
def test_one_launch_where_there_is_no_tile(bench: MakeBench, prefix: int, page: int) -> None:
    """Or where TMA can't load the pages."""
    made = bench(*prefixed(paged=True))
    call(made, prefix, paged=True, page=page)
    (behind,) = made.cuda.launches
    assert behind.params["shared_prefix"] == prefix
    assert (behind.params["prefix_keys"], behind.params["prefix_parts"]) == (0, 0)
    assert not any(item.contents for item in made.framework.released), "q isn't copied"


def test_the_number_of_keys_is_part_of_the_form(bench: MakeBench) -> None:
    made = bench(*prefixed(target="sm_90"))
    for prefix in (600, 600, 300, 600, 0):
        if prefix:
            call(made, prefix)
    keys = [item.params["kv_len"] for item in made.cuda.launches[::2]]
    assert keys[0] == keys[1] == keys[3] > keys[2]


@pytest.mark.parametrize("paged", [False, True])
def test_more_keys_than_there_is_room_for(bench: MakeBench, paged: bool) -> None:
    made = bench(*prefixed(paged=paged))
    with pytest.raises(AttnccError, match=rf"A631[\s\S]*at most {ROOM}"):
        call(made, ROOM + 1, paged=paged)
    assert not made.cuda.launches


def test_kernels_that_were_not_built(bench: MakeBench) -> None:
    made = bench(plan(plans.FULL, head_dim=D, value_head_dim=D))
    with pytest.raises(AttnccError, match=r"A505.*share a prefix") as caught:
        call(made, 600)
    assert "--serving" in str(caught.value.diagnostics[0].help)
