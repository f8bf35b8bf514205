"""When live tiles are listed before the kernel, and how long the lists are."""

from __future__ import annotations

import pytest

from attncc import api
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_plan
from attncc.kernels.helpers.tile_lists import TileLists
from attncc.kernels.registry import facts_of
from attncc.problem import Problem
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule

BLOCKS = "input wanted: bool[{axes}]\nkeep if wanted[{index}, q_idx // 64, kv_idx // 64]"
STRIPES = "keep if (q_idx // 64 + kv_idx // 64) % 3 == 0"


def planned(lines: str, **settings: str | int) -> KernelPlan:
    variant = api.parse(f"attn 1\nvariant v {{\n{lines}\n}}\n").variant
    pass_name = str(settings.pop("pass_name", "forward"))
    chosen = tuple((name, (value,)) for name, value in settings.items())
    schedule = Schedule("s", "v", pass_name, "sm_90", chosen)
    dims = {"head_dim": 64, "value_head_dim": 64}
    return make_plan(variant, dtype="bf16", target="sm_90", pass_name=pass_name, schedule=schedule, **dims)


def test_unasked_where_the_test_of_a_tile_reads_tensors() -> None:
    by_head = BLOCKS.format(axes="head, _, _", index="h")
    assert facts_of(planned(by_head)).tile_lists and not facts_of(planned(by_head)).uses_tile_kind
    in_kernel = facts_of(planned(by_head, skip="in_kernel"))
    assert not in_kernel.tile_lists and in_kernel.uses_tile_kind
    assert not facts_of(planned(by_head, skip="never")).tile_lists
    assert not facts_of(planned(by_head, loop="kv_outer")).tile_lists
    assert not facts_of(planned(by_head, pass_name="decode")).tile_lists


def test_masks_of_positions_take_no_memory_unless_they_are_asked_to() -> None:
    assert not facts_of(planned(STRIPES)).tile_lists and facts_of(planned(STRIPES)).uses_tile_kind
    assert facts_of(planned(STRIPES, skip="lists")).tile_lists


@pytest.mark.parametrize(
    ("lines", "settings", "why"),
    [
        ("keep if q_idx >= kv_idx", {}, "loop bounds decide"),
        ("", {}, "no `keep` line"),
        (STRIPES, {"loop": "kv_outer"}, "kv_outer goes over tiles without lists"),
    ],
)
def test_nothing_to_list_is_an_error(lines: str, settings: dict[str, str], why: str) -> None:
    with pytest.raises(AttnccError, match=r"A408.*lists") as found:
        planned(lines, skip="lists", **settings)
    assert why in found.value.diagnostics[0].notes[0]


def test_how_long_lists_are() -> None:
    """Two bits a tile; for each head and sequence only where the mask differs."""
    problem = Problem(3, 8, 2, 1000, 5000, 64, 64)
    plan = planned(STRIPES, skip="lists", block_q=64, block_kv=64)
    lists = TileLists.of(plan, problem)
    assert (lists.batch, lists.heads, lists.q_blocks, lists.words) == (1, 1, 16, 3)
    assert lists.bytes == 16 * 3 * 8
    assert [lists.parts(warps) for warps in (1, 16, 40, 1000)] == [1, 1, 2, 3]
    by_head = planned(BLOCKS.format(axes="head, _, _", index="h"))
    assert (TileLists.of(by_head, problem).batch, TileLists.of(by_head, problem).heads) == (1, 8)
    by_batch = planned(BLOCKS.format(axes="batch, _, _", index="b"))
    assert (TileLists.of(by_batch, problem).batch, TileLists.of(by_batch, problem).heads) == (3, 1)
    packed = Problem(3, 8, 2, 1000, 5000, 64, 64, packed=True)
    assert TileLists.of(by_batch, packed).batch == 1
    assert TileLists.of(by_batch, packed).q_blocks == 1000 // by_batch.block_q + 3
