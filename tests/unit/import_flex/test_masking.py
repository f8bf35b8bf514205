from __future__ import annotations

import pytest

from tests.unit.import_flex.snippets import codes, lines, score  # noqa: F401

CAUSAL = "keep if q_idx >= kv_idx"

HIDDEN = [
    ("torch.where(q_idx >= kv_idx, score, -float('inf'))", [CAUSAL]),
    ("torch.where(q_idx < kv_idx, -math.inf, score * 2)", [CAUSAL, "score = score * 2"]),
    ("torch.where(q_idx >= kv_idx, torch.where(h > 1, score, -torch.inf), float('-inf'))", [CAUSAL, "keep if h > 1"]),
    ("torch.where(b > 0, torch.where(h > 1, score, -torch.inf), score)", ["keep if b <= 0 or h > 1"]),
    (
        "torch.where(b > 0, score * 2, torch.where(h > 1, -torch.inf, score))",
        ["let x = b > 0", "keep if x or h <= 1", "score = score * 2 if x else score"],
    ),
    ("score.masked_fill(kv_idx > q_idx, float('-inf'))", ["keep if kv_idx <= q_idx"]),
    ("score + torch.where(q_idx >= kv_idx, 0, -math.inf)", [CAUSAL]),
    ("torch.where(q_idx >= kv_idx, h * 0.5, -math.inf) + score", [CAUSAL, "score = h * 0.5 + score"]),
    ("torch.where(q_idx >= kv_idx, score, -torch.tensor(float('inf')))", [CAUSAL]),
    ("torch.where(score <= h, score, -math.inf)", ["score = score if score <= h else log(0.0)"]),
    (
        "torch.where(score <= h, torch.where(q_idx >= kv_idx, score, -math.inf), -math.inf)",
        [CAUSAL, "score = score if score <= h else log(0.0)"],
    ),
    (
        "torch.where(score > 1, torch.where(h > 1, score, -math.inf), score * 2)",
        ["score = (score if h > 1 else log(0.0)) if score > 1 else score * 2"],
    ),
]


@pytest.mark.parametrize(("python", "expected"), HIDDEN)
def test_masks_in_scores(lines, python: str, expected: list[str]) -> None:  # noqa: F811
    assert lines(score(python)) == expected


@pytest.mark.parametrize(
    "python",
    ["torch.tanh(torch.where(h > 1, score, -math.inf))", "-torch.where(h > 1, score, -math.inf)",
     "torch.where(h > 1, score, math.inf)", "torch.where(h > 1, score, -math.inf) * 0"],
)  # fmt: skip
def test_an_infinity_that_changes_is_no_mask(lines, python: str) -> None:  # noqa: F811
    assert codes(lines, score(python)) == ["A705"]


def later_line(change: str) -> str:
    return f"""
        def mod(score, b, h, q_idx, kv_idx):
            score = torch.where(q_idx >= kv_idx, score, -torch.inf)
            {change}
            return score
        """


def test_what_follows_may_add(lines) -> None:  # noqa: F811
    assert lines(later_line("score = score + h")) == [CAUSAL, "score = score + h"]
    assert lines(later_line("score = score - h * 0.5")) == [CAUSAL, "score = score - h * 0.5"]
    assert codes(lines, later_line("score = torch.exp(score)")) == ["A705"]
    assert codes(lines, later_line("score = score + torch.exp(score)")) == ["A705"]


def test_a_large_negative_number_stays_one(lines) -> None:  # noqa: F811
    assert lines(score("torch.where(h > 1, score, -1e9)")) == ["score = score if h > 1 else -1e9"]
    assert lines(score("torch.where(h > 1, score, torch.finfo(score.dtype).min)")) == [
        "score = score if h > 1 else -3.4028234663852886e+38"
    ]
