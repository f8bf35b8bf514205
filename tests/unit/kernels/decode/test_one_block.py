"""Decode kernels of which a multiprocessor has one thread block: when they run, and what they are."""

from __future__ import annotations

from typing import Any

import pytest

from attncc.compiler import load_specification
from attncc.kernels.crossings import Chip
from attncc.kernels.kernel_names import kernel_name
from attncc.kernels.registry import facts_of
from attncc.package import prepare
from attncc.problem import Problem
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import OwnKernel
from attncc.schedule.plan_json import from_json, to_json

SPEC = "attn 1\nimport masks\nvariant mine { keep if causal() }\n"
USUAL, ONE_BLOCK = Configuration("bf16", 128, 128), Configuration("bf16", 128, 128, one_block=True)
MULTIPROCESSORS = 132


def own(batch: int, q_len: int, kv_len: int, spec: str = SPEC, **given: Any) -> tuple[OwnKernel, ...]:
    """Of 32 heads and 8 of keys."""
    plans = load_specification(spec, None, {})[0].plans(USUAL, "sm_90a")
    problem = Problem(batch, 32, 8, q_len, kv_len, 128, 128, **given)
    return facts_of(plans[1]).own_kernels(problem, Chip(MULTIPROCESSORS))


@pytest.mark.parametrize(
    ("call", "kernels"),
    [
        ((16, 1, 8192), [OwnKernel(0, one_block=True)]),  # 128 heads
        ((16, 8, 8192), [OwnKernel(17, one_block=True), OwnKernel(17)]),
        ((17, 1, 8192), []),  # 136: some multiprocessors would have two
        ((12, 1, 8192), [OwnKernel(0, one_block=True)]),  # 96
        ((11, 1, 8192), []),  # 88: too many would have none
        ((16, 1, 1024), [OwnKernel(0, one_block=True)]),
        ((16, 1, 960), []),  # few keys
        ((1, 1, 32768), []),
        ((1, 8, 32768), [OwnKernel(17)]),
        ((1, 9, 32768), [OwnKernel(17, one_block=True), OwnKernel(33), OwnKernel(17)]),  # 36 rows to merge
        ((1, 17, 32768), [OwnKernel(33), OwnKernel(17)]),  # two blocks of rows
        ((64, 16, 1024), [OwnKernel(33), OwnKernel(17)]),
    ],
)
def test_which_calls_have_it(call: tuple[int, int, int], kernels: list[OwnKernel]) -> None:
    assert list(own(*call)) == kernels


@pytest.mark.parametrize("given", [{"cached": True}, {"packed": True}])
def test_batches_that_may_be_ragged_have_none(given: dict[str, bool]) -> None:
    assert not any(item.one_block for rows in (1, 16) for item in own(16, rows, 8192, **given))


@pytest.mark.parametrize(("lines", "expected"), [("keep if kv_idx <= q_pos", False), ("", True)])
def test_positions_of_queries_may_make_batches_ragged(lines: str, expected: bool) -> None:
    """`q_offset` may be another for each sequence, and far from the end of the cache."""
    spec = f"attn 1\nvariant mine {{\n{lines}\n}}\n"
    assert any(item.one_block for item in own(16, 1, 8192, spec, has_offset=True)) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", True),
        ("keep if 0 <= q_pos - kv_idx < 4096", True),
        ("keep if 0 <= q_pos - kv_idx < 256", False),  # few keys, however many the cache has
        ("input end: i32[batch]\nkeep if kv_idx < end[b]", False),  # other tiles for each sequence
        ("keep if kv_idx >= 64 * h", False),  # and for each head
    ],
)
def test_what_the_mask_says_of_tiles(lines: str, expected: bool) -> None:
    spec = f"attn 1\nvariant mine {{\n{lines}\n}}\n"
    assert any(item.one_block for item in own(16, 1, 8192, spec)) == expected


def test_the_kernel() -> None:
    """As the usual one, with more keys a tile; else that."""
    (found,) = load_specification(SPEC, None, {})[0].candidates(ONE_BLOCK, "sm_90a")
    first, second, *_ = found.plans()
    usual = load_specification(SPEC, None, {})[0].candidates(USUAL, "sm_90a")[1].first
    assert first.tiles == "portable 64 x 128, 4 warps, 3 stages" and second.tiles == usual.tiles
    assert first.one_block and from_json(to_json(first)) == first
    assert kernel_name(first) == "mine_decode_bf16_d128_one_block_sm_90a"


@pytest.mark.parametrize(
    "asked", [{"head_dim": 64, "value_head_dim": 64}, {"paged": True}, {"kv_dtype": "e4m3"}, {"prefixed": True}]
)
def test_what_has_none(asked: dict[str, Any]) -> None:
    specification = load_specification(SPEC, None, {})[0]
    assert specification.candidates(ONE_BLOCK._replace(**asked), "sm_90a") == ()
    assert specification.candidates(ONE_BLOCK, "sm_80") == ()


def test_packages_have_all() -> None:
    (package,) = prepare(SPEC, archs=["sm_80", "sm_90a"], dtypes=["bf16"], head_dims=[64, 128], decode=True)
    ends = ("d128_one_block", "d128_rows17", "d128_rows17_one_block", "d64_rows17", "d64_rows33")
    names = [name for name in package.kernel_names if "_rows" in name or "_one_block" in name]
    assert sorted(names) == sorted(f"mine_decode_bf16_{end}_sm_90a" for end in ends)
