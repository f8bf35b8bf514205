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


def test_a_dropout_rate_is_a_rate() -> None:
    assert draw("input rate: f32\ndropout rate")["rate"] == 0.125


def test_seeds_repeat() -> None:
    lines = "input a: f32[head]"
    np.testing.assert_array_equal(draw(lines)["a"], draw(lines)["a"])
