"""Calls over caches on a GPU: lengths, pages and positions on the device, in every family.

Rows and pages that no sequence uses hold NaN. One CUDA graph serves all lengths.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attncc
from tests.devices import cuda

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

MASKS = {
    "full": "",
    "causal": "keep if q_pos >= kv_idx",
    "window": "keep if 0 <= q_pos - kv_idx < 300",
    "softcap": "keep if q_pos >= kv_idx\nscore = 30 * tanh(score / 30)",
    "sigmoid": "keep if q_pos >= kv_idx\nnormalize sigmoid",
    "alibi": "keep if q_pos >= kv_idx\nscore = score - (q_pos - kv_idx) * exp2(-0.5 * (h + 1))",
}
FAMILIES = {"portable": "sm_90", "hopper": "sm_90a"}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
HEADS, KV_HEADS, ROOM = 8, 2, 1024


def compiled(name: str, family: str, dtype: str = "bf16", head_dim: int = 128) -> Any:
    lines = MASKS[name].replace("\n", "\n    ")
    text = f"attn 1\nvariant cached_{name} {{\n    {lines}\n}}\n"
    if cuda().target != "sm_90":
        return attncc.compile(text, dtype=dtype, head_dim=head_dim)
    text += f"schedule of_family for cached_{name} on {FAMILIES[family]} {{ family = {family} }}\n"
    return attncc.compile(text, dtype=dtype, head_dim=head_dim, arch=FAMILIES[family])


class Cache:
    """k and v with room for ROOM keys of each sequence, NaN behind those in use; and the same in pages."""

    def __init__(self, lengths: list[int], dtype: str, head_dim: int, page: int, seed: int = 0) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        shape = (len(lengths), KV_HEADS, ROOM, head_dim)
        self.dense = [torch.randn(shape, generator=generator, device="cuda").to(DTYPES[dtype]) for _ in range(2)]
        for rows in self.dense:
            for b, length in enumerate(lengths):
                rows[b, :, length:] = torch.nan
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device="cuda")
        blocks = -(-ROOM // page)
        used = [-(-length // page) for length in lengths]
        numbers = torch.randperm(sum(used) + 2, generator=torch.Generator().manual_seed(seed)).tolist()
        self.table = torch.full((len(lengths), blocks), -1, dtype=torch.int32)
        self.pools = [
            torch.full((sum(used) + 2, KV_HEADS, page, head_dim), torch.nan).to("cuda", DTYPES[dtype]) for _ in range(2)
        ]
        for b, count in enumerate(used):
            for block in range(count):
                number = numbers.pop()
                self.table[b, block] = number
                rows = slice(block * page, min((block + 1) * page, lengths[b]))
                for pool, dense in zip(self.pools, self.dense, strict=True):
                    pool[number, :, : rows.stop - rows.start] = dense[b, :, rows]
        self.table = self.table.cuda()

    def paged(self) -> dict[str, Any]:
        return {"k": self.pools[0], "v": self.pools[1], "kv_lens": self.lengths, "block_table": self.table}

    def contiguous(self) -> dict[str, Any]:
        return {"k": self.dense[0], "v": self.dense[1], "kv_lens": self.lengths}


def queries(batch: int, rows: int, dtype: str, head_dim: int) -> Any:
    torch.manual_seed(1)
    return torch.randn(batch, HEADS, rows, head_dim, device="cuda").to(DTYPES[dtype])


def alone(kernel: Any, q: Any, cache: Cache, **given: Any) -> Any:
    """Each sequence by a call of its own, over its keys alone."""
    found = []
    for b, length in enumerate(cache.lengths.tolist()):
        k, v = (rows[b : b + 1, :, :length].contiguous() for rows in cache.dense)
        offset = {name: int(x[b]) if torch.is_tensor(x) else x for name, x in given.items()}
        found.append(kernel(q[b : b + 1], k, v, **offset))
    return torch.cat(found)


def close(found: Any, wanted: Any, dtype: str) -> None:
    tolerance = {"bf16": 1e-2, "fp16": 2e-3, "fp32": 2e-5}[dtype]
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 5, 200])
@pytest.mark.parametrize("name", MASKS)
def test_lengths_and_pages(name: str, rows: int, family: str) -> None:
    kernel, cache = compiled(name, family), Cache([1024, 700, 333, 1, 0], "bf16", 128, 64)
    q = queries(5, rows, "bf16", 128)
    wanted = alone(kernel, q, cache)
    close(kernel(q, **cache.contiguous()), wanted, "bf16")
    close(kernel(q, **cache.paged()), wanted, "bf16")


@pytest.mark.parametrize("page", [1, 16, 24, 128, 256])
@pytest.mark.parametrize(("dtype", "head_dim"), [("bf16", 64), ("fp16", 256), ("fp32", 64), ("bf16", 40)])
def test_sizes_of_pages(dtype: str, head_dim: int, page: int, family: str) -> None:
    if family == "hopper" and (dtype == "fp32" or head_dim == 40):
        pytest.skip("the family hopper has no such kernel")
    kernel, cache = compiled("causal", family, dtype, head_dim), Cache([1000, 257, 16], dtype, head_dim, page)
    for rows in (2, 100):
        q = queries(3, rows, dtype, head_dim)
        close(kernel(q, **cache.paged()), alone(kernel, q, cache), dtype)


@pytest.mark.parametrize("rows", [1, 150])
@pytest.mark.parametrize("name", ["causal", "window", "alibi"])
def test_offsets(name: str, rows: int, family: str) -> None:
    """Static caches, whose rows stand where the call says: a number, or an array on the device, int64 too."""
    kernel, cache = compiled(name, family), Cache([1000, 400, 64], "bf16", 128, 16)
    q = queries(3, rows, "bf16", 128)
    for offset in (
        7,
        torch.tensor([900, 3, 64], device="cuda"),
        torch.tensor([2, -5, 1000], dtype=torch.int32, device="cuda"),
    ):
        wanted = alone(kernel, q, cache, q_offset=offset)
        close(kernel(q, **cache.contiguous(), q_offset=offset), wanted, "bf16")
        close(kernel(q, **cache.paged(), q_offset=offset), wanted, "bf16")
    one = kernel(q, **cache.paged(), q_offset=torch.tensor(7, device="cuda"))
    assert torch.equal(one, kernel(q, **cache.paged(), q_offset=7))


def test_chunks_of_prefill_beside_decode(family: str) -> None:
    kernel, cache = compiled("causal", family), Cache([1024, 700, 333, 64], "bf16", 128, 16)
    starts = [0, 130, 131, 132, 196]
    q = torch.randn(HEADS, 196, 128, device="cuda").bfloat16()
    given = {"cu_seqlens_q": torch.tensor(starts, dtype=torch.int32, device="cuda")}
    for arrays in (cache.contiguous(), cache.paged()):
        found, lse = kernel(q, **arrays, **given, return_lse=True)
        assert torch.isfinite(lse).all()
        for b, length in enumerate(cache.lengths.tolist()):
            rows = slice(starts[b], starts[b + 1])
            k, v = (x[b : b + 1, :, :length].contiguous() for x in cache.dense)
            close(found[:, rows], kernel(q[None, :, rows], k, v)[0], "bf16")


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("rows", [1, 100])
def test_one_graph_serves_all_lengths(rows: int, paged: bool, family: str) -> None:
    kernel, cache = compiled("causal", family), Cache([1024] * 8, "bf16", 128, 64)
    q = queries(8, rows, "bf16", 128)
    arrays = cache.paged() if paged else cache.contiguous()
    kernel(q, **arrays)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = kernel(q, **arrays)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        lengths = torch.randint(rows, 1025, (8,), generator=generator)
        cache.lengths.copy_(lengths)
        cache.table.copy_(cache.table[:, torch.randperm(cache.table.shape[1], generator=generator)])
        graph.replay()
        wanted = kernel(q, **arrays)
        assert torch.equal(found, wanted)
        if not paged:
            close(found, alone(kernel, q, cache), "bf16")


def captured(call: Any) -> tuple[Any, Any]:
    """A CUDA graph of a call, and the tensor that its replays write."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    return graph, found


def exact(q: Any, k: Any, v: Any, lengths: Any) -> Any:
    """Causal attention in fp64, whose last query is the last key in use. 0 where a query has no key."""
    rows, room = q.shape[2], k.shape[2]
    keys = torch.arange(room, device="cuda")
    positions = lengths[:, None] - rows + torch.arange(rows, device="cuda")
    kept = ((keys < lengths[:, None])[:, None] & (keys <= positions[:, :, None]))[:, None]
    used = (keys < lengths[:, None])[:, None, :, None]
    k, v = (torch.where(used, x.double(), 0).repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    score = (q.double() @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~kept, -torch.inf)
    return score.softmax(-1).nan_to_num(0) @ v


@pytest.mark.parametrize("rows", [1, 5])
def test_one_graph_serves_a_thousand_batches(rows: int) -> None:
    """Lengths from 0 on, and tables over a pool whose pages stand anywhere, two sequences on one page too."""
    page, batch = 16, 8
    kernel = compiled("causal", "hopper")
    q = queries(batch, rows, "bf16", 128)
    pools = [torch.randn(400, KV_HEADS, page, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    lengths = torch.full((batch,), ROOM, dtype=torch.int32, device="cuda")
    table = torch.zeros(batch, ROOM // page, dtype=torch.int32, device="cuda")
    graph, found = captured(lambda: kernel(q, *pools, kv_lens=lengths, block_table=table))
    worst = torch.zeros((), dtype=torch.float64, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    for _ in range(1000):
        lengths.copy_(torch.randint(ROOM + 1, lengths.shape, generator=generator, device="cuda"))
        lengths[:2].clamp_(max=1)
        table.copy_(torch.randint(400, table.shape, generator=generator, device="cuda"))
        unused = torch.arange(ROOM // page, device="cuda") * page >= lengths[:, None]
        table.masked_fill_(unused, -1)
        graph.replay()
        k, v = (pool[table.clamp(min=0).long()].transpose(1, 2).flatten(2, 3) for pool in pools)
        worst = worst.maximum((found - exact(q, k, v, lengths)).abs().max().nan_to_num(torch.inf))
    assert worst < 0.02


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_ten_thousand_replays_give_the_same_bits(rows: int, paged: bool) -> None:
    """Whichever thread blocks are first: who merges a sequence's parts differs from call to call."""
    kernel, cache = compiled("causal", "hopper"), Cache([1024, 1, 700, 0, 333, 64, 900, 512], "bf16", 128, 64)
    q = queries(8, rows, "bf16", 128)
    arrays = cache.paged() if paged else cache.contiguous()
    graph, found = captured(lambda: kernel(q, **arrays))
    graph.replay()
    first, differ = found.clone(), torch.zeros((), dtype=torch.bool, device="cuda")
    for _ in range(10_000):
        graph.replay()
        differ |= (found != first).any()
    assert not differ and not first.isnan().any()


@pytest.mark.parametrize("rows", [1, 100])
def test_what_cannot_be_makes_nan(rows: int, family: str) -> None:
    kernel, cache = compiled("causal", family), Cache([1024, 700, 600, 500], "bf16", 128, 64)
    q = queries(4, rows, "bf16", 128)
    wanted = kernel(q, **cache.paged())
    cache.table[1, 3], cache.table[2, 0] = 10_000, -1
    arrays = cache.paged() | {"kv_lens": torch.tensor([1024, 700, 600, 2000], dtype=torch.int32, device="cuda")}
    found = kernel(q, **arrays)
    close(found[0], wanted[0], "bf16")  # not its bits: other lengths of the batch cut it elsewhere
    assert found[1:].isnan().all()


def test_gradients(family: str) -> None:
    """Those of a call over each sequence alone; 0 behind the last key."""
    kernel, cache = compiled("causal", family), Cache([1024, 700, 300], "bf16", 128, 64)
    leaves = [x.clone().requires_grad_() for x in (queries(3, 200, "bf16", 128), *cache.dense)]
    for given in ({}, {"q_offset": torch.tensor([800, 100, 90], device="cuda")}):
        out = kernel(*leaves, kv_lens=cache.lengths, **given)
        dout = torch.randn_like(out)
        found = torch.autograd.grad(out, leaves, dout)
        for b, length in enumerate(cache.lengths.tolist()):
            q, k, v = (x[b : b + 1, :, :n] for x, n in zip(leaves, (200, length, length), strict=True))
            own = {name: int(x[b]) for name, x in given.items()}
            wanted = torch.autograd.grad(kernel(q, k, v, **own), [q, k, v], dout[b : b + 1])
            for one, other, n in zip(found, wanted, (200, length, length), strict=True):
                torch.testing.assert_close(one[b : b + 1, :, :n], other, rtol=2e-2, atol=2e-2)
            assert not any(x[b, :, length:].any() for x in found[1:])


def test_the_example_generates_the_same_tokens_with_a_paged_cache() -> None:
    """And one graph runs its steps."""
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "examples" / "generate.py"), "--steps", "30"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run(command, cwd=root, env=env, stdout=subprocess.PIPE, text=True, check=True)
    assert "tokens are the same" in done.stdout and "on cuda" in done.stdout
