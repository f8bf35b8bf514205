from __future__ import annotations

import pytest

from attncc import api
from attncc.diagnostics import AttnccError
from attncc.kernels import legality
from attncc.kernels.candidates import make_candidates
from attncc.kernels.hopper_backward.facts import HopperBackward
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.schedule import Schedule

FULL = "attn 1\nvariant full {\n}\n"
WINDOW = "attn 1\nvariant window {\n    keep if 0 <= q_pos - kv_idx < 1024\n}\n"
CAUSAL = "attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n"
SCORED = "attn 1\nvariant scored {\n    score = tanh(score)\n    dropout 0.1\n}\n"
MASKED = "attn 1\nvariant masked {\n    input doc: i32[pos]\n    keep if doc[q_pos] == doc[kv_idx]\n}\n"
LEARNED = "attn 1\nvariant learned {\n    input bias: f32[head] learnable\n    score = score * bias[h]\n}\n"
ADDED = LEARNED.replace("score * bias", "score + bias")


def plans(text: str, head_dims: tuple[int, int], *settings: tuple[str, int | str]) -> list[KernelPlan]:
    variant = api.parse(text).variant
    chosen = (("family", ("hopper",)), *((name, (value,)) for name, value in settings))
    schedule = Schedule("asked", variant.name, "backward", "sm_90a", chosen)
    return list(make_candidates(variant, Build("backward", "sm_90a", "bf16", *head_dims), schedule).plans())


@pytest.mark.parametrize(
    "head_dims", [(16, 16), (64, 64), (80, 80), (96, 96), (128, 128), (64, 128), (192, 128), (256, 256)]
)
def test_registers_are_those_of_a_multiprocessor_in_steps_of_eight(head_dims: tuple[int, int]) -> None:
    for plan in plans(FULL, head_dims):
        shares = HopperBackward(plan)
        counts = shares.consumer_registers, shares.dq_consumer_registers, shares.producer_registers
        assert 2 * counts[0] + counts[1] + counts[2] <= 512
        assert all(count % 8 == 0 and 24 <= count <= 240 for count in counts)
        assert sum(facts_of(plan).accumulators().values()) <= counts[0]


def test_blocks_of_keys_grow_where_registers_allow() -> None:
    dims = (64, 64), (128, 128)
    found = [[(plan.block_kv, plan.low_register) for plan in plans(FULL, each)] for each in dims]
    last = [(128, False), (128, True)]
    assert found == [[(256, False), *last], last]


def test_two_warpgroups_share_the_keys_of_a_block_that_cannot_be_halved() -> None:
    """Each has a gradient of theirs, as many registers as both gradients of half as many keys."""
    (plan,) = plans(FULL, (256, 256))
    shares, halved = HopperBackward(plan), HopperBackward(plans(FULL, (128, 128))[0])
    assert (plan.block_kv, shares.key_shares, shares.key_stages, halved.key_shares) == (64, 1, 1, 2)
    assert sum(shares.accumulators().values()) == sum(halved.accumulators().values())
    assert shares.spills_dscore_factors
    assert [HopperBackward(item).shares_keys for item in plans(SCORED, (64, 64), ("block_kv", 128))] == [False]


def test_thrift_saves_registers_and_is_never_the_first_guess() -> None:
    plain, low_register = map(HopperBackward, plans(MASKED, (128, 128)))
    assert (plain.parts, low_register.parts, low_register.score_step) == (1, 2, 1)
    spare = [shares.consumer_registers - sum(shares.accumulators().values()) for shares in (plain, low_register)]
    assert spare[0] < spare[1] and plain.producer_registers < low_register.producer_registers
    assert plain.plan.tiles != low_register.plan.tiles


def test_dq_is_made_in_slices_of_a_panel() -> None:
    assert [HopperBackward(plans(FULL, (size, size))[0]).dq_columns for size in (64, 80, 128)] == [64, 80, 64]


def test_when_lse_and_delta_join_the_products() -> None:
    plain, scored = (HopperBackward(plans(text, (64, 64))[0]) for text in (FULL, SCORED))
    assert plain.lse_first and plain.delta_first and not plain.spills_to_smem
    assert scored.lse_last and scored.delta_last


def test_what_waits_in_shared_memory_where_ds_is_a_multiple_by_another_number_than_p() -> None:
    """P, or that number where a consumer has 128 keys."""
    strips, one = (HopperBackward(plans(SCORED, (64, 64), ("block_kv", size))[0]) for size in (256, 128))
    assert strips.spills_dscore_factors
    assert one.spills_to_smem and not one.spills_dscore_factors


@pytest.mark.parametrize(
    ("text", "head_dims", "setting", "code"),
    [
        (FULL, (256, 256), (("block_kv", 128),), "A406"),
        (FULL, (240, 240), (), "A407"),
        (SCORED, (256, 256), (), "A405"),
        (ADDED, (256, 256), (), "A405"),
        (FULL, (64, 64), (("block_q", 128),), "A405"),
        (FULL, (64, 64), (("block_kv", 96),), "A405"),
        (FULL, (64, 64), (("stages", 1),), "A405"),
        (FULL, (128, 128), (("stages", 6),), "A406"),
        (LEARNED, (64, 64), (), "A412"),
    ],
)
def test_what_cannot_be(
    text: str, head_dims: tuple[int, int], setting: tuple[tuple[str, int | str], ...], code: str
) -> None:
    with pytest.raises(AttnccError) as raised:
        plans(text, head_dims, *setting)
    assert raised.value.diagnostics[0].code == code


def test_what_hopper_lacks_the_portable_family_has() -> None:
    variant = api.parse(LEARNED).variant
    candidates = make_candidates(variant, Build("backward", "sm_90a", "bf16", 64, 64))
    assert candidates.first.family == "portable"
    refused = candidates.refused_before(candidates.first)
    assert refused and all(
        "more than add to the score" in why and tiles.startswith("hopper") for tiles, why in refused.items()
    )


def test_what_is_added_to_the_score_may_be_learnable() -> None:
    assert facts_of(plans(ADDED, (64, 64))[0]).learns


def test_the_default() -> None:
    build = Build("backward", "sm_90a", "bf16", 128, 128)
    assert make_candidates(api.parse(FULL).variant, build).first.family == "hopper"


@pytest.mark.parametrize(
    ("text", "head_dim", "ahead"),
    [
        (CAUSAL, 64, True),
        (CAUSAL, 96, True),
        (CAUSAL, 128, False),  # in pairs
        (WINDOW, 128, True),
        (CAUSAL, 256, False),
        (FULL, 128, False),
        (SCORED, 128, False),
        (MASKED, 128, False),
        (CAUSAL.replace("}", "    scale 1 / kv_len\n}"), 128, False),
    ],
)
def test_blocks_are_claimed_ahead_where_there_is_room(text: str, head_dim: int, ahead: bool) -> None:
    plan = plans(text, (head_dim, head_dim))[0]
    assert HopperBackward(plan).plans_ahead == ahead
    assert sum(legality.shared_memory(plan).values()) <= 227 * 1024


@pytest.mark.parametrize(
    ("text", "head_dims", "pairs"),
    [
        (FULL, (128, 128), True),
        (FULL, (120, 64), True),
        (FULL, (96, 96), False),  # half of the columns is no panel
        (FULL, (64, 64), False),
        (FULL, (256, 256), False),
        (CAUSAL, (128, 128), True),
        (WINDOW, (128, 128), False),  # far fewer tiles, of which the other block has others
        (MASKED, (128, 128), False),
        (SCORED, (128, 128), False),
    ],
)
def test_whose_blocks_of_keys_are_pairs(text: str, head_dims: tuple[int, int], pairs: bool) -> None:
    """What they exchange takes the place of a second stage of keys."""
    plan = plans(text, head_dims)[0]
    memory = legality.shared_memory(plan)
    assert facts_of(plan).uses_clusters is ("k of the other block" in memory) is pairs
    assert not pairs or HopperBackward(plan).key_stages == 1
    assert sum(memory.values()) <= 227 * 1024
