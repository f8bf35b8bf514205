"""The cheap form of score lines: where it holds, where it doesn't, and where that changes from tile to tile."""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc.problem import Problem
from tests.devices import cuda
from tests.gpu.accuracy import judge

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

HEADS, LENGTH = 4, 1000
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

INPUTS = f"input slope: f32[head]\ninput rows: f32[batch, q]\ninput table: f32[head, 41]\ninput cap: f32[{HEADS}]"
CASES = {"bf16": ("bf16", 128, ""), "fp16, causal": ("fp16", 64, "keep if q_pos >= kv_idx")}
LINES = {
    "cap": "score = 30 * tanh(score / 30)",
    "cap that is an input": "score = cap[2] * tanh(score / cap[2])",
    "cap and ALiBi": "score = 30 * tanh(score / 30) - slope[h] * (q_pos - kv_idx)",
    "ALiBi": "score = score - slope[h] * (q_pos - kv_idx)",
    "Gaussian": "score = score - slope[h] / 8 * (q_pos - kv_idx) * (q_pos - kv_idx)",
    "Gaussian of a window's distance": "score = score - slope[h] * min(abs(q_pos - kv_idx), 60) * abs(q_pos - kv_idx)",
    "rows": "score = -2 * score + rows[b, q_idx] - slope[h]",
    "table": "score = score + table[h, clamp(kv_idx - q_pos, -20, 20) + 20]",
}


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


def drawn(lines: str) -> dict[str, Any]:
    """The inputs that the lines read, small slopes and a cap of 30."""
    slope = torch.tensor([0.5, 0.02, -0.01, 0.001], device="cuda")
    every = {"slope": slope, "rows": 3 * normal(1, LENGTH), "table": normal(HEADS, 41), "cap": torch.full((4,), 30.0)}
    return {name: value.cuda() for name, value in every.items() if f"{name}[" in lines}


def compiled(which: str, family: str, case: str) -> Any:
    dtype, head_dim, keep = CASES[case]
    target = "sm_90a" if family == "hopper" else cuda().target
    declared = "\n".join(line for line in INPUTS.splitlines() if f"{line.split()[1][:-1]}[" in LINES[which])
    text = f"attn 1\nvariant v {{\n{declared}\n{keep}\n{LINES[which]}\n}}\n"
    text += f"schedule tested for v on {target} {{ family = {family} }}\n"
    return attncc.compile(text, dtype=dtype, head_dim=head_dim, arch=target)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("which", LINES)
def test_scores_are_accurate(family: str, which: str, case: str) -> None:
    """By the accuracy rule, and logits to 1e-3: lse is off by no more than the worst of them."""
    from tests.gpu.torch_oracle import Arguments, baseline, oracle

    dtype, head_dim, _ = CASES[case]
    kernel, inputs = compiled(which, family, case), drawn(LINES[which])
    for growth in (1, 5, 12):  # of some keys: caps leave their cheap form at about 4
        q, k, v = (normal(1, HEADS, LENGTH, head_dim, seed=part).to(DTYPES[dtype]) for part in range(3))
        k[:, :, 300:340] *= growth
        problem = Problem(1, HEADS, HEADS, LENGTH, LENGTH, head_dim, head_dim)
        call = Arguments(kernel.variant, problem, q, k, v, inputs)
        out, lse = kernel(q, k, v, return_lse=True, **inputs)
        exact, exact_lse = oracle(call)
        assert (lse - exact_lse).abs().max() < 1e-3
        assert judge(out, baseline(call, DTYPES[dtype]), exact, dtype).holds
