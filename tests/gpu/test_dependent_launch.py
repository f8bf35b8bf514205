"""Decode kernels that begin while the kernel ahead is at work (programmatic dependent launch): they read what that one
wrote, in streams and in graphs. The host queues calls behind a pause, or they would never meet.

Expected of each call are the bits of the same call with nothing else on the GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

STEPS = 1000
QUEUED = 200  # steps behind one pause: a GPU queues some 1,000 launches
PAUSE = 60_000_000  # clocks, some 30 ms: longer than the host takes to queue them
HEADS, KV_HEADS, HEAD_DIM, ROOM, PAGE = 32, 8, 128, 8192, 64
PROGRAMMATIC = 1  # CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC

Call = Callable[[int], Any]


@pytest.fixture(autouse=True)
def hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("elsewhere no kernel begins early")


@cache
def kernel(spec: str = "causal") -> Any:
    return attncc.compile(spec, dtype="bf16", head_dim=HEAD_DIM)


def normal(*shape: int, seed: int = 0) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").bfloat16()


def lengths(count: int, batch: int, most: int = ROOM) -> Any:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, most + 1, (count, batch), generator=generator).int().cuda()


def chunks() -> Iterator[range]:
    for first in range(0, STEPS, QUEUED):
        yield range(first, first + QUEUED)


def check_steps(step: Call, reset: Callable[[], None]) -> None:
    """Each step's result queued behind others is what it gives alone."""
    reset()
    expected = []
    for number in range(STEPS):
        expected.append(step(number).clone())
        torch.cuda.synchronize()
    reset()
    found = []
    for chunk in chunks():
        torch.cuda.synchronize()
        torch.cuda._sleep(PAUSE)
        found += [step(number) for number in chunk]
    torch.cuda.synchronize()
    assert [number for number in range(STEPS) if not torch.equal(found[number], expected[number])] == []


@pytest.mark.parametrize("most", [1024, ROOM])
def test_keys_and_lengths_that_a_foreign_kernel_has_just_written(most: int) -> None:
    """A copy of all keys, and of lengths, before each call; the next one overwrites them behind it."""
    batch = 2
    q, keys, values = (
        normal(batch, HEADS, 1, HEAD_DIM),
        *(normal(3, batch, KV_HEADS, most, HEAD_DIM, seed=s) for s in (1, 2)),
    )
    k, v, all_lens = torch.zeros_like(keys[0]), torch.zeros_like(values[0]), lengths(STEPS, batch, most)
    kv_lens = torch.zeros_like(all_lens[0])

    def step(number: int) -> Any:
        k.copy_(keys[number % 3])
        v.copy_(values[(number + 1) % 3])
        kv_lens.copy_(all_lens[number])
        return kernel()(q, k, v, kv_lens=kv_lens)

    check_steps(step, lambda: None)


@pytest.mark.parametrize("most", [1024, ROOM])
def test_dense_keys_that_a_foreign_kernel_has_just_written(most: int) -> None:
    """No length is in memory: a block waits as late as it can."""
    q, keys, values = normal(1, HEADS, 1, HEAD_DIM), *(normal(3, 1, KV_HEADS, most, HEAD_DIM, seed=s) for s in (1, 2))
    k, v = torch.zeros_like(keys[0]), torch.zeros_like(values[0])

    def step(number: int) -> Any:
        v.copy_(values[(number + 1) % 3])
        k.copy_(keys[number % 3])
        return kernel()(q, k, v)

    check_steps(step, lambda: None)


def test_calls_that_read_what_the_call_ahead_wrote() -> None:
    """They share counters and partial results, and write over the q that the call ahead reads."""
    k, v = (normal(1, KV_HEADS, ROOM, HEAD_DIM, seed=s) for s in (1, 2))
    sizes = [ROOM, 1000, 64, 5000, 1, 3333, 129, 8000]
    turns = torch.empty(2, 1, HEADS, 1, HEAD_DIM, device="cuda", dtype=torch.bfloat16)

    def step(number: int) -> Any:
        """Of the softmax's averages little is left after many steps: what is copied out is exact all the same."""
        own, other = turns[number % 2], turns[(number + 1) % 2]
        size = sizes[number % len(sizes)]
        kernel()(own, k[:, :, :size], v[:, :, :size], out=other)
        kernel()(other, k[:, :, -size:], v[:, :, -size:], out=own)
        kernel()(own, k[:, :, :size], v[:, :, -size:], out=other)
        return other.clone()

    check_steps(step, lambda: turns.copy_(normal(2, 1, HEADS, 1, HEAD_DIM)))


def test_tokens_that_are_appended_to_pages() -> None:
    """A generation loop: lengths grow by a foreign kernel, `attncc.append` writes the token, decode reads it."""
    batch, pages = 2, 2 * (STEPS // PAGE + 2)
    pools = [torch.zeros(pages, KV_HEADS, PAGE, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    table = torch.randperm(pages, generator=torch.Generator().manual_seed(1)).int().cuda().view(batch, -1)
    rows, kv_lens = normal(16, 3, batch, KV_HEADS, 1, HEAD_DIM), torch.zeros(batch, dtype=torch.int32, device="cuda")
    q = normal(16, batch, HEADS, 1, HEAD_DIM, seed=3)

    def step(number: int) -> Any:
        k_new, v_new, _ = rows[number % 16]
        kv_lens.add_(1)
        attncc.append(*pools, k_new, v_new, kv_lens, block_table=table)
        return kernel()(q[number % 16], *pools, kv_lens=kv_lens, block_table=table)

    def reset() -> None:
        kv_lens.zero_()
        for pool in pools:
            pool.zero_()

    check_steps(step, reset)


def recorded(calls: int, call: Call, **options: Any) -> tuple[Any, list[Any]]:
    """A graph of so many calls, and their results."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(graph, stream=side):
        results = [call(number) for number in range(calls)]
    return graph, results


@cache
def other_stream() -> Any:
    return torch.cuda.Stream()


@contextmanager
def beside(*, forked: bool) -> Iterator[None]:
    """Work for another stream, behind the current one's; that one goes on behind it."""
    if not forked:
        yield
        return
    other_stream().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other_stream()):
        yield
    torch.cuda.current_stream().wait_stream(other_stream())


def test_keys_that_another_stream_has_just_written() -> None:
    q, keys, values = normal(1, HEADS, 1, HEAD_DIM), *(normal(3, 1, KV_HEADS, ROOM, HEAD_DIM, seed=s) for s in (1, 2))
    k, v = torch.zeros_like(keys[0]), torch.zeros_like(values[0])

    def step(number: int) -> Any:
        with beside(forked=True):
            k.copy_(keys[number % 3])
            v.copy_(values[(number + 1) % 3])
        return kernel()(q, k, v)

    check_steps(step, lambda: None)


@pytest.mark.parametrize(
    ("own_lengths", "forked"), [(False, False), (True, False), (False, True)], ids=["dense", "lengths", "two streams"]
)
def test_graphs(own_lengths: bool, forked: bool) -> None:
    """Of 25 layers, each of which writes its keys and reads them: replayed 40 times with other keys and lengths."""
    layers, replays, batch, most = 25, 40, 1, 2048
    q, keys = normal(batch, HEADS, 1, HEAD_DIM), normal(2, layers, batch, KV_HEADS, most, HEAD_DIM, seed=1)
    k, v = (torch.zeros_like(keys[0, 0]) for _ in range(2))
    all_lens, kv_lens = lengths(replays, batch, most), torch.ones(batch, dtype=torch.int32, device="cuda")
    given = {"kv_lens": kv_lens} if own_lengths else {}

    def layer(number: int) -> Any:
        with beside(forked=forked):
            k.copy_(keys[0, number])
            v.copy_(keys[1, number])
        return kernel()(q, k, v, **given)

    graph, results = recorded(layers, layer)
    for replay in range(replays):
        keys.copy_(keys.roll(1, dims=1))
        kv_lens.copy_(all_lens[replay])
        graph.replay()
        torch.cuda.synchronize()
        found = [result.clone() for result in results]
        for number in range(layers):
            expected = layer(number)
            torch.cuda.synchronize()
            assert torch.equal(found[number], expected), (replay, number)


def test_graphs_of_decode_alone() -> None:
    """Nothing stands between 40 calls, each of which reads the result ahead; replays follow each other at once."""
    k, v = (normal(40, 1, KV_HEADS, 1500, HEAD_DIM, seed=s) for s in (1, 2))
    state = normal(1, HEADS, 1, HEAD_DIM)

    def chain(*, pauses: bool) -> list[Any]:
        found = [state]
        for keys, values in zip(k, v, strict=True):
            found.append(kernel()(found[-1], keys, values))
            if pauses:
                torch.cuda.synchronize()
        return found[1:]

    graph, (results,) = recorded(1, lambda _: chain(pauses=False))
    for seed in range(25):
        state.copy_(normal(1, HEADS, 1, HEAD_DIM, seed=seed))
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        found = [result.clone() for result in results]
        assert all(map(torch.equal, found, chain(pauses=True))), seed


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = (
        *((name, ctypes.c_ubyte) for name in ("from_port", "to_port", "type")),
        ("reserved", ctypes.c_ubyte * 5),
    )


def test_graphs_have_programmatic_edges() -> None:
    """Between calls of decode kernels that follow each other; ahead of the first there is nothing."""
    api = ctypes.CDLL("libcuda.so.1")
    if not hasattr(api, "cuGraphGetEdges_v2") or not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        pytest.skip("the driver, or torch, shows no edges")
    q, k = normal(1, HEADS, 1, HEAD_DIM), normal(1, KV_HEADS, 1024, HEAD_DIM)
    graph, _ = recorded(4, lambda _: kernel()(q, k, k), keep_graph=True)
    count, (edges, starts, ends) = (
        ctypes.c_size_t(16),
        ((EdgeData * 16)(), *((ctypes.c_void_p * 16)() for _ in range(2))),
    )
    raw = ctypes.c_void_p(graph.raw_cuda_graph())
    assert api.cuGraphGetEdges_v2(raw, starts, ends, edges, ctypes.byref(count)) == 0
    assert [edge.type for edge in edges[: count.value]] == [PROGRAMMATIC] * 3
