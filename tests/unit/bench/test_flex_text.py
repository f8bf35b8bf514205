"""The functions that FlexAttention gets: read as a user would write them, and mean what the variant means."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.bench.flex_text import flex_text, inexpressible
from attncc.ir import Variant
from attncc.problem import Problem
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.synthetic import inputs

GROUPED = Problem(2, 8, 2, 64, 96, 16, 16)


def variant(lines: str) -> Variant:
    return load(SourceFile("mine.attn", f"attn 1\nimport masks\nvariant mine {{\n{lines}\n}}\n")).variants[0]


def text(lines: str, problem: Problem = GROUPED) -> list[str]:
    of = variant(lines)
    return flex_text(of, problem, inputs(of, problem, np.random.default_rng(0)), 0.25).text.splitlines()


def body(lines: str, problem: Problem = GROUPED) -> list[str]:
    return [line.strip() for line in text(lines, problem) if line.startswith(" " * 8)]


def test_documents_with_a_bias_read_as_one_would_write_them() -> None:
    assert text(
        "input doc: i32[batch, pos]\ninput slope: f32[head]\nkeep if causal()\nkeep if same_document(doc)\n"
        "let distance = q_pos - kv_idx\nscore = score - slope[h] * distance",
        Problem(2, 4, 4, 64, 64, 16, 16),
    ) == [
        "def mods(floats, doc, slope):",
        "    def mask_mod(b, h, q_idx, kv_idx):",
        "        return (q_idx >= kv_idx) & (doc[b, q_idx] == doc[b, kv_idx])",
        "",
        "    def score_mod(score, b, h, q_idx, kv_idx):",
        "        distance = q_idx - kv_idx",
        "        score = score - (slope[h] * (distance).to(floats))",
        "        return score",
        "",
        "    return mask_mod, score_mod",
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("keep if causal()", ["return (q_idx + 32) >= kv_idx"]),
        ("keep if kv_h > 0 or kv_idx < kv_len // 2", ["return ((h // 4) > 0) | (kv_idx < 48)"]),
        ("keep if q_len < kv_len", []),
        ("keep if q_len > kv_len", ["return kv_idx < 0"]),
        ("input n: i32[pos]\nkeep if n[clamp(kv_idx - 5, 0, 90)] > 0",
         ["return n[(kv_idx - 5).clamp(min=0).clamp(max=90)] > 0"]),
        ("input n: i32[pos]\nkeep if n[kv_idx - 5] > 0",
         ["t1 = kv_idx - 5", "return torch.where((t1 >= 0) & (t1 < 96), n[t1.clamp(0, 95)], 0) > 0"]),
        ("keep if (kv_idx - q_idx) * (kv_idx - q_idx) < 9", ["t1 = kv_idx - q_idx", "return (t1 * t1) < 9"]),
        ("keep if kv_idx % (q_idx - 3) == 0",
         ["return torch.where((q_idx - 3) == 0, 0, kv_idx % torch.where((q_idx - 3) == 0, 1, (q_idx - 3))) == 0"]),
        ("let twice = score * 2\nscore = score + 1\nscore = score + twice",
         ["twice = score * 2.0", "score = score + 1.0", "score = score + twice", "return score"]),
        ("input torch: f32[head]\ninput t1: f32[kv]\nlet lambda = torch[h] * 2\nscore = score + t1[kv_idx] * lambda",
         ["lambda_ = torch_[h] * 2.0", "score = score + (t1_[kv_idx] * lambda_)", "return score"]),
    ],
)  # fmt: skip
def test_lines(lines: str, expected: list[str]) -> None:
    assert body(lines) == expected


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("dropout 0.1", "dropout"),
        ("normalize sigmoid", "normalize sigmoid"),
        ("input logit: f32[head]\nsink logit", "sink"),
        ("keep if causal()", ""),
    ],
)
def test_what_flex_attention_cannot_express(lines: str, reason: str) -> None:
    assert reason in inexpressible(variant(lines))
    assert bool(reason) == bool(inexpressible(variant(lines)))


def test_what_the_mask_reads_is_told() -> None:
    of = variant("input live: bool[head]\ninput bias: f32[batch]\nkeep if live[h]\nscore = score + bias[b]")
    found = flex_text(of, GROUPED, inputs(of, GROUPED, np.random.default_rng(0)), 0.25)
    assert (found.inputs, found.has_mask, found.has_score) == (("live", "bias"), True, True)
    assert (found.by_batch, found.by_head) == (False, True)
