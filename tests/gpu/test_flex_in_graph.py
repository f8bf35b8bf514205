"""`flex_attention` in graphs of torch.compile on a GPU: one graph for several lengths, results of eager calls."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

from torch._dynamo.utils import counters  # noqa: E402  (needs torch)

from tests.unit.flex.test_in_graph import DIM, HEADS, Net, batch, results, same, whole  # noqa: E402


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_one_graph_for_all_lengths(backend: str) -> None:
    torch.manual_seed(0)
    net = Net().cuda()
    torch._dynamo.reset()
    counters.clear()
    compiled = whole(net, backend=backend, dynamic=True)
    for length in (40, 33, 57):
        given = [item.cuda() for item in batch(length)]
        assert given[0].shape[-1] == HEADS * DIM
        same(results(net, compiled, *given), results(net, net, *given), 1e-4)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
