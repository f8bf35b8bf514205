"""What crossing points decide: which kernel runs a call of serving, and in how many parts."""

from __future__ import annotations

from typing import Any

import pytest

from attncc.compiler import load_specification
from attncc.kernels.crossings import NEVER, Chip, Crossings
from attncc.kernels.registry import facts_of, forward_facts
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.store.store import Configuration


def forms(problem: Problem, crossings: Crossings, dims: tuple[int, int] = (128, 128), spec: str = "full") -> str:
    """The pass that runs a call; `split` of the kernel that splits keys."""
    specification = load_specification(folder("specs") / f"{spec}.attn", None, {})[0]
    plan = specification.runs(Configuration("bf16", *dims), "sm_90a", problem, Chip(132, crossings))
    return "split" if plan.split else plan.pass_name


def passes(problem: Problem, crossings: Crossings, dims: tuple[int, int] = (128, 128), spec: str = "full") -> str:
    """The same without that kernel."""
    return forms(problem, crossings._replace(combine_keys=NEVER), dims, spec)


def test_forward_or_decode() -> None:
    """Half of the multiprocessors have a block of rows; two warpgroups of three take 1.1 times as long over a key as
    those of a full block of 128 rows."""
    problem = Problem(1, 33, 33, 128, 1000, 128, 128)
    assert passes(problem, Crossings(split_keys=600, row_block_cost=1)) == "decode"
    assert passes(problem, Crossings(split_keys=630, row_block_cost=1)) == "forward"
    assert passes(problem, Crossings(split_keys=600, row_block_cost=1.1)) == "forward"
    assert passes(problem, Crossings(split_keys=600, row_block_cost=1, uneven_split_keys=NEVER)) == "decode"


@pytest.mark.parametrize(
    ("heads", "kv_heads", "q_len", "kv_len", "wanted"),
    [
        (32, 8, 16, 32768, "decode"),  # rows for one of its blocks
        (32, 8, 17, 4096, "decode"),
        (32, 8, 17, 32768, "split"),
        (32, 8, 60, 8192, "split"),
        (28, 4, 64, 16384, "split"),
        (8, 8, 128, 1536, "decode"),
        (8, 8, 512, 512, "forward"),
        (32, 8, 512, 8192, "split"),  # a wave of 128 rows, of larger blocks too
        (32, 8, 4096, 16384, "forward"),
    ],
)
def test_chunks_behind_a_cache(heads: int, kv_heads: int, q_len: int, kv_len: int, wanted: str) -> None:
    """As an H200 has timed them (docs/notebook/2026-11-tune.md)."""
    assert forms(Problem(1, heads, kv_heads, q_len, kv_len, 128, 128), Crossings(), spec="causal") == wanted


@pytest.mark.parametrize(
    ("heads", "length", "head_dim", "spec", "wanted"),
    [
        (16, 1024, 128, "full", "split"),  # a wave, of 192 rows too, which takes longer
        (32, 2048, 128, "full", "forward"),  # four waves, of 192 rows three
        (16, 2048, 64, "full", "forward"),  # two waves, of 256 rows one
        (16, 2048, 64, "causal", "split"),
        (4, 4096, 128, "causal", "split"),
        (16, 2048, 256, "full", "forward"),  # whose blocks have 128 rows
    ],
)
def test_blocks_that_fill_the_gpu(heads: int, length: int, head_dim: int, spec: str, wanted: str) -> None:
    """Without a split, by blocks of 128 rows."""
    dims = head_dim, head_dim
    assert forms(Problem(1, heads, heads, length, length, *dims), Crossings(), dims, spec) == wanted


@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "q_len", "wanted"),
    [(1, 64, 8, 32, "decode"), (2, 32, 8, 20, "decode"), (1, 32, 32, 128, "decode"), (1, 64, 64, 128, "forward")],
)
def test_rows_of_a_group_are_packed(batch: int, heads: int, kv_heads: int, q_len: int, wanted: str) -> None:
    """The forward kernel has a thread block for each of 64 or 32 heads here, decode one for 64 rows of a key head."""
    assert passes(Problem(batch, heads, kv_heads, q_len, 8000, 128, 128), Crossings(), spec="causal") == wanted


def test_forward_or_decode_under_a_mask() -> None:
    """What counts is how many keys the mask lets a block of queries see, if that is known."""
    problem = Problem(1, 33, 33, 128, 4000, 128, 128)
    points = Crossings(split_keys=500, uneven_split_keys=NEVER, row_block_cost=1)
    assert passes(problem, points, spec="causal") == "decode"
    assert passes(problem, points._replace(split_keys=2500), spec="causal") == "forward"
    assert passes(problem, points, spec="sliding_window") == "decode"
    assert passes(problem, points._replace(split_keys=760), spec="sliding_window") == "forward"
    assert passes(problem, points._replace(split_keys=1, uneven_split_keys=1), spec="documents") == "forward"


@pytest.mark.parametrize(("q_len", "even"), [(128, True), (512, False)])
def test_blocks_that_see_few_keys_and_many(q_len: int, even: bool) -> None:
    """Of 1,024 keys the first of two blocks sees 15 of 16 tiles; the first of eight sees nine."""
    problem = Problem(1, 4, 4, q_len, 1024, 128, 128)
    points = Crossings(split_keys=1, uneven_split_keys=NEVER, row_block_cost=1)
    assert passes(problem, points, spec="causal") == ("decode" if even else "forward")
    points = points._replace(split_keys=NEVER, uneven_split_keys=1)
    assert passes(problem, points, spec="causal") == ("forward" if even else "decode")


def test_wide_heads() -> None:
    problem = Problem(4, 16, 1, 1, 5000, 576, 512)
    assert passes(problem, Crossings(wide_keys=5000), (576, 512)) == "forward"
    assert passes(problem, Crossings(wide_keys=5001), (576, 512)) == "decode"


def own_kernels(problem: Problem, **points: float) -> list[tuple[int, bool]]:
    specification = load_specification(folder("specs") / "full.attn", None, {})[0]
    plan = specification.plans(Configuration("bf16", 128, 128), "sm_90a")[1]
    found = facts_of(plan).own_kernels(problem, Chip(132, Crossings(**points)))
    return [(item.least_rows, item.one_block) for item in found]


def test_rows_and_blocks() -> None:
    """40 rows of 8 heads."""
    problem = Problem(1, 64, 8, 5, 8192, 128, 128)
    assert own_kernels(problem, one_block_rows=NEVER) == [(33, False), (17, False)]
    assert own_kernels(problem, one_block_rows=NEVER, more_rows=41) == [(17, False)]
    assert own_kernels(problem, one_block_rows=NEVER, more_rows=41, many_rows=41) == []
    assert own_kernels(problem, one_block_rows=40) == [(17, True), (33, False), (17, False)]
    shared = {"one_block_rows": NEVER, "many_rows": NEVER, "more_rows": NEVER}
    assert own_kernels(problem, one_block_share=8 / 132, one_block_keys=8192, **shared) == [(0, True)]
    assert own_kernels(problem, one_block_share=9 / 132, one_block_keys=8192, **shared) == []
    assert own_kernels(problem, one_block_share=8 / 132, one_block_keys=8193, **shared) == []


def test_parts_of_the_keys() -> None:
    """8 heads of 100 tiles: a part for each multiprocessor, or for each of two thread blocks."""
    problem = Problem(1, 32, 8, 1, 6400, 128, 128)
    specification = load_specification(folder("specs") / "full.attn", None, {})[0]
    facts: Any = forward_facts(specification.plans(Configuration("bf16", 128, 128), "sm_90a")[1])

    def parts(**points: float) -> int:
        (laid,) = facts.laid_out(problem, [100] * 8, Chip(132, Crossings(**points)), 264, alike=True)
        return int(laid.runs.parts)

    assert parts(short_run=3, short_run_rows=1) == 15
    assert parts(short_run=2, short_run_rows=NEVER) == 25
    assert parts(short_run=2, short_run_rows=1) == 25
    assert parts(short_run=NEVER) == 15
    assert parts(short_run=2, short_run_rows=NEVER, merged_rows=1) < 15
