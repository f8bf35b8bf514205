"""A small model under DDP and FSDP2, compiled and checkpointed, whose attention ranks share: what each process runs.

Four processes: two groups of two, each with a batch of its own (dp), whose sequences the two share (cp).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import attncc
import attncc.distributed as shared
from attncc.distributed import transport

WORLD, ROWS, DIM, HEADS, LAYERS = 4, 64, 16, 2, 2
SLOPED = """attn 1
import masks
variant sloped {
    input slope: f32[head] learnable
    keep if causal()
    score = score - slope[h] * (q_pos - kv_idx)
}
"""
FORM: dict[str, Any] = {"dtype": "fp32", "head_dim": DIM}


class Layer(torch.nn.Module):
    def __init__(self, attend: Any, sloped: bool) -> None:
        super().__init__()
        self.attend = attend
        self.qkv = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM)
        self.out = torch.nn.Linear(HEADS * DIM, HEADS * DIM)
        self.slope = torch.nn.Parameter(torch.full((HEADS,), 0.1)) if sloped else None

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        given = {} if self.slope is None else {"slope": self.slope}
        return x + torch.tanh(self.out(self.attend(q, k, v, **given).transpose(1, 2).flatten(2)))


class Model(torch.nn.Module):
    """Layers take turns: a window, then causal attention with a learnable slope."""

    def __init__(self, attends: tuple[Any, Any], *, checkpoints: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Layer(attends[i % 2], i % 2 == 1) for i in range(LAYERS))
        self.checkpoints = checkpoints

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints else layer(x)
        return x

    @property
    def slopes(self) -> dict[str, Any]:
        return {name: x for name, x in self.named_parameters() if name.endswith("slope")}


def kernels() -> tuple[Any, Any]:
    return attncc.compile("sliding_window", width=12, **FORM), attncc.compile(SLOPED, **FORM)


def batches() -> tuple[Any, Any]:
    """Of each data rank, and what the loss weighs the outputs by."""
    generator = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(2, 1, ROWS, HEADS * DIM, generator=generator) for _ in range(2))
    return x, weight


def alone() -> dict[str, Any]:
    """The gradients that one process finds."""
    model, (x, weight) = Model(kernels()), batches()
    sum((model(each) * w).sum() for each, w in zip(x, weight, strict=True)).backward()
    return {name: x.grad for name, x in model.named_parameters()}


class Rank:
    def __init__(self, rank: int) -> None:
        self.mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
        self.everywhere = dist.device_mesh.init_device_mesh("cpu", (WORLD,))
        sizes: dict[str, Any] = {"ranks": 2, "heads": HEADS, "head_dim": DIM, "dtype": "fp32", "chunk": 8}
        plan = shared.plan(list(kernels()), ROWS, **sizes)
        self.cps = tuple(shared.shard(kernel, self.mesh["cp"], plan=plan) for kernel in kernels())
        x, weight = (given[self.mesh["dp"].get_local_rank()] for given in batches())
        self.x, self.weight = (self.cps[0].shard(given, 1) for given in (x, weight))
        self.wanted = alone()

    def gradients(self, run: Any, model: Model) -> dict[str, Any]:
        """Of a model that takes means over all processes, so its loss is that many times larger. Those of slopes are
        added up over cp already, and nobody else adds them up over dp."""
        slopes = list(model.slopes)  # in one order on all ranks
        (WORLD * (run(self.x) * self.weight).sum()).backward()
        found = {name: getattr(x.grad, "full_tensor", lambda x=x: x.grad)() for name, x in model.named_parameters()}
        for name in slopes:
            found[name] = found[name] / WORLD
            dist.all_reduce(found[name], group=self.mesh["dp"].get_group())
        return found

    def trouble(self, run: Any, model: Model) -> str:
        found = self.gradients(run, model)
        errors = {
            name: float((found[name] - grad).abs().max() / grad.abs().max()) for name, grad in self.wanted.items()
        }
        return ", ".join(f"{name} differs by {error:.2g}" for name, error in errors.items() if error > 2e-5)

    def ddp(self, **options: Any) -> str:
        compiles = options.pop("compiles", False)
        model = Model(self.cps, **options)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, list(model.slopes))
        run: Any = DistributedDataParallel(model)
        return self.trouble(torch.compile(run, backend="aot_eager") if compiles else run, model)

    def fsdp(self, *, compiles: bool = False, **options: Any) -> str:
        model = Model(self.cps, **options)
        for layer in model.layers:
            if compiles:
                layer.compile(backend="aot_eager", fullgraph=True)
            fully_shard(layer, mesh=self.everywhere, ignored_params=set(model.slopes.values()))
        fully_shard(model, mesh=self.everywhere, ignored_params=set(model.slopes.values()))
        assert isinstance(model, FSDPModule)
        return self.trouble(model, model)

    def compiled(self) -> str:
        """One graph of the whole model; all gradients are added up by hand."""
        model = Model(self.cps)
        run = torch.compile(model, backend="aot_eager", fullgraph=True)
        (run(self.x) * self.weight).sum().backward()
        found = {name: x.grad for name, x in model.named_parameters()}
        for name, grad in found.items():
            dist.all_reduce(grad, group=self.mesh["dp"].get_group() if name in model.slopes else None)
        return ", ".join(
            n for n, grad in self.wanted.items() if not torch.allclose(found[n], grad, rtol=1e-4, atol=1e-4)
        )


class _Spied:
    """A kernel that says when it is launched."""

    def __init__(self, kernel: Any, events: list[str]) -> None:
        self._kernel, self._events, self.variant = kernel, events, kernel.variant

    def sibling(self) -> _Spied:
        return self

    def called(self, given: Any, stream: Any) -> Any:
        self._events.append(f"forward {given[0].shape[2]}")
        return self._kernel.called(given, stream)

    def backward_again(self, *given: Any) -> None:
        """No form is known."""

    def run_backward(self, arguments: Any) -> Any:
        self._events.append(f"backward {arguments.dout.shape[2]}")
        return self._kernel.run_backward(arguments)


class _Work:
    def __init__(self, work: Any, events: list[str]) -> None:
        self._work, self._events = work, events

    def wait(self) -> None:
        self._work.wait()
        self._events.append("arrived")


def order(keep_kv: bool, group: Any) -> list[str]:
    """What a rank does one after the other, in a call and its backward pass."""
    kernel, events, begin = kernels()[0], list[str](), dist.all_to_all_single
    plan = shared.plan(kernel, ROWS, ranks=2, heads=HEADS, head_dim=DIM, dtype="fp32", chunk=8)
    cp = shared.shard(kernel, group, plan=plan, keep_kv=keep_kv)
    cp.launches(torch.device("cpu"))._kernel = _Spied(kernel, events)

    def spied(*given: Any, **more: Any) -> _Work:
        events.append("begins")
        return _Work(begin(*given, **more), events)

    transport.dist.all_to_all_single = spied
    try:
        q, k, v = (torch.randn(1, HEADS, ROWS // 2, DIM, requires_grad=True) for _ in range(3))
        cp(q, k, v).sum().backward()
    finally:
        transport.dist.all_to_all_single = begin
    return events


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    own = Rank(rank)
    found = {
        "ddp": own.ddp(),
        "ddp, checkpointed": own.ddp(checkpoints=True),
        "ddp, compiled": own.ddp(compiles=True),
        "fsdp": own.fsdp(),
        "fsdp, checkpointed": own.fsdp(checkpoints=True),
        "fsdp, compiled": own.fsdp(compiles=True),
        "compiled": own.compiled(),
        "order": order(False, own.mesh["cp"]),
        "order, kept": order(True, own.mesh["cp"]),
        "rank": own.mesh["cp"].get_local_rank(),
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
