"""Rows whose first tiles hold only very low finite scores, as masks of floats make them, on a GPU.

As on the emulator (tests/unit/templates/test_emulated_low_scores.py), beside torch in fp64 on scores of fp32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import attncc
from tests.devices import cuda
from tests.unit.templates.test_emulated_low_scores import BIASED, CASES, LEAST, LOW, biases

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn}
TOLERANCE = {"bf16": 1e-2, "fp16": 1.5e-3, "fp32": 4e-6, "e4m3": 0.12}
KERNELS = {  # dtype, head dims, family, rows, keys
    "portable": ("bf16", (64, 64), "portable", 200, 500),
    "hopper": ("bf16", (64, 64), "hopper", 200, 500),
    "hopper, fp16": ("fp16", (128, 128), "hopper", 200, 500),
    "fp32": ("fp32", (64, 64), "", 200, 500),
    "decode": ("bf16", (64, 64), "", 3, 5000),
    "fp32 decode": ("fp32", (64, 64), "", 3, 5000),
    "wide": ("bf16", (512, 512), "", 100, 500),
    "wide decode": ("bf16", (512, 512), "", 3, 3000),
    "e4m3": ("e4m3", (128, 128), "", 200, 500),
    "e4m3, bounded": ("e4m3", (256, 256), "", 200, 500),
}


@cache
def compiled(dtype: str, head_dims: tuple[int, int], family: str) -> Any:
    target = "sm_90a" if family == "hopper" else cuda().target
    schedule = f"schedule tested for biased on {target} {{ family = {family} }}\n" if family else ""
    return attncc.compile(
        BIASED + schedule,
        dtype=dtype,
        head_dim=head_dims[0],
        value_head_dim=head_dims[1],
        arch=target if family else None,
    )


def normal(*shape: int, seed: int) -> Any:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


def expected(q: Any, k: Any, v: Any, bias: Any) -> tuple[Any, Any]:
    """out and lse in fp64, from scores of fp32."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.float().double() for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    score = ((q @ k.mT * q.shape[-1] ** -0.5).float() + bias).double()
    return score.softmax(-1) @ v, score.logsumexp(-1)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str) -> None:
    dtype, head_dims, family, rows, keys = KERNELS[name]
    if (family == "hopper" or dtype == "e4m3") and cuda().target != "sm_90":
        pytest.skip("such kernels run on sm_90a alone")
    kernel, heads = compiled(dtype, head_dims, family), 4
    sizes = ((heads, rows, head_dims[0]), (2, keys, head_dims[0]), (2, keys, head_dims[1]))
    q, k, v = (normal(1, *size, seed=seed).to(DTYPES[dtype]) for seed, size in enumerate(sizes))
    case = (torch.arange(rows) + 3 * torch.arange(heads)[:, None]).cuda() % CASES
    for low in LOW:
        bias = torch.from_numpy(biases((heads, rows), low, keys)).cuda()
        out, lse = kernel(q, k, v, return_lse=True, bias=bias)
        exact, exact_lse = expected(q, k, v, bias)
        error = (out.double() - exact).abs().amax(-1)[0]
        allowed = torch.where((case == 2) | (case == 3), max(TOLERANCE[dtype], LEAST), TOLERANCE[dtype])
        wrong = ~(error <= allowed)
        assert not wrong.any(), (low, case[wrong].unique().tolist(), error[wrong].max().item())
        assert ((lse - exact_lse).abs() <= 1e-3 + 1e-6 * exact_lse.abs()).all(), low


@pytest.mark.filterwarnings("ignore::attncc.diagnostics.AttnccWarning")
@pytest.mark.parametrize("low", [-1e9, -1e30, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_masks_in_the_scores_of_flex_attention(dtype: Any, low: float) -> None:
    """Keys before the query, and those behind it: either way a kernel goes, some rows begin with low scores."""

    def before(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return torch.where(q_idx >= kv_idx, score, low)

    def behind(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return torch.where(q_idx <= kv_idx, score, low)

    q, k, v = (normal(1, 4, 400, 64, seed=seed).to(dtype) for seed in range(3))
    at = torch.arange(400, device="cuda")
    for mod, kept in ((before, at[:, None] >= at), (behind, at[:, None] <= at)):
        out = attncc.flex_attention(q, k, v, score_mod=mod)
        exact, _ = expected(q, k, v, torch.where(kept, 0.0, -torch.inf))
        assert (out.double() - exact).abs().max() < (1e-2 if dtype == torch.bfloat16 else 4e-6)
