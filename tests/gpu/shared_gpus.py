"""One attention on two GPUs with NCCL, against one GPU: what each process of tests/gpu/test_shared_gpus.py runs.

`python -m tests.gpu.shared_gpus` runs the same with two processes on the CPU, graphs apart.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import attncc
import attncc.distributed as shared

RANKS, ROWS, DIM, HEADS = 2, 2048, 64, (4, 2)
SPECS: dict[str, dict[str, Any]] = {
    "causal": {},
    "causal_top_left": {},
    "sliding_window": {"width": 500},
    "documents": {},
    "dropout_attention": {"rate": 0.3},
}
LENGTHS = (700, 64, 1000)
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def kernel_of(spec: str) -> Any:
    return attncc.compile(spec, dtype="bf16", head_dim=DIM, **SPECS[spec])


def inputs_of(spec: str) -> dict[str, Any]:
    if spec != "documents":
        return {}
    return {"doc": np.repeat(np.arange(3), [300, 1000, 748])[None].astype(np.int32)}


class Rank:
    def __init__(self, rank: int, device: str) -> None:
        self.rank, self.device = rank, device

    def drawn(self, *shape: int, seed: int = 0) -> Any:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16().to(self.device)

    def operands(self) -> list[Any]:
        return [self.drawn(1, heads, ROWS, DIM, seed=seed) for seed, heads in enumerate((HEADS[0], HEADS[1], HEADS[1]))]

    def gradients(self, call: Callable[..., Any], operands: list[Any], given: dict[str, Any], dout: Any) -> list[Any]:
        leaves = [x.detach().requires_grad_() for x in operands]
        out = call(*leaves, **given)
        out.backward(dout)
        return [out.detach(), *(x.grad for x in leaves)]

    def shares(self, spec: str) -> str:
        """out and gradients are those of one GPU, the same bits in ten runs, by either transport, and compiled; bytes
        are the plan's."""
        kernel, inputs = kernel_of(spec), inputs_of(spec)
        machine = shared.Machine(RANKS, flops=1e12, launch=0)  # so that heads travel one after the other
        plan = shared.plan(kernel, ROWS, ranks=RANKS, heads=HEADS, head_dim=DIM, batch=1, machine=machine, **inputs)
        cp, by_collective = (shared.shard(kernel, plan=plan, transport=way) for way in ("peer", "collective"))
        given: dict[str, Any] = {name: torch.from_numpy(x).to(self.device) for name, x in inputs.items()}
        given |= {"seed": 7} if spec == "dropout_attention" else {}
        whole, dout = self.operands(), self.drawn(1, HEADS[0], ROWS, DIM, seed=9)
        wanted = self.gradients(kernel, whole, given, dout)
        own, own_dout = [cp.shard(x, 2) for x in whole], cp.shard(dout, 2)
        first = self.gradients(cp, own, given, own_dout)
        together = [cp.unshard(x, 2) for x in first]
        wrong = "".join(_difference(*pair) for pair in zip(("out", "dq", "dk", "dv"), together, wanted, strict=True))
        (exchange,), (mask,) = cp.exchanges.values(), plan.masks
        rows, sent = mask.rows_received(self.rank), mask.sent[self.rank] // plan.row_bytes
        wide = 1 if cp.launches(whole[0].device).keys_back.single else 2
        size = (2 * rows + wide * sent) * plan.row_bytes  # K and V twice, and gradients: of several launches in fp32
        wrong += "" if exchange.bytes_received == size else f"{exchange.bytes_received} bytes for {size}; "
        runs = [self.gradients(cp, own, given, own_dout) for _ in range(10)]
        runs.append(self.gradients(by_collective, own, given, own_dout))
        runs.append(self.gradients(torch.compile(cp, fullgraph=True, backend="aot_eager"), own, given, own_dout))
        same = all(torch.equal(a, b) for run in runs for a, b in zip(first, run, strict=True))
        return wrong + ("" if same else "other bits in another run; ")

    def goes_on(self) -> str:
        """The same bits after calls that were refused half-way, and of k and v that have to be copied to be sent."""
        kernel = kernel_of("sliding_window")
        plan = shared.plan(kernel, ROWS, ranks=RANKS, heads=HEADS, head_dim=DIM, batch=1, chunk=ROWS // RANKS // 4)
        cp = shared.shard(kernel, plan=plan, transport="peer")
        q, k, v = (cp.shard(x, 2) for x in self.operands())
        first, wrong = cp(q, k, v), ""
        for _ in range(4):
            try:
                cp(*(x[..., : DIM // 2] for x in (q, k, v)))
                wrong += "half of the head dim isn't refused; "
            except attncc.AttnccError:
                out = cp(q, *(x.mT.contiguous().mT for x in (k, v)))
                torch.full((4, *k.shape), torch.nan, dtype=k.dtype, device=k.device)  # in memory that is free again
                wrong += "" if torch.equal(out, first) else "other bits after a refused call; "
        return wrong

    def decodes(self, spec: str, interleave: int | None) -> str:
        """One query over a cache: as on one GPU, and by a graph whose lengths change."""
        kernel, inputs = kernel_of(spec), inputs_of(spec)
        given = {name: torch.from_numpy(x).to(self.device).expand(3, -1).contiguous() for name, x in inputs.items()}
        q = self.drawn(3, HEADS[0], 1, DIM)
        k, v = (self.drawn(3, HEADS[1], 1024, DIM, seed=seed) for seed in (1, 2))
        starts = torch.tensor([[0, 0, 0], [300, 500, 0]], dtype=torch.int32, device=self.device)
        kv_lens = torch.tensor(LENGTHS, dtype=torch.int32, device=self.device)
        decode = shared.decode(kernel, interleave=interleave)
        more = {**given, **({} if interleave else {"kv_starts": starts})}
        own = [self.own_keys(x, interleave, starts) for x in (k, v)]

        def step() -> Any:
            return decode(q, *own, kv_lens=kv_lens, **more)

        wrong = _difference("out", step(), kernel(q, k, v, kv_lens=kv_lens, **given))
        if self.device == "cpu":
            return wrong
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog asks for events meanwhile
            out = step()
        kv_lens -= 60
        graph.replay()
        return wrong + _difference("out of a graph", out, kernel(q, k, v, kv_lens=kv_lens, **given))

    def own_keys(self, x: Any, interleave: int | None, starts: Any) -> Any:
        """This rank's rows of a cache, and NaN behind them."""
        own, place = torch.full_like(x, torch.nan), torch.arange(x.shape[2])
        for b in range(len(x)):
            cut = int(starts[1, b])
            mine = place // interleave % RANKS == self.rank if interleave else (place >= cut) == bool(self.rank)
            own[b, :, : int(mine.sum())] = x[b][:, mine.to(x.device)]
        return own


def _difference(name: str, found: Any, wanted: Any) -> str:
    error = float((found.float() - wanted.float()).abs().max() / wanted.float().abs().max())
    return "" if error < 1e-2 else f"{name} differs by {error:.2g}; "


def checks(own: Rank) -> Iterator[tuple[str, str]]:
    for spec in SPECS:
        yield spec, own.shares(spec)
    yield "goes on", own.goes_on()
    for spec, interleave in (("causal", None), ("sliding_window", None), ("sliding_window", 64), ("documents", None)):
        yield f"decode {spec} {interleave}", own.decodes(spec, interleave)


def process(rank: int, folder: str, device: str) -> None:
    warnings.simplefilter("ignore")
    if device == "cuda":
        os.environ |= NO_MULTICAST
        torch.cuda.set_device(rank)
    backend = {"cuda": "nccl", "cpu": "gloo"}[device]
    more: dict[str, Any] = {"device_id": torch.device("cuda", rank)} if device == "cuda" else {}
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS, **more)
    torch.use_deterministic_algorithms(True)
    found = dict(checks(Rank(rank, device)))
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def results(folder: str, device: str) -> list[dict[str, str]]:
    """Of each rank: what is wrong, by check."""
    torch.multiprocessing.spawn(process, (folder, device), nprocs=RANKS)
    return [json.loads(Path(folder, f"{rank}.json").read_text("utf-8")) for rank in range(RANKS)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.exit(str([item for found in results(made, "cpu") for item in found.items() if item[1]]))
