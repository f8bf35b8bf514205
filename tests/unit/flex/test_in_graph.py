"""`flex_attention` inside torch.compile(fullgraph=True), torch.func, autocast, checkpoints, export, beside eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import attncc
from attncc.diagnostics import AttnccWarning

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch._dynamo.utils import counters  # noqa: E402  (needs torch)
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

BATCH, HEADS, DIM = 2, 4, 16
SLOW = "aot_eager", "inductor"  # backends


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


class Layer(torch.nn.Module):
    """ALiBi, a learned table, a window that a dict has for each layer, documents."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.windows, self.number, self.cap = {0: 8, 1: 16}, number, 20.0
        self.qkv = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM)
        self.table = torch.nn.Parameter(torch.randn(HEADS, 12))
        self.register_buffer("slope", 2.0 ** -torch.arange(1, HEADS + 1))

    def score(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        distance = q_idx - kv_idx
        score = score - self.slope[h] * distance + self.table[h, distance.clamp(0, 11)]
        return self.cap * torch.tanh(score / self.cap)

    def forward(self, x: Any, documents: Any, block_mask: Any = None) -> Any:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, DIM).permute(2, 0, 3, 1, 4)
        window = self.windows[self.number]

        def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            near = (q_idx - kv_idx < window) & (kv_idx < documents.shape[1])
            return near & (documents[b, q_idx] == documents[b, kv_idx])

        masks = {"mask_mod": and_masks(causal, mask)} if block_mask is None else {"block_mask": block_mask}
        out = attncc.flex_attention(q, k, v, self.score, **masks)
        return x + out.transpose(1, 2).reshape(batch, length, -1)


class Net(torch.nn.Module):
    def __init__(self, recomputes: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(map(Layer, range(2)))
        self.recomputes = recomputes

    def forward(self, *given: Any) -> Any:
        x, *rest = given
        for layer in self.layers:
            x = checkpoint(layer, x, *rest, use_reentrant=False) if self.recomputes else layer(x, *rest)
        return x


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def batch(length: int = 40) -> tuple[Any, Any]:
    torch.manual_seed(length)
    return torch.randn(BATCH, length, HEADS * DIM), (torch.arange(length) // 9).expand(BATCH, length)


def results(net: Any, run: Callable[..., Any], *given: Any) -> list[Any]:
    """What a network gives, and the gradients of its parameters."""
    out = run(*given)
    return [out.detach(), *torch.autograd.grad(out.float().square().mean(), list(net.parameters()))]


def same(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=10 * tolerance, atol=tolerance)


def whole(function: Any, **options: Any) -> Any:
    return torch.compile(function, fullgraph=True, **{"backend": "aot_eager", **options})


@pytest.mark.parametrize("backend", ["eager", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_other_tensors_and_lengths_compile_nothing(net: Net, backend: str) -> None:
    compiled, graphs = whole(net, backend=backend, dynamic=True), []
    for length in (40, 33, 57, 128):
        given = batch(length)
        same(results(net, compiled, *given), results(net, net, *given))
        graphs.append(counters["stats"]["unique_graphs"])
    assert set(graphs) == {1}
    assert not counters["graph_break"]


def test_without_dynamic_lengths_become_variables_at_the_second(net: Net) -> None:
    compiled, graphs = whole(net), []
    for length in (20, 13, 27, 31):
        given = batch(length)
        same(results(net, compiled, *given), results(net, net, *given))
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [1, 2, 2, 2]


@pytest.mark.slow
def test_what_a_guard_watches() -> None:
    """A number that a mod captures is a constant of the graph at first, and then a variable."""
    layer = Layer(0)
    compiled = whole(layer)
    for cap, window in ((20.0, 8), (2.0, 8), (0.5, 8), (0.5, 3), (0.5, 5)):
        layer.cap, layer.windows[0] = cap, window
        given = batch()
        same(results(layer, compiled, *given), results(layer, layer, *given))
    assert counters["stats"]["unique_graphs"] <= 5


@pytest.mark.slow
def test_block_masks(net: Net) -> None:
    made = create_block_mask(causal, None, None, 256, 256, device="cpu")
    blocks = BlockMask.from_kv_blocks(made.kv_num_blocks, made.kv_indices, BLOCK_SIZE=128, seq_lengths=(256, 256))
    given = batch(256)
    for masks in (made, blocks):
        same([whole(net)(*given, masks)], [net(*given, masks)])

    def inside(x: Any, documents: Any) -> Any:
        length = x.shape[1]
        return net(x, documents, create_block_mask(causal, None, None, length, length, device="cpu"))

    same([whole(inside)(*given)], [inside(*given)])


def test_lse_grouped_heads_and_a_scale() -> None:
    q, k = torch.randn(1, 4, 24, DIM), torch.randn(1, 2, 24, DIM)

    def call(q: Any, k: Any) -> Any:
        return attncc.flex_attention(q, k, k, mask_mod=causal, scale=0.3, enable_gqa=True, return_lse=True)

    same(whole(call)(q, k), call(q, k))


def test_autocast_gives_its_dtype() -> None:
    q = torch.randn(1, 2, 24, DIM)

    def call(q: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return attncc.flex_attention(q, q, q, mask_mod=causal)

    assert call(q).dtype == torch.bfloat16
    assert torch.equal(call(q), attncc.flex_attention(*[q.bfloat16()] * 3, mask_mod=causal))
    same([whole(call)(q)], [call(q)])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(net: Net, mode: Any) -> None:
    given = batch()
    wanted = net(*given).detach()
    with mode():
        same([whole(net)(*given), net(*given)], [wanted, wanted])
    same(results(net, whole(net), *given), results(net, net, *given))


def test_torch_func(net: Net) -> None:
    """A parameter that torch.func differentiates was taken for a number: the score was lost without an error."""
    given, parameters = batch(), {name: x.detach() for name, x in net.named_parameters()}

    def loss(parameters: Any) -> Any:
        return torch.func.functional_call(net, parameters, given).square().mean()

    wanted = results(net, net, *given)[1:]
    same(torch.func.grad(loss)(parameters).values(), wanted)
    same(whole(torch.func.grad(loss))(parameters).values(), wanted)


def test_checkpoints_recompute_it(net: Net) -> None:
    again, given = Net(recomputes=True), batch()
    again.load_state_dict(net.state_dict())
    wanted = results(net, net, *given)
    same(results(again, again, *given), wanted)
    same(results(again, whole(again), *given), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("splits", [False, True], ids=["one bucket", "a bucket for each layer"])
def test_data_parallel(net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splits: bool) -> None:
    """torch.compile cuts the graph where DistributedDataParallel's buckets end. The first must not be the largest."""
    if splits:
        monkeypatch.setattr(torch.distributed, "_DEFAULT_FIRST_BUCKET_BYTES", 512)
    given = batch()
    wanted = results(net, net, *given)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1e-3 if splits else 25)
        for run in (parallel, torch.compile(parallel, backend="aot_eager")):
            net.zero_grad()
            out = run(*given)
            out.square().mean().backward()
            same([out.detach(), *(x.grad for x in net.parameters())], wanted)
        del parallel, run  # before the group: see tests/unit/distributed/averaging.py
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("strict", [False, True])
def test_export(net: Net, strict: bool) -> None:
    given = batch()
    same([torch.export.export(net, given, strict=strict).module()(*given)], [net(*given)])


def bessel(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return torch.special.bessel_j0(q_idx * 1.0) > kv_idx


def test_mistakes_are_named() -> None:
    q = torch.randn(1, 2, 16, DIM)
    with pytest.raises(Exception, match=r"A713.*bessel_j0.*\n.*test_in_graph.py"):
        whole(lambda q: attncc.flex_attention(q, q, q, mask_mod=bessel))(q)
    with pytest.raises(Exception, match="A714: query and key have different numbers of heads"):
        whole(lambda q: attncc.flex_attention(q, q[:, :1], q[:, :1]))(q)
    with pytest.raises(attncc.AttnccError, match="A714"):  # where the graph may break, as without torch.compile
        torch.compile(lambda q: attncc.flex_attention(q, q[:, :1], q[:, :1]), backend="eager")(q)
    with pytest.raises(Exception, match="A650"):
        torch.vmap(lambda q: attncc.flex_attention(q, q, q))(q[None])


def test_torchs_own_breaks_the_graph() -> None:
    q = torch.randn(1, 2, 16, DIM)
    call = torch.compile(lambda q: attncc.flex_attention(q, q, q, mask_mod=causal, fallback="torch"), backend="eager")
    assert torch.equal(call(q), attncc.flex_attention(q, q, q, mask_mod=causal))
    assert counters["graph_break"]


def test_kernel_options_are_not_silently_dropped() -> None:
    """As in a call without a graph, once for each."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        return attncc.flex_attention(x, x, x, kernel_options={"BLOCK_M": 64})

    with pytest.warns(AttnccWarning, match="A715"):
        torch.compile(attend, backend="eager", fullgraph=True)(torch.zeros(1, 1, 8, 16))
