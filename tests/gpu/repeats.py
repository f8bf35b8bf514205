"""Calls that are repeated: in a CUDA graph, and on several streams at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def check_graph(kernel: Callable[..., Any], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Two calls in one graph, the second of the first's result, give the same bits as calls with new contents."""
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


def check_streams(kernel: Callable[..., Any], calls: Sequence[tuple[torch.Tensor, ...]]) -> None:
    """Calls at once, each on a stream of its own, give the bits of each alone, again and again."""
    expected = [kernel(*call, return_lse=True) for call in calls]
    streams = [torch.cuda.Stream() for _ in calls]
    torch.cuda.synchronize()
    for _ in range(50):
        found = []
        for stream, call in zip(streams, calls, strict=True):
            with torch.cuda.stream(stream):
                found.append(kernel(*call, return_lse=True))
        torch.cuda.synchronize()
        for one, other in zip(found, expected, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
