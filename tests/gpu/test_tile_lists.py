"""Lists of live tiles on the GPU: the same bits as where the kernel tests tiles itself, in every sort of call."""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc.resources import folder
from tests.devices import cuda
from tests.kernels import without_decode

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

HEAD_DIM = 64
TILES = {  # the same with lists and without: other tiles would add up in another order
    "portable": "block_q = 64 block_kv = 32",
    "hopper": "block_q = 128 block_kv = 64",
}

BY_HEAD = "input wanted: bool[batch, head, _, _]\nkeep if wanted[b, h, q_idx // 64, kv_idx // 64]"
TEXTS = {
    "by head": BY_HEAD,
    "by head, causal": f"{BY_HEAD}\nkeep if q_pos >= kv_idx",
    "documents in any order": "input doc: i32[batch, pos]\nkeep if doc[b, q_pos] == doc[b, kv_idx]",
    "stripes": "keep if (q_idx // 48 + kv_idx // 48) % 5 == 0",
    "far apart": "keep if kv_idx // 64 % 100 == q_idx // 64 % 100",
}


def pair(lines: str, family: str, settings: str = "") -> tuple[Any, Any]:
    """The kernel with lists, and the one without."""
    target = "sm_90a" if family == "hopper" else cuda().target
    if family == "hopper" and cuda().target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")

    def made(skip: str) -> Any:
        schedule = f"schedule s for v on {target} {{ family = {family} skip = {skip} {TILES[family]} {settings} }}"
        text = f"attn 1\nvariant v {{\n{lines}\n}}\n{schedule}\n"
        return without_decode(text, dtype="bf16", head_dim=HEAD_DIM, value_head_dim=HEAD_DIM, arch=target)

    return made("lists"), made("in_kernel")


def given(name: str, batch: int, heads: int, q_len: int, kv_len: int) -> dict[str, Any]:
    generator = torch.Generator("cuda").manual_seed(q_len)
    if name.startswith("by head"):
        shape = (batch, heads, -(-q_len // 64), -(-kv_len // 64))
        wanted = torch.rand(shape, generator=generator, device="cuda") < 0.05
        wanted[:, 0] = False  # a head that keeps nothing
        return {"wanted": wanted}
    if name.startswith("documents"):
        doc = torch.randint(0, 40, (batch, -(-kv_len // 100)), generator=generator, device="cuda", dtype=torch.int32)
        return {"doc": doc.repeat_interleave(100, dim=1)[:, :kv_len].contiguous()}
    return {}


def qkv(batch: int, heads: int, q_len: int, kv_len: int) -> list[Any]:
    shapes = ((batch, heads, q_len), (batch, max(heads // 2, 1), kv_len), (batch, max(heads // 2, 1), kv_len))
    return [torch.randn(*shape, HEAD_DIM, device="cuda").bfloat16() for shape in shapes]


@pytest.mark.parametrize("settings", ["", "split_kv = 3"])
@pytest.mark.parametrize("family", ["portable", "hopper"])
@pytest.mark.parametrize("name", TEXTS)
def test_the_same_bits(name: str, family: str, settings: str) -> None:
    listed, tested = pair(TEXTS[name], family, settings)
    for sizes in ((2, 4, 300, 300), (1, 2, 1000, 5000), (2, 2, 5000, 1000), (1, 2, 70, 70_000)):
        arrays, inputs = qkv(*sizes), given(name, *sizes)
        out, lse = listed(*arrays, return_lse=True, **inputs)
        again, lse_again = tested(*arrays, return_lse=True, **inputs)
        assert torch.equal(out, again) and torch.equal(lse, lse_again), sizes


@pytest.mark.parametrize("family", ["portable", "hopper"])
def test_packed_batches(family: str) -> None:
    listed, tested = pair(TEXTS["documents in any order"], family)
    starts = torch.tensor([0, 300, 300, 2300, 2301], dtype=torch.int32, device="cuda")
    q, doc = torch.randn(2, 2301, HEAD_DIM, device="cuda").bfloat16(), given("documents", 1, 2, 2301, 2301)["doc"][0]
    call = {"doc": doc, "cu_seqlens_q": starts, "cu_seqlens_kv": starts}
    assert torch.equal(listed(q, q, q, **call), tested(q, q, q, **call))


@pytest.mark.parametrize("family", ["portable", "hopper"])
def test_graphs_list_the_tiles_of_what_is_there_when_they_run(family: str) -> None:
    listed, tested = pair(TEXTS["by head"], family)
    sizes = (2, 4, 1000, 2000)
    arrays, wanted = qkv(*sizes), given("by head", *sizes)["wanted"]
    listed(*arrays, wanted=wanted)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = listed(*arrays, wanted=wanted)
    for _ in range(2):
        wanted.copy_(torch.rand(wanted.shape, device="cuda") < 0.1)
        graph.replay()
        assert torch.equal(out, tested(*arrays, wanted=wanted))


@pytest.mark.parametrize("spec", ["block_map", "selected_attention", "vsa", "natten", "jetspec_tree"])
def test_specs(spec: str) -> None:
    """Those of the library that leave few tiles, under `skip = lists`."""
    import numpy as np

    from attncc import synthetic
    from attncc.problem import Problem

    target, text = cuda().target, (folder("specs") / f"{spec}.attn").read_text().partition("\nschedule ")[0]
    problem = Problem(2, 4, 2, 1500, 1500, HEAD_DIM, HEAD_DIM)
    kernels = [
        attncc.compile(
            f"{text}\nschedule s for {spec} on {target} {{ skip = {skip} {TILES['portable']} }}\n",
            dtype="bf16", head_dim=HEAD_DIM, arch=target,
        )
        for skip in ("lists", "in_kernel")
    ]  # fmt: skip
    drawn = synthetic.inputs(kernels[0].variant, problem, np.random.default_rng(1))
    inputs = {name: torch.from_numpy(array).cuda() for name, array in drawn.items()}
    arrays = qkv(2, 4, 1500, 1500)
    first, second = (kernel(*arrays, **inputs) for kernel in kernels)
    assert torch.equal(first, second)
