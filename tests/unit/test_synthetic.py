"""Random arrays fit their declarations, and are such that a test on them means something."""

from __future__ import annotations

import numpy as np
import pytest

from attncc import synthetic
from attncc.ir import Variant
from attncc.problem import Problem
from attncc.semantics.load import load
from attncc.source import SourceFile

DENSE = Problem(3, 8, 2, 50, 700, 64, 64)
PACKED = Problem(3, 8, 2, 50, 700, 64, 32, layout="bshd", packed=True)


def variant(lines: str) -> Variant:
    return load(SourceFile("drawn.attn", f"attn 1\nvariant drawn {{\n{lines}\n}}\n")).variants[0]


def draw(lines: str, problem: Problem = DENSE) -> dict[str, np.ndarray]:
    return synthetic.inputs(variant(lines), problem, np.random.default_rng(0))


def test_shapes_and_dtypes_follow_the_declaration() -> None:
    lines = """
        const n: int = 5
        input bias: bf16[batch, head, n + 1]
        input rows: i64[kv_head, q]
        input gate: bool[kv, _]
        input cap: f16
    """
    drawn = {name: (array.shape, str(array.dtype)) for name, array in draw(lines).items()}
    assert drawn == {
        "bias": ((3, 8, 6), "bfloat16"),
        "rows": ((2, 50), "int64"),
        "gate": ((700, synthetic.FREE_AXIS), "bool"),
        "cap": ((), "float16"),
    }


def test_packing_merges_batch_with_positions() -> None:
    lines = "input doc: i32[batch, pos]\ninput bias: f32[head, batch, q]\ninput slope: f32[batch, head]"
    assert {name: array.shape for name, array in draw(lines, PACKED).items()} == {
        "doc": (700,),
        "bias": (8, 50),
        "slope": (3, 8),
    }
    q, _, v = synthetic.qkv(PACKED, "bf16", np.random.default_rng(0))
    assert (q.shape, v.shape, str(q.dtype)) == ((50, 8, 64), (700, 2, 32), "bfloat16")


def test_nondecreasing_inputs_are() -> None:
    drawn = draw("input doc: i32[batch, pos] nondecreasing\ninput row: i64[q] nondecreasing")
    assert all((np.diff(array, axis=-1) >= 0).all() for array in drawn.values())
    assert 2 <= len(np.unique(drawn["doc"][0])) <= 30


@pytest.mark.parametrize(
    "condition", ["label[kv_idx] == label[q_pos]", "let own = label[q_pos]\nkeep if own == label[kv_idx]"]
)
def test_labels_agree_often_and_positions_spread(condition: str) -> None:
    lines = "keep if " * (not condition.startswith("let")) + condition
    drawn = draw(f"input label: i32[pos]\ninput last: i32[q]\nkeep if kv_idx <= last[q_idx]\n{lines}")
    assert len(np.unique(drawn["label"])) == 3
    assert drawn["last"].max() > 600
    assert drawn["last"].min() >= 0


def test_block_numbers_name_blocks() -> None:
    drawn = draw("input chosen: i32[q, 4]\nkeep if any(chosen[q_idx, i] == kv_idx // 64 for i in range(4))")
    assert set(drawn["chosen"].ravel()) == set(range(700 // 64 + 1))


def test_indices_lie_within_tables() -> None:
    drawn = draw("input kind: i32[q, _]\ninput bias: f32[_]\nscore = score + bias[kind[q_idx, kv_idx]]")
    assert 32 < drawn["kind"].max() <= synthetic.FREE_AXIS


def test_flags_that_let_everything_through_are_seldom() -> None:
    drawn = draw("input open: bool[pos]\nkeep if open[q_pos] or open[kv_idx]")
    assert 0.1 < drawn["open"].mean() < 0.4


def test_nondecreasing_inputs_begin_segments_or_end_them() -> None:
    lines = "input first: i32[pos] nondecreasing\ninput end: i32[pos] nondecreasing"
    drawn = draw(f"{lines}\nkeep if first[q_pos] <= kv_idx < end[q_pos]", Problem(1, 1, 1, 700, 700, 64, 64))
    assert (drawn["first"] <= np.arange(700)).all()
    assert (drawn["end"] > np.arange(700)).all()


def test_packed_sequences_count_for_themselves() -> None:
    problem = PACKED.with_starts((0, 20, 20, 50), (0, 300, 300, 700))
    start = draw("input start: i32[batch, pos] nondecreasing\nkeep if kv_idx >= start[b, q_pos]", problem)["start"]
    assert start[[0, 300]].tolist() == [0, 0]
    assert (np.diff(start[:300]) >= 0).all()
    assert (np.diff(start[300:]) >= 0).all()
    assert start[300:].max() < 400


@pytest.mark.parametrize("lengths", [(0, 0), (0, 3), (3, 0), (1, 1)])
def test_the_smallest_calls(lengths: tuple[int, int]) -> None:
    lines = "input near: i32[batch, q]\ninput start: i32[batch, pos] nondecreasing\ninput n: i32\ninput live: bool[kv]"
    condition = "keep if near[b, q_idx] + start[b, q_pos] > n and live[kv_idx]"
    drawn = draw(f"{lines}\n{condition}", Problem(2, 1, 1, *lengths, 64, 64))
    assert drawn["start"].shape == (2, lengths[1])


def test_a_dropout_rate_is_a_rate() -> None:
    assert draw("input rate: f32\ndropout rate")["rate"] == 0.125


def test_seeds_repeat() -> None:
    lines = "input a: f32[head]"
    np.testing.assert_array_equal(draw(lines)["a"], draw(lines)["a"])
