"""Calls with few queries, as users get them: no schedule, the decode pass with splits of its own choice."""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc.resources import folder
from attncc.runtime.call import prepare as preparation
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
    case("causal", 100, 8000, 1),  # more rows than a tile holds, but few thread blocks of the forward kernel
)


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decode(case: Case, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the accuracy rule, by the decode kernel, twice the same bits."""
    from tests.gpu.calls import call

    run: list[str] = []
    made = preparation.kernel_name
    monkeypatch.setattr(preparation, "kernel_name", lambda plan: run.append(plan.pass_name) or made(plan))
    text = case.source(device.target).partition("\nschedule ")[0] + "\n"
    key, value = case.head_dims
    kernel = attncc.compile(text, dtype=case.dtype, head_dim=key, value_head_dim=value)
    out, lse, arguments = call(case, kernel, device.target)
    assert set(run) == {"decode"}
    check_forward(out, lse, arguments, case.dtype)
    assert torch.equal(out, call(case, kernel, device.target)[0])


def test_graphs_of_split_calls_replay_with_new_contents() -> None:
    """Two calls in one graph, whose workspaces are the graph's own."""
    kernel: Any = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=128)
    q = torch.randn(2, 32, 1, 128, device="cuda").bfloat16()
    k, v = (torch.randn(2, 8, 9000, 128, device="cuda").bfloat16() for _ in range(2))
    kernel(q, k, v)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = kernel(q, k, v)
        second = kernel(first, k, v)
    for array in (q, k, v):
        array.copy_(torch.randn_like(array))
    graph.replay()
    expected = kernel(q, k, v)
    assert torch.equal(first, expected) and torch.equal(second, kernel(expected, k, v))


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
