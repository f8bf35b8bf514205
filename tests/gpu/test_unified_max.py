"""Kernels with one maximum for all rows on a GPU: as exact as the accuracy rule asks, wherever scores lie."""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc.problem import Problem
from attncc.schedule.schedule import Schedule
from tests.devices import cuda
from tests.gpu.accuracy import judge

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

HEADS, LENGTH = 4, 1000
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CAUSAL = "keep if q_pos >= kv_idx"
LINES = {
    "cap": ("bf16", "score = 50 * tanh(score / 50)"),
    "cap in fp16": ("fp16", "score = 10 * tanh(score / 10)"),
    "sigmoid": ("bf16", "score = 20 * sigmoid(score)"),
    "clamp": ("fp16", "score = clamp(score, -9, 9)"),
}
SCALES = (0.02, 0.3, 3.0)  # of scores: near 0, between the bounds, mostly at one of them


def compiled(text: str, dtype: str, head_dim: int, row_max: str) -> Any:
    if cuda().target != "sm_90":
        pytest.skip("kernels with TMA and wgmma run on Hopper alone")
    schedule = Schedule(row_max, "v", "forward", "sm_90a", (("row_max", (row_max,)),))
    return attncc.compile(text, dtype=dtype, head_dim=head_dim, arch="sm_90a", schedule=schedule)


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


@pytest.mark.parametrize("head_dim", [128, 256])
@pytest.mark.parametrize("mask", ["", CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("which", LINES)
def test_as_exact_as_running_maxima(which: str, mask: str, head_dim: int) -> None:
    """By the accuracy rule, and 1.02 x the mean error of running maxima at most."""
    from tests.gpu.torch_oracle import Arguments, baseline, oracle

    dtype, line = LINES[which]
    text = f"attn 1\nvariant v {{\n{mask}\n{line}\n}}\n"
    kernels = {form: compiled(text, dtype, head_dim, form) for form in ("unified", "running")}
    for scale in SCALES:
        q, k, v = (normal(1, HEADS, LENGTH, head_dim, seed=part).to(DTYPES[dtype]) for part in range(3))
        call = Arguments(
            kernels["unified"].variant, Problem(1, HEADS, HEADS, LENGTH, LENGTH, head_dim, head_dim), q, k, v, {}, scale
        )
        exact, exact_lse = oracle(call)
        errors = {}
        for form, kernel in kernels.items():
            out, lse = kernel(q, k, v, scale=scale, return_lse=True)
            assert (lse - exact_lse).abs().max() < 1e-3
            errors[form] = (out.double() - exact).abs().mean()
            assert judge(out, baseline(call, DTYPES[dtype]), exact, dtype).holds
        assert errors["unified"] <= 1.02 * errors["running"]


def test_the_same_bits_in_each_call() -> None:
    kernel = compiled(f"attn 1\nvariant v {{\n{CAUSAL}\n{LINES['cap'][1]}\n}}\n", "bf16", 128, "unified")
    q, k, v = (normal(2, HEADS, LENGTH, 128, seed=part).bfloat16() for part in range(3))
    first = kernel(q, k, v)
    assert all(torch.equal(first, kernel(q, k, v)) for _ in range(5))


def test_a_single_key_is_the_output() -> None:
    """Bit for bit; rows without a key are 0, and their lse is -inf."""
    text = f"attn 1\nvariant v {{\nkeep if q_pos * 3 == kv_idx\n{LINES['cap'][1]}\n}}\n"
    kernel = compiled(text, "bf16", 128, "unified")
    q, k, v = (normal(1, HEADS, LENGTH, 128, seed=part).bfloat16() for part in range(3))
    out, lse = kernel(q, k, v, return_lse=True)
    kept = -(-LENGTH // 3)
    assert torch.equal(out[:, :, :kept], v[:, :, ::3])
    assert not out[:, :, kept:].any() and torch.isneginf(lse[:, :, kept:]).all()


def test_sinks_far_from_all_scores() -> None:
    from tests.gpu.torch_oracle import Arguments, oracle

    text = f"attn 1\nvariant v {{\ninput logit: f32[head]\n{CAUSAL}\n{LINES['cap'][1]}\nsink logit\n}}\n"
    kernel = compiled(text, "bf16", 128, "unified")
    q, k, v = (normal(1, HEADS, LENGTH, 128, seed=part).bfloat16() for part in range(3))
    logit = torch.tensor([60.0, 0.0, -60.0, 3.0], device="cuda")
    call = Arguments(kernel.variant, Problem(1, HEADS, HEADS, LENGTH, LENGTH, 128, 128), q, k, v, {"logit": logit})
    out, lse = kernel(q, k, v, logit=logit, return_lse=True)
    exact, exact_lse = oracle(call)
    assert (lse - exact_lse).abs().max() < 1e-3
    for head in range(HEADS):  # of the first nearly all weight is the sink's, so relative to itself
        assert (out[:, head] - exact[:, head]).abs().max() < 2e-2 * exact[:, head].abs().max()
