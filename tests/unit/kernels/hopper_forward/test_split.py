"""The forward kernel for Hopper that splits keys: who has it, and how heads stand together in its blocks."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from attncc import api
from attncc.compiler import load_specification
from attncc.kernels.candidates import make_candidates
from attncc.kernels.crossings import Chip
from attncc.kernels.hopper_forward.facts import HopperForward
from attncc.kernels.registry import facts_of, has_own_kernel
from attncc.package.variant_package import prepare
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import SPLIT, Build, KernelPlan

CAUSAL = (folder("specs") / "causal.attn").read_text()
USUAL = Configuration("bf16", 128, 128)


def build(dtype: str = "bf16", target: str = "sm_90a", pass_name: str = "forward", **more: Any) -> Build:
    return Build(pass_name, target, dtype, 128, 128, **{**SPLIT._asdict(), **more})


def facts(text: str = CAUSAL, head_dim: int = 128) -> HopperForward:
    asked = Build("forward", "sm_90a", "bf16", head_dim, head_dim, **SPLIT._asdict())
    found = facts_of(make_candidates(api.parse(text).variant, asked).first)
    assert isinstance(found, HopperForward)
    return found


def test_who_has_it() -> None:
    assert has_own_kernel(build()) and has_own_kernel(build("fp16", paged=True))
    assert not has_own_kernel(build("e4m3")) and not has_own_kernel(build("fp32"))
    assert not has_own_kernel(build(target="sm_90")) and not has_own_kernel(build(pass_name="patches"))
    assert not has_own_kernel(build(prefixed=True)) and not has_own_kernel(build(kv_dtype="int8"))
    assert not has_own_kernel(build(split=False))


def test_variants_of_another_family_have_none() -> None:
    """Too long for Hopper's registers: their usual kernel is portable, whose calls have no such kernel."""
    specification, _ = load_specification(folder("specs") / "selected_attention.attn", None, {})
    assert next(item.first.family for item in specification.candidates(USUAL, "sm_90a")) == "portable"
    assert specification.candidates(USUAL._replace(**SPLIT._asdict()), "sm_90a") == ()


@pytest.mark.parametrize(("spec", "has"), [("prefix_lm", True), ("documents", False), ("token_window", False)])
def test_masks_of_which_nobody_knows_the_keys_have_none(spec: str, has: bool) -> None:
    """Inputs tell where a block of queries begins: no call would get it, so none is compiled."""
    specification, _ = load_specification(folder("specs") / f"{spec}.attn", None, {})
    found = specification.candidates(USUAL._replace(**SPLIT._asdict()), "sm_90a")
    assert [item.first.split for item in found] == [True] * has


@pytest.mark.parametrize("spec", ["causal", "full", "alibi", "softcap", "documents", "dilated_window"])
@pytest.mark.parametrize("head_dim", [40, 64, 96, 128, 192, 256])
def test_its_tiles(spec: str, head_dim: int) -> None:
    asked = Build("forward", "sm_90a", "bf16", head_dim, head_dim, **SPLIT._asdict())
    variant = load_specification(folder("specs") / f"{spec}.attn", None, {})[0].variant
    for plan in make_candidates(variant, asked).plans():
        if plan.family == "hopper":
            assert plan.block_q <= 128 and plan.split_kv is None and plan.split


@pytest.mark.parametrize(
    ("text", "packed"),
    [
        (CAUSAL, True),
        ("attn 1\nvariant v {\n    keep if q_pos >= kv_idx + h\n}\n", False),
        ("attn 1\nvariant v {\n    keep if q_pos >= kv_idx\n    dropout 0.1\n}\n", False),
        ("attn 1\nvariant v {\n    score = score + (h + 1) * (kv_idx - q_pos)\n}\n", False),
        ("attn 1\nvariant v {\n    score = score * (h + 1)\n}\n", True),
    ],
)
def test_whose_heads_stand_together(text: str, packed: bool) -> None:
    found = facts(text)
    assert found.packs_heads == packed
    assert found.row_heads(Problem(1, 8, 2, 30, 4000, 128, 128)) == (4 if packed else 1)
    assert bool(found.heads_in_rows(Problem(1, 8, 2, 30, 4000, 128, 128))) == packed


@pytest.mark.parametrize(
    ("group", "q_len", "wanted", "blocks"),
    [
        (1, 300, 1, 3),
        (4, 60, 4, 2),
        (3, 128, 1, 1),  # together a key head would have 4 blocks of 42 queries, alone three of 128
        (3, 60, 3, 2),
        (7, 64, 7, 4),
        (6, 100, 6, 5),
        (64, 3, 64, 2),
        (128, 3, 64, 2),
        (71, 5, 1, 1),
    ],
)
def test_how_many_heads_stand_together(group: int, q_len: int, wanted: int, blocks: int) -> None:
    """As many as make the fewest blocks."""
    problem, found = Problem(1, 2 * group, 2, q_len, 5000, 128, 128), facts()
    assert (found.row_heads(problem), found.q_blocks(problem)) == (wanted, blocks)
    assert found.heads(problem) == 2 * group // wanted


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64])
def test_slots(group: int) -> None:
    """The kernel's quotients, and blocks enough for each sequence of a packed batch, wherever it begins."""
    fields = facts().heads_in_rows(Problem(1, group, 1, 1, 5000, 128, 128))
    heads, inverse, each = fields["row_heads"], fields["row_heads_inverse"], fields["rows_each"]
    assert heads == group
    assert all(slot * inverse >> 16 == slot // heads for slot in range(65))
    queries = 2 * (64 // heads)  # of a block
    for start, length in product(range(0, 500, 7), range(1, 200, 11)):
        assert (start + length) * each // 128 + 1 - start * each // 128 >= -(-length // queries)


def test_what_a_schedule_sets_is_for_all_calls() -> None:
    """So chunks run decode then, where that beats one kernel that doesn't split."""
    problem, chip = Problem(1, 32, 8, 128, 8192, 128, 128), Chip(132)

    def runs(text: str) -> KernelPlan:
        return load_specification(text, None, {})[0].runs(USUAL, "sm_90a", problem, chip)

    assert runs(CAUSAL).split
    assert runs(CAUSAL + "\nschedule mine for causal on sm_90a { block_q = 128 }\n").pass_name == "decode"
    splits = runs(CAUSAL + "\nschedule mine for causal on sm_90a { split_kv = 4 }\n")
    assert not splits.split and splits.split_kv == 4


@pytest.mark.parametrize(
    ("schedule", "holds"),
    [
        ("", True),
        ("schedule mine for causal decode on sm_90a { split_kv = 4 }", True),
        ("schedule mine for causal on sm_90a { block_q = 128 }", False),
    ],
)
def test_packages_hold_it_beside_the_usual_kernel(schedule: str, holds: bool) -> None:
    """A schedule for forward that sets anything is for all forward calls."""
    (package,) = prepare(f"{CAUSAL}\n{schedule}\n", archs=("sm_90a",), dtypes=("bf16",), head_dims=(128,))
    names = [name for name in package.files() if name.endswith("_sm_90a.plan.json")]
    assert any("_split_" in name for name in names) == holds
    assert "causal_forward_bf16_d128_sm_90a.plan.json" in names
