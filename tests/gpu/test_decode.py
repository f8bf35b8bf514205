"""Calls with few queries, as users get them: no schedule, the decode pass with splits of its own choice."""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc.compiler import CompiledStore, load_specification
from attncc.kernels.crossings import NEVER, Crossings
from attncc.resources import folder
from attncc.runtime.call import prepare as preparation
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.loaded_kernels import KernelLoader
from attncc.runtime.store.store import Configuration
from tests.devices import Device, cuda
from tests.gpu.accuracy import check_forward
from tests.gpu.cases import Case

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu


def case(
    spec: str, q_len: int, kv_len: int, group: int, *, dtype: str = "bf16", head_dim: int = 128, packed: bool = False
) -> Case:
    return Case(spec, (q_len, kv_len), (head_dim, head_dim), 1, group, dtype, "contiguous", "q_outer", "bhsd", packed)


CASES = (
    case("full", 1, 20_000, 4),
    case("causal", 1, 20_000, 8),
    case("causal", 7, 3000, 8, dtype="fp16", head_dim=64),
    case("causal", 16, 5000, 4, head_dim=256),
    case("causal", 5, 4000, 3, dtype="fp32", head_dim=64),
    case("causal", 2, 9000, 16, head_dim=72),
    case("causal", 1, 3000, 4, packed=True),
    case("sliding_window", 1, 20_000, 4),
    case("alibi", 3, 6000, 4),
    case("softcap", 1, 6000, 8),
    case("sink_attention", 1, 6000, 4),
    case("documents", 1, 6000, 4, packed=True),
    case("documents", 4, 6000, 4),
    case("relative_bias", 1, 3000, 4),
    case("sigmoid_attention", 1, 6000, 4),
    case("dropout_attention", 1, 3000, 4),
    case("alibi_documents", 2, 5000, 4, dtype="fp16"),
    case("dropout_attention", 5, 3000, 4, dtype="fp32", head_dim=64),
    case("causal", 8, 20_000, 4),
    case("causal", 16, 5000, 4, dtype="fp16"),
    case("full", 40, 9000, 4),
    case("causal", 12, 3000, 4, packed=True),
    case("alibi", 9, 6000, 4),
    case("sliding_window", 8, 20_000, 8),
    case("sink_attention", 8, 6000, 4),
    case("speculative_tree", 32, 6000, 2),
    case("documents", 8, 6000, 4),
    case("dropout_attention", 8, 3000, 4),
    case("causal", 8, 5000, 4, head_dim=104),
    case("causal", 11, 5000, 4, head_dim=64),
    case("causal", 7, 5000, 4, packed=True),
    case("causal", 100, 8000, 1),  # more rows than a tile holds, but few thread blocks of the forward kernel
    case("causal", 60, 8100, 4),  # several blocks of rows, which see about as many keys
    case("speculative_tree", 60, 6000, 4),
    case("alibi", 50, 4000, 4, head_dim=64),
    case("causal", 500, 2500, 1),  # the first sees fewer keys than the last
    case("causal", 77, 2000, 3, packed=True),
)


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decode(case: Case, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the accuracy rule, by the decode kernel, also where the one that splits keys is faster; twice the same
    bits."""
    from tests.gpu.calls import call

    run: list[str] = []
    made = preparation.kernel_name
    monkeypatch.setattr(preparation, "kernel_name", lambda plan: run.append(plan.pass_name) or made(plan))
    text = case.source(device.target).partition("\nschedule ")[0] + "\n"
    key, value = case.head_dims
    store = CompiledStore(load_specification(text, None, {})[0], Configuration(case.dtype, key, value), ())
    unsplit = KernelLoader(store, crossings=Crossings(combine_keys=NEVER))
    kernel = Kernel(store, (unsplit, KernelLoader(store, backward=True)))
    out, lse, arguments = call(case, kernel, device.target)
    assert set(run) == {"decode"}
    check_forward(out, lse, arguments, case.dtype)
    assert torch.equal(out, call(case, kernel, device.target)[0])


def test_graphs_of_split_calls_replay_with_new_contents() -> None:
    """Two calls in one graph, whose workspaces are the graph's own."""
    from tests.gpu.repeats import check_graph

    kernel: Any = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=128)
    q = torch.randn(2, 32, 1, 128, device="cuda").bfloat16()
    k, v = (torch.randn(2, 8, 9000, 128, device="cuda").bfloat16() for _ in range(2))
    check_graph(kernel, q, k, v)


@pytest.mark.parametrize("kv_len", [0, 1, 31, 33])
def test_few_keys(kv_len: int) -> None:
    kernel: Any = attncc.compile(folder("specs") / "full.attn", dtype="bf16", head_dim=128)
    q = torch.randn(2, 8, 1, 128, device="cuda").bfloat16()
    k, v = (torch.randn(2, 2, kv_len, 128, device="cuda").bfloat16() for _ in range(2))
    out, lse = kernel(q, k, v, return_lse=True)
    if not kv_len:
        assert not out.any() and bool(torch.isneginf(lse).all())
        return
    keys, values = (item.double().repeat_interleave(4, dim=1) for item in (k, v))
    score = q.double() @ keys.transpose(-1, -2) * 128**-0.5
    torch.testing.assert_close(out.double(), score.softmax(-1) @ values, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(lse.double(), score.logsumexp(-1), rtol=1e-5, atol=1e-3)


def ragged(
    seed: int, rows: int, spread: float, *, heads: int = 8, kv_heads: int = 2, batch: int = 0
) -> tuple[Any, ...]:
    """Packed q, k, v and cumulative lengths of a random batch: up to `rows` queries, keys by a wide distribution."""
    generator = torch.Generator().manual_seed(seed)
    batch = batch or int(torch.randint(1, 200, (), generator=generator))
    kv_lens = (torch.randn(batch, generator=generator) * spread + 5).exp().int().clamp(max=9000)
    kv_lens[torch.rand(batch, generator=generator) < 0.1] = 0
    q_lens = torch.randint(0 if rows > 1 else 1, rows + 1, (batch,), generator=generator)
    cu_q, cu_kv = (torch.cat([torch.zeros(1), item.cumsum(0)]).int().cuda() for item in (q_lens, kv_lens))
    shapes = ((8, int(cu_q[-1])), (2, int(cu_kv[-1])), (2, int(cu_kv[-1])))
    q, k, v = (torch.randn(*shape, 64, device="cuda").bfloat16() for shape in shapes)
    return q, k, v, cu_q, cu_kv


def causal_of_each(q: Any, k: Any, v: Any, cu_q: Any, cu_kv: Any) -> Any:
    """fp64 causal attention of each sequence by itself."""
    out = torch.zeros_like(q, dtype=torch.float64)
    for (a, b), (c, d) in zip(cu_q.unfold(0, 2, 1).tolist(), cu_kv.unfold(0, 2, 1).tolist(), strict=True):
        keys, values = (item[:, c:d].double().repeat_interleave(len(q) // len(k), dim=0) for item in (k, v))
        score = q[:, a:b].double() @ keys.transpose(-1, -2) / 8
        kept = torch.arange(d - c, device="cuda") <= torch.arange(b - a, device="cuda")[:, None] + (d - c) - (b - a)
        prob = score.masked_fill(~kept, -torch.inf).softmax(-1).nan_to_num(0)
        out[:, a:b] = prob @ values
    return out


@pytest.fixture(scope="module")
def causal() -> Any:
    return attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=64)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_ragged_batches(causal: Any, rows: int, spread: float) -> None:
    """Within rounding of each sequence alone; the same bits again and again, whichever block comes last."""
    for seed in range(6):
        q, k, v, cu_q, cu_kv = ragged(seed, rows, spread)
        lengths = {"cu_seqlens_q": cu_q, "cu_seqlens_kv": cu_kv}
        out, lse = causal(q, k, v, return_lse=True, **lengths)
        torch.testing.assert_close(out.double(), causal_of_each(q, k, v, cu_q, cu_kv), rtol=2e-2, atol=2e-2)
        for _ in range(20):
            again, lse_again = causal(q, k, v, return_lse=True, **lengths)
            assert torch.equal(out, again) and torch.equal(lse, lse_again)


def test_fixed_splits_make_bits_independent_of_the_batch() -> None:
    text = (
        folder("specs") / "causal.attn"
    ).read_text() + "\nschedule fixed for causal decode on sm_80 { split_kv = 4 }\n"
    kernel: Any = attncc.compile(text.replace("sm_80", cuda().target), dtype="bf16", head_dim=64)
    q, k, v, cu_q, cu_kv = ragged(3, 1, 1.0)
    out = kernel(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
    for at in range(0, len(cu_q) - 1, 7):
        (a, b), (c, d) = cu_q[at : at + 2].tolist(), cu_kv[at : at + 2].tolist()
        own = {"cu_seqlens_q": cu_q[at : at + 2] - a, "cu_seqlens_kv": cu_kv[at : at + 2] - c}
        assert torch.equal(out[:, a:b], kernel(q[:, a:b], k[:, c:d], v[:, c:d], **own))


def test_graphs_replay_with_other_lengths(causal: Any) -> None:
    """One graph of two calls serves all lengths; nobody clears counters between replays."""
    q, k, v, cu_q, cu_kv = ragged(1, 1, 1.5, batch=64)
    causal(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = causal(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
        second = causal(first, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv)
    for seed in range(20):
        torch.manual_seed(seed)
        inner = torch.randint(0, k.shape[1] + 1, (63,)).sort().values.int()
        cu_kv[1:-1].copy_(inner)
        graph.replay()
        expected = causal_of_each(q, k, v, cu_q, cu_kv)
        torch.testing.assert_close(first.double(), expected, rtol=2e-2, atol=2e-2)
        assert torch.equal(first, causal(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv))
        assert torch.equal(second, causal(first, k, v, cu_seqlens_q=cu_q, cu_seqlens_kv=cu_kv))


def test_streams_count_for_themselves(causal: Any) -> None:
    """Calls on several streams at once, none of which waits for another."""
    arrays = [ragged(seed, 1, 1.5, batch=16) for seed in range(8)]
    expected = [causal(*item[:3], cu_seqlens_q=item[3], cu_seqlens_kv=item[4]) for item in arrays]
    streams = [torch.cuda.Stream() for _ in arrays]
    torch.cuda.synchronize()
    for _ in range(30):
        found = []
        for stream, item in zip(streams, arrays, strict=True):
            with torch.cuda.stream(stream):
                found.append(causal(*item[:3], cu_seqlens_q=item[3], cu_seqlens_kv=item[4]))
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(("group", "q_len"), [(8, 1), (4, 16), (5, 3)])
def test_rows_are_merged_in_pieces(group: int, q_len: int) -> None:
    """Parts of an item on nearly all multiprocessors: thread blocks wait for each other, launches of several streams at
    once don't, and the bits stay."""
    from tests.gpu.repeats import check_streams

    kernel: Any = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=128)
    generator = torch.Generator("cuda").manual_seed(group)
    calls = [
        tuple(
            torch.randn(1, heads, length, 128, generator=generator, device="cuda").bfloat16()
            for heads, length in ((group, q_len), (1, kv_len), (1, kv_len))
        )
        for kv_len in (32_768, 5000, 65_536, 20_001)
    ]
    expected = [kernel(*call, return_lse=True) for call in calls]
    kept = torch.ones(q_len, 20_001, dtype=torch.bool, device="cuda").tril(20_001 - q_len)
    q, k, v = (x.double() for x in calls[-1])
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=kept, enable_gqa=True)
    torch.testing.assert_close(expected[-1][0].double(), exact, rtol=2e-2, atol=2e-3)
    check_streams(kernel, calls)


@pytest.mark.parametrize("page", [None, 16, 64])
def test_many_rows_over_a_cache(page: int | None) -> None:
    """A graph of two calls serves all lengths, in pages too; the kernel is that for many rows where there is one."""
    kernel: Any = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=128)
    generator = torch.Generator("cuda").manual_seed(2)
    q, k, v = (
        torch.randn(4, heads, rows, 128, generator=generator, device="cuda").bfloat16()
        for heads, rows in ((8, 16), (2, 4096), (2, 4096))
    )
    kv_lens = torch.tensor([4096, 16, 1000, 3333], device="cuda", dtype=torch.int32)
    given: dict[str, Any] = {"kv_lens": kv_lens}
    if page is not None:
        place = torch.randperm(4 * 4096 // page, generator=generator, device="cuda").int()
        given["block_table"] = place.view(4, -1)
        pools = []
        for dense in (k, v):
            pool = torch.empty(place.numel(), 2, page, 128, device="cuda", dtype=torch.bfloat16)
            pool[place.long()] = dense.unflatten(2, (-1, page)).transpose(1, 2).flatten(0, 1)
            pools.append(pool)
    else:
        pools = [k, v]
    kernel(q, *pools, **given)
    many = {name for name in kernel.report() if "_rows" in name}
    assert bool(many) == cuda().target.startswith("sm_90")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = kernel(q, *pools, **given)
        second = kernel(first, *pools, **given)
    positions = torch.arange(4096, device="cuda")
    for seed in range(8):
        lengths = torch.randint(16, 4097, (4,), generator=torch.Generator().manual_seed(seed))
        kv_lens.copy_(lengths)
        graph.replay()
        last = kv_lens[:, None] - 16 + torch.arange(16, device="cuda")
        kept = (positions <= last[..., None])[:, None]
        exact = torch.nn.functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), attn_mask=kept, enable_gqa=True
        )
        torch.testing.assert_close(first.double(), exact, rtol=2e-2, atol=2e-2)
        assert torch.equal(first, kernel(q, *pools, **given)) and torch.equal(second, kernel(first, *pools, **given))


@pytest.mark.parametrize("q_len", [1, 4, 8, 16])
def test_a_head_for_each_multiprocessor(q_len: int) -> None:
    """Dense calls have kernels of one thread block a multiprocessor; the same bits again and again."""
    kernel: Any = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=128)
    batch = torch.cuda.get_device_properties(0).multi_processor_count // 8
    generator = torch.Generator("cuda").manual_seed(q_len)
    q, k, v = (
        torch.randn(batch, heads, length, 128, generator=generator, device="cuda").bfloat16()
        for heads, length in ((32, q_len), (8, 4100), (8, 4100))
    )
    out = kernel(q, k, v)
    assert any("_one_block" in name for name in kernel.report()) == cuda().target.startswith("sm_90")
    kept = torch.ones(q_len, 4100, dtype=torch.bool, device="cuda").tril(4100 - q_len)
    for at in range(0, batch, 5):
        one = [x[at : at + 1].double() for x in (q, k, v)]
        exact = torch.nn.functional.scaled_dot_product_attention(*one, attn_mask=kept, enable_gqa=True)
        torch.testing.assert_close(out[at : at + 1].double(), exact, rtol=2e-2, atol=2e-3)
    assert all(torch.equal(out, kernel(q, k, v)) for _ in range(20))


WINDOW_OF_KEY_HEAD = """attn 1
variant window_of_key_head {
    input width: i32[kv_head]
    keep if q_pos - kv_idx < width[kv_h]
}
"""


@pytest.mark.parametrize("widths", [(6000, 300), (300, 6000)])
def test_key_heads_with_windows_of_their_own(widths: tuple[int, int]) -> None:
    """Key heads have other numbers of tiles; once runs were made of the first one's. Twice, as counters stay."""
    kernel: Any = attncc.compile(WINDOW_OF_KEY_HEAD, dtype="bf16", head_dim=64)
    generator = torch.Generator("cuda").manual_seed(1)
    q, k, v = (
        torch.randn(2, heads, length, 64, generator=generator, device="cuda").bfloat16()
        for heads, length in ((8, 1), (2, 6000), (2, 6000))
    )
    width = torch.tensor(widths, dtype=torch.int32, device="cuda")
    keys = torch.arange(6000, device="cuda")
    kept = (5999 - keys)[None] < width.repeat_interleave(4)[:, None]
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(x.double() for x in (q, k, v)), attn_mask=kept[None, :, None], enable_gqa=True
    )
    for _ in range(2):
        assert (kernel(q, k, v, width=width) - exact).abs().max() < 0.01
