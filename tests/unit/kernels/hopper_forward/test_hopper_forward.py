"""The family hopper in a schedule: what it may be set for, its tiles, its arithmetic."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from attncc.compiler import Specification
from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.kernels import legality
from attncc.kernels.candidates import Candidates, make_candidates, make_plan
from attncc.kernels.hopper_forward.facts import HopperForward
from attncc.kernels.hopper_forward.tiles import SHORT_LENGTHS, table
from attncc.kernels.registry import facts_of, kinds
from attncc.runtime.store.store import Configuration
from attncc.schedule.choice import Value
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.plan_json import from_json, to_json
from attncc.schedule.schedule import Schedule
from tests import plans
from tests.printed import variant

PLAIN = Variant("full")


def planned(
    of: Variant = PLAIN, dtype: str = "bf16", head_dim: int = 128, target: str = "sm_90a", pass_name: str = "forward",
    **settings: Value,
) -> KernelPlan:  # fmt: skip
    given = tuple((name, (value,)) for name, value in ({"family": "hopper"} | settings).items())
    schedule = Schedule("s", of.name, pass_name, target, given)
    dims = (head_dim, head_dim)
    return make_plan(
        of, dtype=dtype, head_dim=dims[0], value_head_dim=dims[1], target=target, pass_name=pass_name, schedule=schedule
    )


def refusal(code: str, **settings: Value) -> str:
    with pytest.raises(AttnccError) as caught:
        planned(**settings)  # type: ignore[arg-type]
    assert [item.code for item in caught.value.diagnostics] == [code]
    return str(caught.value)


@pytest.mark.parametrize(
    ("settings", "lacks"),
    [
        ({"target": "sm_90"}, "sm_90a alone"),
        ({"target": "sm_100"}, "sm_90a alone"),
        ({"dtype": "fp32"}, "16-bit operands"),
        ({"loop": "kv_outer"}, "hold O in registers"),
        ({"pass_name": "decode"}, "calls of few rows"),
    ],
)
def test_what_it_lacks(settings: dict[str, str], lacks: str) -> None:
    shown = refusal("A412", **settings)
    assert lacks in shown and "family = portable" in shown


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"block_q": 96}, "choose 64, 128, 192 or 256"),
        ({"block_q": 128, "warps": 4}, "`warps = 8`, or leave it out"),
        ({"warps": 2}, "choose 64, 128, 192 or 256"),
        ({"block_kv": 272}, "at most 256 columns"),
        ({"block_kv": 40}, "a multiple of 16"),
    ],
)
def test_tiles_that_wgmma_cannot(settings: dict[str, int], shown: str) -> None:
    assert shown in refusal("A405", **settings)


def test_the_arithmetic_is_shown() -> None:
    memory = refusal("A406", block_kv=128, stages=4)
    assert "k: stages 4 x block_kv 128 x head dim 128 x bytes 2 = 131072" in memory and "barriers: bytes" in memory
    registers = refusal("A407", block_q=192, block_kv=128)
    assert "score: 16 rows a warp x block_kv 128 / 32 lanes = 64" in registers
    assert "prob, 16 bits each: 32" in registers
    assert "limit: what 3 warpgroups get when the one that loads keeps 32" in registers


def test_settings_win() -> None:
    assert (planned().block_q, planned(block_q=128).block_q) == (192, 128)
    plan = planned(block_q=192, block_kv=64, head_dim=64)
    assert (plan.block_q, plan.warps, facts_of(plan).threads, plan.overlap) == (192, 12, 512, True)
    assert planned(warps=4).block_q == 64
    assert planned(block_kv=128, head_dim=192).stages == 1


def test_room_for_what_a_variant_computes() -> None:
    bias = variant("input at: i32[q, kv]\ninput bias: f32[_]\nscore = score + bias[at[q_idx, kv_idx]]")
    softcap = variant("score = 9 * tanh(score / 9)")
    documents = variant("input doc: i32[batch, pos]\nkeep if doc[b, q_pos] == doc[b, kv_idx]")
    assert planned(bias).block_kv < planned(softcap).block_kv
    assert planned(softcap).warps < planned().warps
    ahead = planned(variant("input bias: f32[kv]\nscore = score + bias[kv_idx]"))
    assert ahead.block_kv == planned(softcap).block_kv, "what is read ahead leaves registers"
    classifying, reading = HopperForward(planned(documents, skip="in_kernel")), HopperForward(planned(bias))
    assert classifying.producer_registers > reading.producer_registers


CAUSAL = variant("keep if q_pos >= kv_idx")


@pytest.mark.parametrize(("of", "early"), [(PLAIN, True), (CAUSAL, False)])
def test_wide_tiles_of_8_bits_take_the_registers(of: Variant, early: bool) -> None:
    """A producer with the fewest plans nothing. A mask leaves none to round P early."""
    facts = HopperForward(planned(of, dtype="e4m3", head_dim=256))
    assert (facts.plan.block_q, facts.plan.block_kv, facts.row_groups) == (128, 128, 1)
    assert (facts.producer_registers, facts.consumer_registers) == (24, 240)
    assert (facts.plans_ahead, facts.loading_warps, facts.rounds_early) == (True, 2, early)
    smaller = HopperForward(planned(of, dtype="e4m3", head_dim=256, block_kv=96))
    assert (smaller.plans_ahead, smaller.loading_warps, smaller.rounds_early) == (False, 1, True)


def test_short_calls_have_tiles_of_their_own() -> None:
    """With 8 bits at a head dim of 64, unless a schedule says anything, tiles are tested, or pairs need more."""

    def short(
        of: Variant, head_dim: int = 64, schedule: Schedule | None = None, dtype: str = "e4m3"
    ) -> Candidates | None:
        return make_candidates(of, Build("forward", "sm_90a", dtype, head_dim, head_dim), schedule).short

    for of in (PLAIN, CAUSAL):
        found = short(of)
        assert found is not None and found.build.lengths == SHORT_LENGTHS
        assert (found.first.block_q, found.first.block_kv) == (256, 64)
        assert make_plan(of, dtype="e4m3", head_dim=64, value_head_dim=64, target="sm_90a").block_q == 192
    assert short(PLAIN, 128) is None and short(PLAIN, dtype="bf16") is None
    assert short(LONG_SCORES) is None and short(DOCUMENTS) is None
    window = variant("keep if 0 <= q_pos - kv_idx < 1000")
    assert short(window) is None and planned(window, dtype="e4m3", head_dim=64).block_kv == 128
    assert short(PLAIN, schedule=Schedule("s", "full", "forward", "sm_90a", (("stages", (2,)),))) is None


@pytest.mark.parametrize(("settings", "own"), [((), True), ((("stages", (2,)),), False)], ids=["nothing", "stages"])
def test_a_schedule_that_sets_nothing_leaves_short_calls_their_tiles(settings: Any, own: bool) -> None:
    schedules = (Schedule("s", "full", "forward", "sm_90a", settings),)
    found = Specification(PLAIN, schedules, ("forward",)).candidates(Configuration("e4m3", 64, 64), "sm_90a")
    assert [item.build.lengths for item in found] == [None, *([SHORT_LENGTHS] if own else [])]


LONG_SCORES = variant("score = sin(cos(score)) + sin(b)")
DOCUMENTS = variant(
    "input doc_q: i32[batch, q]\n  input doc_k: i32[batch, kv]\n  keep if doc_q[b, q_idx] == doc_k[b, kv_idx]"
)


@pytest.mark.parametrize(
    ("of", "head_dim", "block_q", "block_kv"),
    [
        (PLAIN, 48, 256, 96),
        (PLAIN, 64, 256, 64),
        (PLAIN, 80, 256, 64),
        (PLAIN, 96, 256, 64),
        (LONG_SCORES, 48, 256, 64),
        (LONG_SCORES, 64, 256, 64),
        (LONG_SCORES, 96, 256, 64),
        (LONG_SCORES, 112, 128, 96),  # O leaves no room for four warpgroups
        (DOCUMENTS, 96, 128, 96),  # tiles are tested
    ],
)
def test_four_warpgroups_come_first_where_they_fit(of: Variant, head_dim: int, block_q: int, block_kv: int) -> None:
    plan = planned(of, head_dim=head_dim)
    assert (plan.block_q, plan.block_kv) == (block_q, block_kv)


@pytest.mark.parametrize(("declared", "block_q"), [("", 192), (" nondecreasing", 128)])
def test_ids_that_no_search_finds_take_large_tiles(declared: str, block_q: int) -> None:
    """Each tile is asked then, and few are left out."""
    of = variant(f"input group: i32[batch, pos]{declared}\nkeep if group[b, q_pos] == group[b, kv_idx]")
    assert planned(of, head_dim=64).block_q == block_q


def test_warpgroups_with_dropout_take_turns() -> None:
    """Where all have the same tiles: under a mask each passes by tiles of its own."""
    dropped, masked = variant("dropout 0.2"), variant("dropout 0.2\nkeep if q_pos >= kv_idx")
    assert HopperForward(planned(dropped)).ping_pong and not HopperForward(planned()).ping_pong
    assert not HopperForward(planned(masked, block_q=128, block_kv=128)).ping_pong
    assert not HopperForward(planned(dropped, block_q=192, block_kv=64)).ping_pong


def test_warpgroups_whose_tiles_take_unequally_long_take_turns() -> None:
    table = variant("input table: f32[9]\nscore = score + table[clamp(kv_idx - q_pos, -4, 4) + 4]")
    softcap = variant("score = 9 * tanh(score / 9)")
    assert HopperForward(planned(table)).ping_pong and not HopperForward(planned(softcap)).ping_pong


@pytest.mark.parametrize("head_dim", [16, 40, 64, 72, 96, 128, 192, 256])
@pytest.mark.parametrize("number", range(4))
def test_every_tile_is_legal(head_dim: int, number: int) -> None:
    tiles = table(head_dim, head_dim)[number]
    plan = planned(head_dim=head_dim, block_q=tiles.block_q, block_kv=tiles.block_kv, stages=tiles.stages)
    assert sum(legality.shared_memory(plan).values()) <= tiles.shared_bytes(head_dim, head_dim, 2)
    hopper = HopperForward(plan)
    assert hopper.producer_registers % 8 == hopper.consumer_registers % 8 == 0


@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("number", range(4))
def test_every_tile_of_8_bits_is_legal(head_dim: int, number: int) -> None:
    tiles = table(head_dim, head_dim, 1)[number]
    chosen = {"block_q": tiles.block_q, "block_kv": tiles.block_kv, "stages": tiles.stages}
    plan = planned(dtype="e4m3", head_dim=head_dim, **chosen)
    assert sum(legality.shared_memory(plan).values()) <= tiles.shared_bytes(head_dim, head_dim, 1)


def test_fp64_plans_of_the_executor_may_have_it() -> None:
    assert planned(dtype="fp64").family == "hopper"


def test_plans_go_to_json_and_back() -> None:
    plan = planned(plans.CAUSAL)
    assert from_json(to_json(plan)) == plan


def test_the_default() -> None:
    """Hopper wherever it has a kernel."""
    asked = list(
        product(("sm_80", "sm_90", "sm_90a"), ("bf16", "fp32"), ("q_outer", "kv_outer"), ("forward", "decode"))
    )
    asked += product(("sm_90", "sm_90a"), ("bf16", "fp32"), ("kv_outer",), ("backward", "backward_dq"))

    def first(target: str, dtype: str, loop: str, pass_name: str) -> str:
        return kinds(Build(pass_name, target, dtype, 64, 64), loop)[0]

    chosen = [item for item in asked if first(*item) == "hopper"]
    assert chosen == [("sm_90a", "bf16", "q_outer", "forward"), ("sm_90a", "bf16", "kv_outer", "backward")]


def test_a_schedule_for_sm_90_describes_portable_kernels() -> None:
    """It also serves sm_90a where there is none for it, and its tiles stay legal."""
    schedule = Schedule("s", "full", "forward", "sm_90", (("block_q", (128,)), ("warps", (4,))))
    build = {"dtype": "bf16", "target": "sm_90a"}
    plan = make_plan(PLAIN, head_dim=64, value_head_dim=64, schedule=schedule, **build)
    assert plan.family == "portable"
    assert make_plan(PLAIN, head_dim=64, value_head_dim=64, **build).family == "hopper"


def test_lines_of_rows_choose_the_tile() -> None:
    """Of 8 and 32 bits 128 keys; four warpgroups for 16, where O is narrow enough."""

    def tile(dtype: str, line: str) -> tuple[int, int]:
        plan = planned(variant(f"input x: {dtype}[q, kv]\n{line}"), head_dim=64)
        return plan.block_q, plan.block_kv

    assert tile("bf16", "score = score + x[q_idx, kv_idx]") == (256, 64)
    assert tile("f32", "score = score + x[q_idx, kv_idx]") == (128, 128)
    assert tile("bool", "keep if x[q_idx, kv_idx]") == (128, 128)
