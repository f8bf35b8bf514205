from __future__ import annotations

import pytest

from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_plan
from attncc.kernels.registry import facts_of
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule, from_ast
from attncc.semantics.load import Program, load
from attncc.source import SourceFile


def program(settings: str, lines: str = "", head: str = "s for v on sm_80") -> Program:
    text = f"attn 1\nimport masks\nvariant v {{\n{lines}\n}}\nschedule {head} {{\n{settings}\n}}\n"
    return load(SourceFile("specs/test.attn", text))


def schedule(settings: str, head: str = "s for v on sm_80") -> Schedule:
    return from_ast(program(settings, head=head).schedules[0])


def planned(settings: str = "", lines: str = "", head_dim: int = 64, **build: str) -> KernelPlan:
    checked = program(settings, lines)
    asked = {"dtype": "bf16", "target": "sm_80", **build}
    return make_plan(
        checked.variants[0],
        head_dim=head_dim,
        value_head_dim=head_dim,
        schedule=from_ast(checked.schedules[0]),
        dtype=asked["dtype"],
        target=asked["target"],
        pass_name=asked.get("pass_name", "forward"),
    )


def refused(settings: str, lines: str = "", head_dim: int = 64, **build: str) -> str:
    with pytest.raises(AttnccError) as caught:
        planned(settings, lines, head_dim, **build)
    return str(caught.value)


# -------------------------------------------------------------------- what is written


def test_every_knob() -> None:
    found = schedule(
        "loop = q_outer block_q = 128 block_kv = {64, 32} stages = 2 warps = 4 split_kv = auto skip = always"
    )
    assert (found.name, found.variant, found.pass_name, found.target) == ("s", "v", "forward", "sm_80")
    assert found.settings == (
        ("loop", ("q_outer",)), ("block_q", (128,)), ("block_kv", (64, 32)), ("stages", (2,)), ("warps", (4,)),
        ("split_kv", ("auto",)), ("skip", ("always",)),
    )  # fmt: skip
    assert found.chosen["block_kv"] == 64


def test_candidates_are_all_combinations() -> None:
    found = schedule("block_q = {64, 128} block_kv = {64, 32} warps = 4")
    values = [(item.chosen["block_q"], item.chosen["block_kv"], item.chosen["warps"]) for item in found.candidates()]
    assert values == [(64, 64, 4), (64, 32, 4), (128, 64, 4), (128, 32, 4)]


def test_the_pass() -> None:
    assert schedule("", head="s for v decode on sm_90").pass_name == "decode"


@pytest.mark.parametrize(
    ("settings", "code", "help_text"),
    [
        ("blok_q = 64", "A401", "did you mean `block_q`?"),
        ("tile = 64", "A401", "there are family, loop, block_q, block_kv, stages, warps, split_kv, skip"),
        ("loop = q_outr", "A402", "did you mean `q_outer`?"),
        ("stages = 0", "A402", "an int from 1 to 8"),
        ("stages = auto", "A402", "an int from 1 to 8"),
        ("split_kv = off", "A402", "`auto` or an int from 1 to 256"),
        ("block_kv = {64, 1024}", "A402", "`block_kv` can't be 1024"),
        ("warps = 4 warps = 8", "A404", "set here first"),
        ("warps = {4, 8, 4}", "A404", "4 stands twice"),
    ],
)
def test_bad_settings(settings: str, code: str, help_text: str) -> None:
    with pytest.raises(AttnccError) as caught:
        schedule(settings)
    assert [item.code for item in caught.value.diagnostics] == [code]
    assert help_text in str(caught.value)
    assert "--> specs/test.attn:7:" in str(caught.value)


def test_every_mistake_is_reported() -> None:
    with pytest.raises(AttnccError) as caught:
        schedule("blok_q = 64 stages = 9", head="s for v on sm_86")
    assert [item.code for item in caught.value.diagnostics] == ["A403", "A401", "A402"]


# -------------------------------------------------------------------- plans


def test_settings_win_and_the_rest_is_default() -> None:
    plan = planned("block_q = 64 block_kv = 32 warps = 4 stages = 2 split_kv = 3 skip = never")
    assert (plan.block_q, plan.block_kv, plan.warps, plan.stages, plan.split_kv, plan.skip) == (
        64,
        32,
        4,
        2,
        3,
        "never",
    )
    assert planned().loop == "q_outer" and planned().split_kv == 1 and planned().skip == "auto"


def test_only_decoding_splits_unasked() -> None:
    assert planned(pass_name="decode").split_kv is None
    assert planned("split_kv = auto").split_kv is None
    assert planned("split_kv = auto loop = kv_outer").split_kv == 1


@pytest.mark.parametrize("block_q", [16, 32, 48, 64, 96, 128, 256])
def test_warps_follow_block_q(block_q: int) -> None:
    plan = planned(f"block_q = {block_q} block_kv = 32")
    assert plan.block_q == block_q and block_q % (16 * plan.warps) == 0


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_block_q_follows_warps(warps: int) -> None:
    plan = planned(f"warps = {warps} block_kv = 32")
    assert plan.warps == warps and plan.block_q % (16 * warps) == 0


def test_stages_follow_the_shared_memory() -> None:
    assert planned("block_kv = 128 block_q = 64", head_dim=128, dtype="fp16").stages == 1


def test_a_variant_needs_no_schedule() -> None:
    for dtype in ("fp16", "bf16", "fp32", "fp64"):
        for head_dim in (16, 40, 64, 72, 128, 192, 256):
            for target in ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_120"):
                plan = make_plan(
                    program("").variants[0], dtype=dtype, head_dim=head_dim, value_head_dim=head_dim, target=target
                )
                assert plan.target == target


# -------------------------------------------------------------------- what can't be


def test_rows_must_divide_among_warps() -> None:
    text = refused("block_q = 96 warps = 4")
    assert "A405" in text and "block_q / warps = 96 / 4 = 24" in text


def test_keys_come_in_fragments() -> None:
    assert "choose a multiple of 16" in refused("block_kv = 40")
    assert "choose a multiple of 32" in refused("block_kv = 48", "dropout 0.5")


def test_shared_memory_shows_its_arithmetic() -> None:
    text = refused("block_q = 128 block_kv = 64 stages = 3", head_dim=128)
    assert "A406" in text
    assert "the tiles take 131072 bytes of shared memory; sm_80 lends a block 101376" in text
    assert "q: block_q 128 x head dim 128 x bytes 2 = 32768" in text
    assert "k: stages 3 x block_kv 64 x head dim 128 x bytes 2 = 49152" in text
    assert planned("block_q = 128 block_kv = 64 stages = 3", head_dim=128, target="sm_90").stages == 3


def test_registers_show_their_arithmetic() -> None:
    text = refused("block_q = 128 block_kv = 256 warps = 4 stages = 1", target="sm_90")
    assert "A407" in text and "about 368 registers a thread; sm_90 lends it 255" in text
    assert "score: 32 rows a warp x block_kv 256 / 32 lanes = 256" in text
    assert "out: 32 rows a warp x head dim 64 / 32 lanes = 64" in text
    text = refused("block_q = 512 block_kv = 64 warps = 16 stages = 1", target="sm_90")
    assert "sm_90 lends it 128" in text and "65536 / 512 threads" in text


def test_skip_always_needs_a_proof() -> None:
    text = refused("skip = always", "input table: i32[_]\nkeep if table[q_idx ^ kv_idx] > 0")
    assert "A408" in text and "skip = always" in text
    assert planned("skip = always", "keep if causal()").skip == "always"
    for keeps_all in ("", "keep if kv_idx >= 0"):
        assert "the mask keeps every pair" in refused("skip = always", keeps_all)
    for fine in ("keep if kv_idx * kv_idx % 7 < 3", "keep if kv_idx % 7 < 3"):
        assert "A408" in refused("skip = always", fine)
    assert "A408" in refused("skip = always", "input kept: bool[q, kv]\nkeep if kept[q_idx, kv_idx]")
    for skipping in (
        "keep if kv_idx * kv_idx < 100000000",
        "keep if kv_idx % 1024 < 256",
        "keep if q_idx // 128 % 2 == 0",
        "input doc: i32[batch, pos]\nkeep if doc[b, q_pos] == doc[b, kv_idx]",
        "input used: bool[head]\nkeep if used[h]",
        "keep if h % 2 == 0",
    ):
        assert planned("skip = always", skipping).skip == "always"
    blocked = "keep if q_idx // 64 == kv_idx // 64 or sin(kv_idx) > 0.5 or kv_idx < 64"
    assert "A408" in refused("skip = always", blocked)  # some tiles are FULL, none EMPTY


def test_kv_outer_stands_alone() -> None:
    assert "A409" in refused("loop = kv_outer split_kv = 4")
    assert "A409" in refused("loop = kv_outer", pass_name="decode")
    assert planned("loop = kv_outer").stages >= 1


def test_backward_passes_have_one_order_each() -> None:
    """Warps share the keys that a block owns, and the stages hold rows."""
    plan = planned("block_kv = 64 stages = 2", pass_name="backward")
    assert (plan.loop, plan.warps, plan.warp_rows) == ("kv_outer", 4, 16) and facts_of(plan).adds_dq
    assert plan.rules.q_bounds is not None
    assert planned("", pass_name="backward_dq").loop == "q_outer"
    assert "A409" in refused("loop = q_outer", pass_name="backward")
    assert "A409" in refused("loop = kv_outer", pass_name="backward_dq")
    assert "A409" in refused("split_kv = 2", pass_name="backward")
    assert "block_kv / warps" in refused("block_kv = 48 warps = 2", pass_name="backward")
    assert "A405" in refused("block_q = 24", pass_name="backward")


def test_head_dims_too_large_for_both_gradients_have_them_in_two_blocks() -> None:
    assert facts_of(planned("", pass_name="backward", head_dim=128, value_head_dim=128)).gradient_parts == 1
    assert facts_of(planned("", pass_name="backward", head_dim=256, value_head_dim=256)).gradient_parts == 2


@pytest.mark.parametrize("head_dim", [0, -8, 577])
def test_head_dims(head_dim: int) -> None:
    assert "A410" in refused("", head_dim=head_dim)


@pytest.mark.parametrize("build", [{"dtype": "fp32"}, {"pass_name": "backward"}])
def test_wide_head_dims_are_for_forward_passes_in_16_bits(build: dict[str, str]) -> None:
    text = refused("", head_dim=264, **build)
    assert "A410" in text and "from 1 to 256" in text and "in fp16 and bf16" in text


def test_builds_that_cannot_be() -> None:
    text = refused("", dtype="bf61", target="sm_81", pass_name="backwards")
    assert all(code in text for code in ("A403", "A410", "A411"))
    assert "did you mean `bf16`?" in text and "write `sm_80`, the target of such GPUs" in text
