"""Inputs that score lines and keep lines read at kv_idx, on a GPU: a lane reads several keys at once where they lie
together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import attncc  # noqa: E402

pytestmark = pytest.mark.gpu

LINES = {
    "bf16": "input x: bf16[head, q, kv]\nscore = score + x[h, q_idx, kv_idx]",
    "f32": "input x: f32[head, q, kv]\nscore = score + x[h, q_idx, kv_idx]",
    "bool": "input x: bool[head, q, kv]\nkeep if x[h, q_idx, kv_idx]",
    "keys": "input x: f32[batch, kv]\nscore = score + x[b, kv_idx]",
}
DTYPES = {"bf16": "bfloat16", "f32": "float32", "bool": "bool", "keys": "float32"}


def _input(kind: str, keys: int, rows: int, layout: str) -> Any:
    """Rows that are aligned and rows that begin anywhere."""
    rng = torch.Generator("cuda").manual_seed(3)
    width = keys + 3 if layout == "odd" else -(-keys // 16) * 16
    shape = (2, width) if kind == "keys" else (4, rows, width)
    x = torch.randn(shape, generator=rng, device="cuda")
    x = x > 0 if kind == "bool" else x.to(getattr(torch, DTYPES[kind]))
    return x[..., width - keys :] if layout == "odd" else x[..., :keys]


@pytest.mark.parametrize(("layout", "mask"), [("aligned", ""), ("odd", ""), ("aligned", "keep if q_pos >= kv_idx\n")])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("kind", list(LINES))
def test_lines_read_in_pieces(kind: str, head_dim: int, layout: str, mask: str) -> None:
    rows = keys = 711
    kernel = attncc.compile(f"attn 1\nvariant lines {{\n{mask}{LINES[kind]}\n}}\n", dtype="bf16", head_dim=head_dim)
    rng = torch.Generator("cuda").manual_seed(1)
    sizes = (4, rows), (2, keys), (2, keys)
    q, k, v = (torch.randn(2, *size, head_dim, generator=rng, device="cuda").bfloat16() for size in sizes)
    x = _input(kind, keys, rows, layout)
    out = kernel(q, k, v, x=x)
    bias = x if kind != "keys" else x[:, None, None]
    kept = torch.ones(rows, keys, dtype=torch.bool, device="cuda")
    kept = kept.tril() if mask else kept
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT * head_dim**-0.5
    scores = scores.where(bias, -torch.inf) if kind == "bool" else scores + bias.double()
    scores = scores.where(kept, -torch.inf)
    expected = scores.softmax(-1).nan_to_num(0) @ v.double().repeat_interleave(2, 1)
    np.testing.assert_allclose(out.double().cpu().numpy(), expected.cpu().numpy(), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("layout", ["aligned", "odd"])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_gradients_of_masks(head_dim: int, layout: str) -> None:
    """A lane asks about 16 keys of a row at once, or pair by pair."""
    rows = keys = 711
    kernel = attncc.compile(f"attn 1\nvariant lines {{\n{LINES['bool']}\n}}\n", dtype="bf16", head_dim=head_dim)
    rng = torch.Generator("cuda").manual_seed(1)
    q, dout = (torch.randn(2, 4, rows, head_dim, generator=rng, device="cuda").bfloat16() for _ in range(2))
    k, v = (torch.randn(2, 4, keys, head_dim, generator=rng, device="cuda").bfloat16() for _ in range(2))
    x = _input("bool", keys, rows, layout)
    out, lse = kernel(q, k, v, x=x, return_lse=True)
    grads = kernel.backward(dout, q, k, v, out, lse, x=x)
    exact = [item.double().requires_grad_() for item in (q, k, v)]
    scores = (exact[0] @ exact[1].mT * head_dim**-0.5).where(x, -torch.inf)
    (scores.softmax(-1) @ exact[2]).backward(dout.double())
    for found, item in zip((grads.dq, grads.dk, grads.dv), exact, strict=True):
        assert item.grad is not None
        assert float((found.double() - item.grad).norm() / item.grad.norm()) < 0.01
