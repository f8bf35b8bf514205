"""Calls whose sequences share a prefix, on a GPU: against the same call without `shared_prefix`, and fp64.

Where it is shared, the rows of all sequences but the first hold NaN, as far as whole tiles go.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import pytest

import attncc
from attncc import reference
from attncc.reference.accuracy import accuracy
from tests.devices import cuda

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

HEADS, KV_HEADS, HEAD_DIM, PREFIX, ROOM, PAGE = 8, 2, 128, 1000, 1536, 16
LENGTHS = (1003, 1536, 1100, 1290, 1008)
TILES = PREFIX // 128 * 128

MASKS = {
    "full": "",
    "causal": "keep if q_pos >= kv_idx",
    "window": "keep if 0 <= q_pos - kv_idx < 300",
    "softcap": "keep if q_pos >= kv_idx\nscore = 30 * tanh(score / 30)",
    "sigmoid": "keep if q_pos >= kv_idx\nnormalize sigmoid",
    "alibi": "keep if q_pos >= kv_idx\nscore = score - (q_pos - kv_idx) * exp2(-0.5 * (h + 1 + b))",
}


def compiled(name: str, dtype: str = "bf16", arch: str | None = None) -> Any:
    """For this GPU; `arch`: by another family than its best."""
    lines = MASKS[name].replace("\n", "\n    ")
    text = f"attn 1\nvariant prefixed_{name} {{\n    {lines}\n}}\n"
    return attncc.compile(text, dtype=dtype, head_dim=HEAD_DIM, arch=arch)


class Call:
    """Caches of sequences that share a prefix, whole and with NaN in their copies of it; and the same in pages."""

    def __init__(self, rows: int, dtype: Any) -> None:
        generator = torch.Generator("cuda").manual_seed(3)
        batch = len(LENGTHS)

        def normal(*shape: int) -> Any:
            return torch.randn(shape, generator=generator, device="cuda").to(dtype)

        self.q = normal(batch, HEADS, rows, HEAD_DIM)
        self.whole = [normal(batch, KV_HEADS, ROOM, HEAD_DIM) for _ in range(2)]
        for x in self.whole:
            x[1:, :, :PREFIX] = x[:1, :, :PREFIX]
        self.lengths = torch.tensor(LENGTHS, dtype=torch.int32, device="cuda")
        self.alone = [x.clone() for x in self.whole]
        for x in self.alone:
            x[1:, :, :TILES] = torch.nan
            for b, length in enumerate(LENGTHS):
                x[b, :, length:] = torch.nan
        count, shared = ROOM // PAGE, PREFIX // PAGE
        self.table = torch.randperm(batch * count, device="cuda").int().reshape(batch, count)
        self.table[1:, :shared] = self.table[:1, :shared]
        self.pools = []
        for x in self.whole:
            pages = x.unflatten(2, (count, PAGE)).transpose(1, 2)  # [batch, page, heads, rows, head dim]
            pool = torch.full((batch * count, *pages.shape[2:]), torch.nan, device="cuda", dtype=dtype)
            pool[self.table.long()] = pages
            self.pools.append(pool)

    def expected(self, kernel: Any) -> Any:
        return kernel(self.q, *self.whole, kv_lens=self.lengths)

    def found(self, kernel: Any, *, paged: bool) -> Any:
        pages = {"block_table": self.table} if paged else {}
        k, v = self.pools if paged else self.alone
        return kernel(self.q, k, v, kv_lens=self.lengths, **pages, shared_prefix=PREFIX)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [*((name, "bf16") for name in MASKS), ("causal", "fp32")])
def test_it_changes_no_result(name: str, dtype: str, paged: bool) -> None:
    kernel = compiled(name, dtype)
    for rows in (1, 3):
        call = Call(rows, {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype])
        found, expected = call.found(kernel, paged=paged).float(), call.expected(kernel).float()
        close = {"atol": 2e-2, "rtol": 2e-2} if dtype == "bf16" else {"atol": 2e-5, "rtol": 1e-5}
        torch.testing.assert_close(found, expected, **close)


@pytest.mark.parametrize("paged", [False, True])
def test_the_portable_family(paged: bool) -> None:
    kernel, call = compiled("alibi", arch=cuda().target), Call(3, torch.bfloat16)
    found, expected = call.found(kernel, paged=paged).float(), call.expected(kernel).float()
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)


def test_the_accuracy_rule() -> None:
    """Parts are merged in fp32."""
    kernel, call = compiled("causal"), Call(1, torch.bfloat16)
    found = call.found(kernel, paged=True)
    q, k, v, out = (x.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16) for x in (call.q, *call.whole, found))
    lengths = call.lengths.cpu().numpy()
    exact, _ = reference.forward(kernel.variant, q, k, v, kv_lens=lengths, shared_prefix=PREFIX)
    plain, _ = reference.baseline(kernel.variant, q, k, v, kv_lens=lengths)
    judged = accuracy(out, plain, exact, "bf16")
    assert judged.holds, str(judged)


def test_cupy_and_the_other_layout() -> None:
    cupy = pytest.importorskip("cupy")
    kernel, call = compiled("alibi", "fp16"), Call(2, torch.float16)
    expected = call.expected(kernel)
    q, k, v = (cupy.from_dlpack(x.transpose(1, 2).contiguous()) for x in (call.q, *call.alone))
    given = {"kv_lens": cupy.from_dlpack(call.lengths), "shared_prefix": PREFIX, "layout": "bshd", "return_lse": True}
    out, lse = kernel(q, k, v, **given)
    cupy.cuda.Device().synchronize()
    torch.testing.assert_close(torch.from_dlpack(out).transpose(1, 2), expected, atol=2e-3, rtol=2e-3)
    _, expected_lse = kernel(call.q, *call.whole, kv_lens=call.lengths, return_lse=True)
    torch.testing.assert_close(torch.from_dlpack(lse), expected_lse, atol=1e-4, rtol=1e-5)


def test_one_graph_serves_all_lengths() -> None:
    """And what is too short is NaN, of its sequence alone."""
    kernel, call = compiled("causal"), Call(1, torch.bfloat16)
    call.found(kernel, paged=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call.found(kernel, paged=True)
    for lengths in (LENGTHS, (1200, 1001, 1536, 1004, 1400)):
        call.lengths.copy_(torch.tensor(lengths))
        for _ in range(2):
            graph.replay()
        torch.testing.assert_close(out.float(), call.expected(kernel).float(), atol=2e-2, rtol=2e-2)
    call.lengths[2] = PREFIX
    graph.replay()
    assert out[2].isnan().all() and not out[[0, 1, 3, 4]].isnan().any()
