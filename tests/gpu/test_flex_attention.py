"""`attncc.flex_attention` on a GPU, beside torch's dense arithmetic: results, gradients, graphs, no kernel twice."""

from __future__ import annotations

from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

from attncc.flex import attention  # noqa: E402  (needs torch)
from tests.unit.flex import mods  # noqa: E402
from tests.unit.flex.live import dense  # noqa: E402

HEADS, ROWS, DIM = mods.HEADS, 384, 64
DRAWS = 4  # of inputs: a mean over one draw's gradients of a few captured numbers is as large as chance has it


def operands(dtype: Any, kv_heads: int = HEADS, seed: int = 0) -> list[Any]:
    torch.manual_seed(seed)
    shapes = [(mods.BATCH, heads, ROWS, DIM) for heads in (HEADS, kv_heads, kv_heads)]
    return [torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes]


def document_ids(device: str = "cuda") -> Any:
    return torch.arange(ROWS, device=device).expand(mods.BATCH, ROWS).contiguous() // 100


def cases(kind: Any) -> dict[str, tuple[Any, Any, list[Any]]]:
    """score_mod, mask_mod, and the captured tensors that learn, which are of this dtype.

    In fp64 where gradients are to be exact: that of an fp32 tensor that a mod reads twice is the sum of two gradients,
    each rounded to fp32. Those of a cap are larger than their sum, which was off by up to 13 eps (seen on the CPU).
    """
    drawn = torch.Generator().manual_seed(1)
    slope = torch.rand(HEADS, generator=drawn).to("cuda", kind).requires_grad_()
    cap = torch.tensor(9.0, device="cuda", dtype=kind, requires_grad=True)
    learned = mods.Learned().to("cuda", kind)

    def capped(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return cap * torch.tanh((score - slope[h] * (q_idx - kv_idx).abs() / 16) / cap)

    return {
        "causal": (None, mods.causal, []),
        "alibi in documents": (mods.alibi(HEADS), mods.documents(document_ids(), mods.causal), []),
        "neighbours": (None, mods.natten(24, 16, 7), []),
        "empty rows": (mods.softcap(20.0), mods.nothing_for_some, []),
        "mask in the score": (mods.causal_score, None, []),
        "learned scalars": (capped, mods.sliding_window, [slope, cap]),
        "learned table": (learned.bias, mods.causal, [learned.table]),
    }


NAMES = (
    "causal",
    "alibi in documents",
    "neighbours",
    "empty rows",
    "mask in the score",
    "learned scalars",
    "learned table",
)


def farther(found: Any, theirs: Any, exact: Any) -> bool:
    """Whether a result is much farther from fp64 than torch's in the same dtype, on average: the rule of torch's tests.
    Twice as far is allowed for gradients, whose probabilities are rounded. Gradients of captured tensors are sums over
    all pairs: fp32 rounds them by some units in the last place, whatever the order."""
    error, limit = (found - exact).abs().mean(), 2 * (theirs - exact).abs().mean()
    return bool(error > limit + 8 * torch.finfo(torch.float32).eps * exact.abs().mean() + 1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients(name: str, dtype: Any) -> None:
    found, theirs, exact = [], [], []
    for results, kind, call in (
        (found, dtype, lambda *given, mask_mod: attncc.flex_attention(*given, mask_mod=mask_mod)),
        (theirs, dtype, lambda *given, mask_mod: dense(*given, mask_mod)),
        (exact, torch.float64, lambda *given, mask_mod: dense(*given, mask_mod)),
    ):
        score_mod, mask_mod, learned = cases(torch.float64 if results is exact else torch.float32)[name]
        draws = []
        for seed in range(DRAWS):
            given = [x.detach().to(kind).requires_grad_() for x in operands(dtype, seed=seed)]
            out = call(*given, score_mod, mask_mod=mask_mod)
            draws.append([out.detach(), *torch.autograd.grad((out.double() ** 2).sum(), [*given, *learned])])
        results += [torch.stack(each).double() for each in zip(*draws, strict=True)]
    for place, triple in enumerate(zip(found, theirs, exact, strict=True)):
        errors = [float((x - triple[2]).abs().mean()) for x in triple]
        assert not farther(*triple), (place, errors, float(triple[2].abs().mean()))


def test_no_kernel_twice() -> None:
    def made(doc: Any) -> Any:
        return mods.documents(doc, mods.causal)

    q, k, v = operands(torch.bfloat16, kv_heads=2)
    attncc.flex_attention(q, k, v, mask_mod=made(document_ids()), enable_gqa=True)
    traces, kernels = attention.cache.traces, len(attncc.api._kernels)
    for rows in (384, 200, 33):
        given = (x[:, :, :rows] for x in (q, k, v))
        out = attncc.flex_attention(*given, mask_mod=made(document_ids() // 2), enable_gqa=True)
        assert out.shape == (mods.BATCH, HEADS, rows, DIM)
    assert (attention.cache.traces, len(attncc.api._kernels)) == (traces, kernels)


def test_scalars_may_be_on_the_cpu() -> None:
    given = operands(torch.float32)
    for cap in (torch.tensor(3.0), torch.tensor(3.0, requires_grad=True)):
        score_mod = mods.softcap(cap)
        out = attncc.flex_attention(*given, score_mod)
        torch.testing.assert_close(out, dense(*given, score_mod), rtol=1e-3, atol=1e-3)
        if cap.requires_grad:
            (found,) = torch.autograd.grad(out.square().sum(), [cap])
            (wanted,) = torch.autograd.grad(dense(*given, score_mod).square().sum(), [cap])
            torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)


def test_cuda_graphs() -> None:
    """A call that is found makes no copy to the host, so a graph can capture it."""
    with torch.no_grad():
        q, k, v = operands(torch.bfloat16)
        mod, table = mods.alibi(HEADS), document_ids()
        mask = mods.documents(table, mods.causal)
        for _ in range(2):
            wanted = attncc.flex_attention(q, k, v, mod, mask_mod=mask)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = attncc.flex_attention(q, k, v, mod, mask_mod=mask)
        found.zero_()
        graph.replay()
        torch.testing.assert_close(found, wanted)


def test_compiled_layers() -> None:
    def layer(q: Any, k: Any, v: Any) -> Any:
        return attncc.flex_attention(q * 2, k, v, mods.softcap(20.0), mask_mod=mods.causal).float().square().sum()

    given = operands(torch.bfloat16)
    wanted = torch.autograd.grad(layer(*given), given)
    for one, other in zip(torch.autograd.grad(torch.compile(layer)(*given), given), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
