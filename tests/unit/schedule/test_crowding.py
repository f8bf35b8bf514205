"""Tiles that nobody compiles for a variant, since their like has spilled; and those that fit, which stay."""

from __future__ import annotations

import re

import pytest

from attncc import api
from attncc.ir import Variant
from attncc.machine_code import settle
from attncc.schedule.choices import Build
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule, make_ladder, make_plan

WIDE, NARROW = (192, 96), (128, 64)  # of head dim 64
INPUTS = {
    "number": "i32[batch, kv]", "flag": "bool[batch, kv]", "table": "f32[_]", "each": "bool[batch, q, kv]",
    "start": "i32[batch, pos]", "first": "i32[batch, pos]", "end": "i32[batch, pos]",
}  # fmt: skip


def variant_of(lines: str) -> Variant:
    inputs = "".join(f"input {name}: {kind}\n" for name, kind in INPUTS.items() if re.search(rf"\b{name}\b", lines))
    return api.parse(f"attn 1\nimport masks\nvariant v {{\n{inputs}{lines}\n}}\n").variant


def tiles(lines: str, head_dim: int = 64, schedule: Schedule | None = None) -> tuple[int, int]:
    dims = {"head_dim": head_dim, "value_head_dim": head_dim}
    plan = make_plan(variant_of(lines), dtype="bf16", target="sm_90a", schedule=schedule, **dims)
    return plan.block_q, plan.block_kv


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("keep if flag[b, kv_idx]", WIDE),  # a flag of the key
        ("score = score + table[kv_idx]", WIDE),
        ("keep if causal()\nscore = score + table[abs(q_pos - kv_idx)] * num_heads / (8 * (h + 1))", WIDE),
        ("keep if number[b, kv_idx] > 3", NARROW),  # 8 bytes of spills
        ("keep if each[b, q_idx, kv_idx]", NARROW),  # 68
        ("score = score + table[number[b, kv_idx]]", NARROW),  # 8
    ],
)
def test_what_each_pair_is_asked_for(line: str, expected: tuple[int, int]) -> None:
    assert tiles(line) == expected


@pytest.mark.parametrize(
    ("lines", "head_dim", "expected"),
    [
        ("keep if causal()\ndropout 0.1", 128, (192, 64)),
        (
            "input p: i32[batch]\nkeep if q_pos >= kv_idx or kv_idx < p[b]\ndropout 0.1",
            128,
            (128, 128),
        ),  # eight registers less
        ("keep if causal()", 128, (192, 64)),
        ("keep if causal()\ndropout 0.1", 80, (128, 96)),
        ("dropout 0.1", 80, (192, 96)),
    ],
)
def test_dropout_under_a_mask(lines: str, head_dim: int, expected: tuple[int, int]) -> None:
    assert tiles(lines, head_dim) == expected


def test_what_the_rules_of_tiles_read() -> None:
    """Of ranges of keys each tile of rows has the extremes, which the producer holds."""
    own = "keep if start[b, q_pos] <= kv_idx <= q_pos"
    assert tiles(own, 128) == (192, 64)
    assert tiles(f"{own} or key_range(first, end)", 128) == (128, 96)
    assert tiles(f"{own} or key_range(first, end)", 256) == (128, 32)  # 96 bytes of spills with 48 keys
    assert tiles("keep if q_pos - 64 <= kv_idx <= q_pos or key_range(first, end)", 256) == (128, 48)


CHOSEN = """
input chosen: i32[batch, head, _, {0}]
input size: i32[_]
let q_tile = q_idx // 64
keep if any(chosen[b, h, q_tile, i] == kv_idx // 64 for i in range({0}))
keep if kv_idx % 64 < size[kv_idx // 64]"""


@pytest.mark.parametrize(("count", "expected"), [(7, (128, 32)), (8, (64, 16))])
def test_what_one_bound_reads(count: int, expected: tuple[int, int]) -> None:
    """Three entries for each chosen tile of keys, all of them held; 16 bytes of spills with 24."""
    assert tiles(CHOSEN.format(count), 256) == expected


MORTON = """
let q_x = sum((q_pos >> 2 * i & 1) << i for i in range({0}))
let q_y = sum((q_pos >> 2 * i + 1 & 1) << i for i in range({0}))
let kv_x = sum((kv_idx >> 2 * i & 1) << i for i in range({0}))
let kv_y = sum((kv_idx >> 2 * i + 1 & 1) << i for i in range({0}))
keep if neighborhood(q_x, kv_x, 1 << {0}, 6, 6)
keep if neighborhood(q_y, kv_y, 1 << {0}, 6, 6)"""


@pytest.mark.parametrize(
    ("bits", "head_dim", "expected"),
    [(4, 64, WIDE), (5, 64, NARROW), (4, 256, (128, 48)), (5, 256, (128, 32)), (5, 128, (128, 96))],
)
def test_what_tests_of_pairs_weigh(bits: int, head_dim: int, expected: tuple[int, int]) -> None:
    """Those of five bits spilled 24 bytes at D64 and 12 at D256."""
    assert tiles(MORTON.format(bits), head_dim) == expected


DOCUMENTS = "input number: i32[batch, pos] nondecreasing\n"


@pytest.mark.parametrize(
    ("line", "target", "block_kv"),
    [
        ("keep if number[b, q_pos] == number[b, kv_idx]", "sm_100", 48),  # 8 bytes of spills
        ("keep if number[b, q_pos] == number[b, kv_idx]", "sm_90", 64),
        ("keep if causal()", "sm_100", 64),
        ("", "sm_100", 48),  # 16 bytes
        ("", "sm_90", 64),
    ],
)
def test_what_a_mask_looks_up_forward(line: str, target: str, block_kv: int) -> None:
    variant = api.parse(f"attn 1\nimport masks\nvariant v {{\n{DOCUMENTS * ('number' in line)}{line}\n}}\n").variant
    plan = make_ladder(variant, Build("forward", target, "bf16", 128, 128)).first
    assert (plan.family, plan.block_q, plan.block_kv) == ("portable", 128, block_kv)


def test_sums_of_fp32_fit() -> None:
    """At 168 registers a thread, that of three blocks to a multiprocessor, this spilled 20 bytes even at 32 keys."""
    variant = api.parse(
        "attn 1\nimport masks\nvariant v {\nkeep if 0 <= q_pos - kv_idx <= 96 and (q_pos - kv_idx) % 8 == 0\n}\n"
    ).variant
    assert not settle(make_ladder(variant, Build("forward", "sm_120", "fp32", 64, 64))).rejected


PLAIN, THRIFTY = (f"hopper 64 x 128, 8 warps, 2 stages{rest}" for rest in ("", ", thrifty"))
PORTABLE = "portable 16 x 64, 4 warps, 2 stages"
COUNTED = (
    "input listed: i32[batch, q, {0}]\n"
    "score = score + sum(1 if listed[b, q_idx, i] == kv_idx else 0 for i in range({0}))"
)
SUM = "input each: f32[batch, q, _, {0}]\nscore = score + sum(each[b, q_idx, kv_idx, i] for i in range({0}))"


@pytest.mark.parametrize(
    ("lines", "count", "head_dim", "expected"),
    [
        (COUNTED, 7, 64, PLAIN),
        (COUNTED, 8, 64, THRIFTY),  # 80 bytes of spills in all of the registers
        (COUNTED, 24, 64, THRIFTY),
        (COUNTED, 3, 128, PLAIN),
        (COUNTED, 4, 128, THRIFTY),  # 12
        (COUNTED, 16, 128, PORTABLE),  # 240 even so
        (SUM, 6, 128, PLAIN),
        (SUM, 7, 128, THRIFTY),  # 88
        (SUM, 11, 128, PORTABLE),  # 96 even so
        (SUM, 11, 64, PLAIN),
    ],
)
def test_entries_of_rows_and_pairs_backward(lines: str, count: int, head_dim: int, expected: str) -> None:
    variant = api.parse(f"attn 1\nvariant v {{\n{lines.format(count)}\n}}\n").variant
    ladder = make_ladder(variant, Build("backward", "sm_90a", "bf16", head_dim, head_dim))
    assert ladder.first.tiles == expected


SHARED = "hopper 64 x 64, 8 warps, 2 stages"
SORTED = "input sorted: i32[batch, pos] nondecreasing\n"
LEARNED = "input slopes: f32[head, 64] learnable\nscore = score + slopes[h, {}]"


def first_backward(lines: str, head_dim: int, value_head_dim: int = 0, dtype: str = "bf16") -> str:
    build = Build("backward", "sm_90a", dtype, head_dim, value_head_dim or head_dim)
    return make_ladder(variant_of(lines), build).first.tiles


@pytest.mark.parametrize(
    ("lines", "halved", "shared"),
    [
        ("keep if number[b, kv_idx] > 3", True, True),
        ("keep if kv_idx <= q_pos and number[b, kv_idx] > 3", True, False),  # 16 bytes of spills at D256
        ("keep if kv_idx <= q_pos and flag[b, kv_idx]", True, False),  # 16
        ("keep if kv_idx <= q_pos and kv_idx < end[b, q_pos]", True, True),
        ("keep if each[b, q_idx, kv_idx]", False, False),  # 86 at D128, 92 at D256
        (SORTED + "keep if sorted[b, q_pos] == sorted[b, kv_idx]", True, True),
        (SORTED + "keep if causal() and sorted[b, q_pos] == sorted[b, kv_idx]", True, False),  # 40
        ("score = tanh(score) * sigmoid(score)", True, True),
        ("score = score / 2 * (1 + erf(score / sqrt(2)))", False, False),  # 28 and 32
    ],
)
def test_what_owners_have_registers_for(lines: str, halved: bool, shared: bool) -> None:
    """Of two that hold dK and dV of 64 keys each, and two that share those of 64, where columns are many."""
    assert (first_backward(lines, 128) == PLAIN) == halved
    assert (first_backward(lines, 256) == SHARED) == shared


@pytest.mark.parametrize(
    ("lines", "fits"),
    [
        ("keep if end[b, q_pos] == end[b, kv_idx]", True),  # 16 entries for a tile, which give four ids
        ("keep if kv_idx <= q_pos and end[b, kv_idx] <= end[b, q_pos]", False),  # 92 bytes of spills
        (SORTED + "keep if kv_idx >= sorted[b, q_pos]", False),  # 4; with `causal()` 46
        (SORTED + "keep if kv_idx <= q_pos and kv_idx < sorted[b, q_pos]", True),
        (MORTON.format(4), True),
        (MORTON.format(5), False),  # 12
    ],
)
def test_what_a_backward_producer_has_registers_for(lines: str, fits: bool) -> None:
    assert (first_backward(lines, 128) == PLAIN) == fits


@pytest.mark.parametrize(("place", "fits"), [("q_pos - kv_idx", True), ("min(abs(q_pos - kv_idx), 63)", False)])
def test_places_of_learnable_inputs(place: str, fits: bool) -> None:
    """Pairs add to what they read: 16 bytes of spills where the place takes some computing."""
    assert (first_backward(LEARNED.format(place), 128) == PLAIN) == fits


def test_head_dims_with_room() -> None:
    """There are registers left, or with half a panel of columns not enough is known."""
    lines = "keep if each[b, q_idx, kv_idx]"
    assert first_backward(lines, 192) == first_backward(lines, 256, 128) == SHARED
    assert first_backward(lines, 112) == PLAIN
    assert first_backward(lines, 128, dtype="fp16") == THRIFTY


@pytest.mark.parametrize(
    ("lines", "head_dim", "target", "keys"),
    [
        ("", 256, "sm_80", 16),  # 12 bytes of spills with 32
        ("", 256, "sm_90a", 16),
        ("", 256, "sm_100", 32),
        ("", 192, "sm_80", 32),
        ("normalize none", 256, "sm_80", 32),
        ("normalize none\nkeep if causal()", 256, "sm_80", 16),
    ],
)
def test_dq_of_many_columns_in_fp32(lines: str, head_dim: int, target: str, keys: int) -> None:
    ladder = make_ladder(variant_of(lines), Build("backward_dq", target, "fp32", head_dim, head_dim))
    assert ladder.first.block_kv == keys


def test_a_schedule_gets_what_it_names() -> None:
    named = Schedule("mine", "v", "forward", "sm_90a", (("block_q", (192,)), ("block_kv", (96,))))
    assert tiles("keep if number[b, kv_idx] > 3", schedule=named) == WIDE


def test_a_build_says_what_it_passed_by() -> None:
    variant = api.parse("attn 1\nvariant v {\ninput number: i32[batch, kv]\nkeep if number[b, kv_idx] > 3\n}\n").variant
    ladder = make_ladder(variant, Build("forward", "sm_90a", "bf16", 64, 64))
    passed_by = ladder.refused_above(ladder.first)
    assert [why for tiles, why in passed_by.items() if " 192 x 96," in tiles and "not compiled" in why], passed_by


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_what_masks_read_backward(target: str) -> None:
    """Of portable kernels those that are thrifty are compiled at once where a mask reads many entries, only there; and
    dQ is made in tiles of few keys."""

    def rungs(count: int, head_dim: int, pass_name: str = "backward") -> list[KernelPlan]:
        keep = f"keep if any(names[b, q_idx, i] == kv_idx for i in range({count}))"
        variant = api.parse(f"attn 1\nvariant v {{\ninput names: i32[batch, q, {count}]\n{keep}\n}}\n").variant
        ladder = make_ladder(variant, Build(pass_name, target, "bf16", head_dim, head_dim))
        return [plan for plan in ladder.plans() if plan.family == "portable"]

    assert not rungs(16, 128)[0].thrifty and not rungs(17, 64)[0].thrifty
    assert rungs(17, 128) and all(plan.thrifty for plan in rungs(17, 128))
    assert [rungs(count, 64, "backward_dq")[0].block_kv for count in (16, 17)] == [64, 16]
    *others, last = rungs(16, 64, "backward_dq")
    assert last.thrifty and not any(plan.thrifty for plan in others)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_long_lines_backward(head_dim: int) -> None:
    """Code for all pairs of a lane at once would take two to three seconds to compile."""

    def first(count: int) -> KernelPlan:
        variant = api.parse(f"attn 1\nvariant v {{\n{SUM.format(count)}\n}}\n").variant
        return make_ladder(variant, Build("backward", "sm_80", "bf16", head_dim, head_dim)).first

    assert not first(11).thrifty and first(12).thrifty


@pytest.mark.parametrize(("line", "keys"), [("sin(cos(score))", 32), ("sin(score)", 64)])
def test_long_slopes(line: str, keys: int) -> None:
    """The same of dQ, whose code has the lines' slope too."""
    variant = api.parse(f"attn 1\nvariant v {{\nscore = {line}\n}}\n").variant
    assert make_ladder(variant, Build("backward_dq", "sm_80", "bf16", 64, 64)).first.block_kv == keys


def test_crowded_tiles_where_there_are_no_others() -> None:
    """The schedule forbids the portable family."""
    variant = api.parse(f"attn 1\nvariant v {{\n{COUNTED.format(16)}\n}}\n").variant
    named = Schedule("mine", "v", "backward", "sm_90a", (("family", ("hopper",)),))
    plans = list(make_ladder(variant, Build("backward", "sm_90a", "bf16", 128, 128), named).plans())
    assert [plan.family for plan in plans] == ["hopper", "hopper"]
    assert [(plan.block_kv, plan.thrifty) for plan in plans] == [(128, False), (128, True)]
