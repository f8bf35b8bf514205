"""What depends on the distance of a pair alone."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.score.distances import by_distance
from attncc.evaluate import Environment, evaluate
from attncc.ir import Apply, Expr
from tests.printed import variant

INPUTS = "input slope: f32[head]\ninput table: f32[head, 64]\ninput ids: i32[batch, q]\ninput rows: f32[batch, q]\n"
VALUES = {
    "slope": np.array([0.3, 0.7]),
    "table": np.arange(128.0).reshape(2, 64),
    "ids": np.arange(40)[None] % 7,
    "rows": np.arange(40.0)[None],
}


def added(text: str) -> Expr:
    """What a score line adds."""
    value = variant(f"{INPUTS}score = score + ({text})").scores[-1].value
    assert isinstance(value, Apply) and value.op == "add"
    return value.args[1]


@pytest.mark.parametrize(
    "text",
    [
        "slope[h]",
        "slope[h] * (q_pos - kv_idx)",
        "table[h, clamp(kv_idx - q_pos, -8, 8) + 8]",
        "table[h, clamp(q_idx - kv_idx, -8, 8) + 8] * slope[h]",
        "table[h, min(abs(2 * kv_idx - q_pos * 2), 63)] - slope[h]",
        "table[h, min(max(-(q_pos - kv_idx - 3) // 4, 0), 63)]",
    ],
)
def test_pairs_that_are_as_far_from_each_other_share_it(text: str) -> None:
    expr = added(text)
    assert by_distance(expr)
    places = {"b": 0, "h": 1, "q_len": 40, "kv_len": 44}
    first, second = (
        evaluate(expr, Environment({**places, "q_idx": row, "q_pos": row + 4, "kv_idx": np.arange(20) + row}, VALUES))
        for row in (3, 11)
    )
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    "text",
    [
        "rows[b, q_idx]",
        "slope[h] * kv_idx",
        "table[h, min(kv_idx + q_pos, 63)]",
        "table[h, min(abs(2 * kv_idx - q_pos), 63)]",
        "table[h, min(abs(kv_idx * h - q_pos * h), 63)]",
        "table[h, min(abs(kv_idx - q_pos) + ids[b, q_idx], 63)]",
        "slope[h] * (kv_idx % 4 - q_pos % 4)",
    ],
)
def test_others_dont_or_it_cant_be_told(text: str) -> None:
    assert not by_distance(added(text))
