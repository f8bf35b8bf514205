"""Which score lines may bring scores down, and which kernels are made for it."""

from __future__ import annotations

from math import inf

import pytest

from attncc import api
from attncc.analysis.score.lowest import lowest, may_be_low
from attncc.codegen.render import render
from attncc.ir import Variant
from attncc.kernels.candidates import make_plan
from attncc.kernels.registry import forward_facts
from attncc.resources import folder

LOWEST = {
    "score = score": 0,
    "score = 1000 * score / 3": 0,
    "score = score * x": 0,
    "score = score / x": 0,
    "score = x * tanh(score / x)": 0,
    "score = score * log(1.0 + q_pos)": 0,
    "score = score * abs(score)": 0,
    "score = 50 * tanh((score - x) / 50)": -50,
    "score = 50 * tanh(score / 50) - 3 * sqrt(4.0)": -6,
    "score = -20 * sigmoid(score)": -20,
    "score = max(score - 3 * kv_idx, -30)": -30,
    "score = score - min(0.5 * abs(q_pos - kv_idx), 8)": -8,
    "score = score if q_pos >= kv_idx else log(0.0)": 0,
    "score = score + (0.0 if kv_idx > 3 else log(0.0))": 0,
    "score = score if q_pos >= kv_idx else -1e9": -1e9,
    "score = score if score > -1 else -1e9": -1e9,
    "score = score - (0 if near else 100)": -100,
    "score = -1e9 * sigmoid(-100 * (score + 1))": -1e9,
    "score = score - x": -inf,
    "score = score + bias[kv_idx]": -inf,
    "score = score - sqrt(x)": -inf,
    "score = score - exp(score)": -inf,
    "score = score + log(x)": -inf,
    "score = 3 / (score - 1) * x": -inf,
    "score = score - kv_idx + x - x": -inf,
}
DECLARED = {"x": "input x: f32", "bias[": "input bias: f32[pos]", "near": "let near = q_pos >= kv_idx"}


def variant_of(line: str) -> Variant:
    declared = "\n".join(text for name, text in DECLARED.items() if name in line.replace("max", "").replace("exp", ""))
    return api.parse(f"attn 1\nvariant v {{\n{declared}\n{line}\n}}\n").variant


@pytest.mark.filterwarnings("ignore::attncc.diagnostics.AttnccWarning")
@pytest.mark.parametrize("line", LOWEST)
def test_lowest(line: str) -> None:
    variant, wanted = variant_of(line), LOWEST[line]
    assert lowest(variant) == pytest.approx(wanted, rel=1e-6)
    assert may_be_low(variant) == (wanted < -64)


@pytest.mark.parametrize(
    ("spec", "low"),
    [("causal", False), ("softcap", False), ("doubled_score", False), ("sigmoid_attention", False), ("alibi", True)],
)
def test_normalizers_of_kernels(spec: str, low: bool) -> None:
    """Kernels whose scores no line brings down stay as they are. Another normalizer has no maxima."""
    variant = api.parse(folder("specs") / f"{spec}.attn").variant
    found = []
    for target, pass_name in (("sm_80", "forward"), ("sm_90a", "decode"), ("sm_90a", "forward")):
        plan = make_plan(variant, dtype="bf16", head_dim=64, value_head_dim=64, target=target, pass_name=pass_name)
        assert forward_facts(plan).scores_may_be_low == low
        found.append((forward_facts(plan).normalizer, "low_scores_step" in render(plan).text))
    if spec == "sigmoid_attention":
        assert found == 3 * [("normalize_sigmoid", False)]
    else:
        portable = "low_scores_softmax" if low else "normalize_softmax"
        assert found == [(portable, False), (portable, False), ("stale_max_softmax", low)]
