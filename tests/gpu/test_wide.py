"""Head dims above 256 on a GPU: prefill, MLA over caches and pages, latents loaded once. Three kernels are compiled."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import attncc
from attncc.diagnostics import AttnccError
from attncc.problem import Problem

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
LATENTS, ROW, ROOM, PAGE = 512, 576, 1024, 64
LENGTHS = [1000, 257, 16, 1, 0]


@cache
def compiled(spec: str, dtype: str, head_dim: int, value_head_dim: int) -> Any:
    return attncc.compile(spec, dtype=dtype, head_dim=head_dim, value_head_dim=value_head_dim)


def mla() -> Any:
    return compiled("mla_decode", "bf16", ROW, LATENTS)


def normal(*shape: int, dtype: str = "bf16", seed: int = 0) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").to(DTYPES[dtype])


def values_of(k: Any) -> Any:
    """The latents of a cache: a view."""
    return k[..., :LATENTS]


@pytest.mark.parametrize(
    ("spec", "dtype", "head_dims", "batch", "heads", "kv_heads", "q_len", "kv_len"),
    [
        ("mla_decode", "bf16", (ROW, LATENTS), 2, 16, 1, 1, 3000),
        ("mla_decode", "bf16", (ROW, LATENTS), 1, 128, 1, 2, 1500),
        ("mla_decode", "bf16", (ROW, LATENTS), 1, 2, 1, 100, 500),
        ("causal", "bf16", (512, 512), 1, 4, 2, 300, 300),
        ("causal", "bf16", (512, 512), 3, 4, 2, 1, 777),
        ("softcap", "fp16", (320, 320), 2, 4, 1, 130, 700),
    ],
)
def test_accuracy(  # noqa: PLR0917
    spec: str, dtype: str, head_dims: tuple[int, int], batch: int, heads: int, kv_heads: int, q_len: int, kv_len: int
) -> None:
    from tests.gpu.accuracy import check_forward
    from tests.gpu.torch_oracle import Arguments

    variant = attncc.parse(spec).variant
    problem = Problem(batch, heads, kv_heads, q_len, kv_len, *head_dims)
    q = normal(batch, heads, q_len, head_dims[0], dtype=dtype)
    k = normal(batch, kv_heads, kv_len, head_dims[0], dtype=dtype, seed=1)
    v = values_of(k) if spec == "mla_decode" else normal(batch, kv_heads, kv_len, head_dims[1], dtype=dtype, seed=2)
    out, lse = compiled(spec, dtype, *head_dims)(q, k, v, return_lse=True)
    check_forward(out, lse, Arguments(variant, problem, q, k, v, {}, seed=0), dtype)


def cached() -> tuple[Any, Any]:
    """A cache with NaN behind each sequence's last key, and the lengths."""
    k = normal(len(LENGTHS), 1, ROOM, ROW, seed=3)
    for b, length in enumerate(LENGTHS):
        k[b, :, length:] = torch.nan
    return k, torch.tensor(LENGTHS, dtype=torch.int32, device="cuda")


def in_pages(k: Any) -> tuple[Any, Any]:
    """The same in pages, in an order of their own, and the table."""
    blocks = ROOM // PAGE
    numbers = torch.randperm(len(LENGTHS) * blocks, generator=torch.Generator().manual_seed(0)).reshape(-1, blocks)
    pool = torch.empty(len(LENGTHS) * blocks, 1, PAGE, ROW, device="cuda", dtype=k.dtype)
    pool[numbers.flatten().cuda()] = k.reshape(-1, 1, PAGE, ROW)
    return pool, numbers.to("cuda", torch.int32)


@pytest.mark.parametrize(("heads", "q_len"), [(16, 1), (128, 1), (16, 70)])
def test_caches_and_pages(heads: int, q_len: int) -> None:
    """Latents that are loaded once have the bits of values that lie elsewhere; lengths of 0 and 1 are among them."""
    kernel, (k, lengths) = mla(), cached()
    q = normal(len(LENGTHS), heads, q_len, ROW)
    out = kernel(q, k, values_of(k), kv_lens=lengths)
    for b, length in enumerate(LENGTHS):
        own = k[b : b + 1, :, :length].contiguous()
        wanted = kernel(q[b : b + 1], own, values_of(own))
        torch.testing.assert_close(out[b : b + 1], wanted, rtol=1e-2, atol=1e-2)
    assert torch.equal(out, kernel(q, k, values_of(k).contiguous(), kv_lens=lengths))
    pool, table = in_pages(k)
    assert torch.equal(out, kernel(q, pool, values_of(pool), kv_lens=lengths, block_table=table))


def test_a_graph_serves_all_lengths() -> None:
    kernel, (k, lengths) = mla(), cached()
    k.nan_to_num_()
    q = normal(len(LENGTHS), 16, 1, ROW)
    kernel(q, k, values_of(k), kv_lens=lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(q, k, values_of(k), kv_lens=lengths)
    for seed in range(5):
        lengths.copy_(torch.randint(0, ROOM + 1, (len(LENGTHS),), generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(out, kernel(q, k, values_of(k), kv_lens=lengths))


def test_calls_that_want_gradients_are_refused() -> None:
    q, k = normal(1, 16, 1, ROW).requires_grad_(), normal(1, 1, 100, ROW)
    with pytest.raises(AttnccError, match="A652"):
        mla()(q, k, values_of(k))
    with torch.no_grad():
        mla()(q, k, values_of(k))
