"""What two processes try that must not pass in silence: each returns the text of what was raised."""

from __future__ import annotations

import datetime
import json
import os
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
import torch.utils.checkpoint

import attncc
import attncc.distributed as shared
from attncc.distributed import engines
from attncc.distributed.launches import launches_of
from tests.ranks import PEERS

SIZES: dict[str, Any] = {"ranks": 2, "heads": 2, "head_dim": 16, "dtype": "fp32"}
TIMEOUT, SOON = 20, 1  # seconds
TRANSPORTS = ("collective", "peer") if PEERS else ("collective",)


def _kernel(spec: str = "sliding_window") -> attncc.Kernel:
    consts = {"width": 20} if spec == "sliding_window" else {}
    return attncc.compile(spec, dtype="fp32", head_dim=16, **consts)


def _rows(rows: int = 32, dtype: Any = torch.float32) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, rows, 16, generator=generator).to(dtype) for _ in range(3)]


def other_plans(rank: int) -> None:
    """As of batches with other documents."""
    shared.shard(_kernel(), plan=shared.plan(_kernel(), [32 + rank, 32 - rank], **SIZES))


def other_ranks(rank: int) -> None:
    shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, **{**SIZES, "ranks": 4}))


def other_kernel(rank: int) -> None:
    shared.shard(_kernel("causal"), plan=shared.plan(_kernel(), 64, **SIZES))


def other_consts(rank: int) -> None:
    wider = attncc.compile("sliding_window", dtype="fp32", head_dim=16, width=30)
    shared.shard(wider, plan=shared.plan(_kernel(), 64, **SIZES))


def other_inputs(rank: int) -> None:
    """Documents that end elsewhere than those of the plan; the plan's own are taken."""
    kernel, doc = _kernel("documents"), np.repeat(np.arange(2), [20, 44])[None].astype(np.int32)
    cp = shared.shard(kernel, plan=shared.plan(kernel, 64, doc=doc, **SIZES))
    changing = torch.from_numpy(doc.copy())
    cp(*_rows(), doc=changing)
    cp(*_rows(), doc=changing)
    changing[0, 20] = 0
    cp(*_rows(), doc=changing)


def whole_rows(rank: int) -> None:
    shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, **SIZES))(*_rows(64))


def arrays(rank: int) -> None:
    shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, **SIZES))(*(x.numpy() for x in _rows()))


def other_sequences(rank: int) -> None:
    """Of a batch of two on one rank: rows would lie elsewhere in the other's memory."""
    cp = shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, **SIZES))
    cp(*(x.expand(1 + rank, -1, -1, -1) for x in _rows()))


def no_seed(rank: int) -> None:
    kernel = _kernel("dropout_attention")
    shared.shard(kernel, plan=shared.plan(kernel, 64, **SIZES))(*_rows())


def on_gpus(rank: int) -> None:
    text = "attn 1\nvariant halved {\ninput row: f32[batch, q]\nscore = score + row[b, q_idx // 2]\n}\n"
    kernel = attncc.compile(text, dtype="fp32", head_dim=16)
    plan = shared.plan(kernel, [24, 40], **SIZES)
    launches_of(kernel, plan, plan.masks[0], rank, "cuda:0")


def other_gradients(rank: int) -> None:
    shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, **SIZES), gradients="fp8")


def other_transport(rank: int) -> None:
    shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, **SIZES), transport="nccl")


def own_lengths(rank: int) -> None:
    """Each launch would take them for its own keys."""
    shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, **SIZES))(*_rows(), kv_lens=torch.tensor([5]))


def tensors_for_a_plan(rank: int) -> None:
    shared.plan(_kernel("documents"), 64, doc=torch.arange(64)[None], **SIZES)


def a_name_for_a_plan(rank: int) -> None:
    shared.plan("causal", 64, **SIZES)


def peers_of_nodes(rank: int) -> None:
    cp = shared.shard(_kernel(), plan=shared.plan(_kernel(), 64, nodes=2, **SIZES), transport="peer")
    cp(*_rows())


def no_memory(rank: int) -> None:
    """One of two has none that both could write to."""
    group = dist.new_group([0, 1])
    cp = shared.shard(_kernel("full"), group, plan=shared.plan(_kernel("full"), 64, **SIZES), transport="peer")
    with patch.object(engines, "_reserved", lambda file, size: "No space left on device" if rank == 1 else ""):
        cp(*_rows())


REFUSED: dict[str, tuple[Callable[[int], None], str]] = {
    "plans that differ": (other_plans, "A722"),
    "other number of ranks": (other_ranks, "A722"),
    "other kernel": (other_kernel, "A722"),
    "other consts": (other_consts, "A722"),
    "other inputs": (other_inputs, "A722"),
    "other rows": (whole_rows, "A721"),
    "arrays of NumPy": (arrays, "A721"),
    "other sequences": (other_sequences, "A721"),
    "no seed": (no_seed, "A612"),
    "what GPUs can't cut": (on_gpus, "A724"),
    "no type of gradients": (other_gradients, "A722"),
    "an argument of kernels alone": (own_lengths, "A608"),
    "tensors for a plan": (tensors_for_a_plan, "A622"),
    "a name for a plan": (a_name_for_a_plan, "A720"),
    "no transport": (other_transport, "A722"),
    "peers of several nodes": (peers_of_nodes, "A726"),
    "no memory to share": (no_memory, "A726"),
}


def gradients(cp: Any, whole: list[Any]) -> list[Any]:
    operands = [cp.shard(x, 2).requires_grad_() for x in whole]
    cp(*operands).square().sum().backward()
    return [x.grad for x in operands]


def compiled(cp: Any, whole: list[Any], wanted: list[Any]) -> bool:
    """Whether a graph without breaks has a call, with the same gradients."""
    operands = [cp.shard(x, 2).requires_grad_() for x in whole]
    step = torch.compile(lambda *given: cp(*given).square().sum(), backend="aot_eager", fullgraph=True)
    step(*operands).backward()
    return all(torch.equal(x.grad, grad) for x, grad in zip(operands, wanted, strict=True))


def checkpointed(cp: Any, whole: list[Any], wanted: list[Any]) -> bool:
    """Whether a call that is computed again in the backward pass has the same gradients."""
    operands = [cp.shard(x, 2).requires_grad_() for x in whole]
    torch.utils.checkpoint.checkpoint(cp, *operands, use_reentrant=False).square().sum().backward()
    return all(torch.equal(x.grad, grad) for x, grad in zip(operands, wanted, strict=True))


def goes_on(plan: Any, whole: list[Any], wanted: list[Any]) -> bool:
    """Whether ranks that copy into each other's memory find the same after calls that were refused half-way."""
    if not PEERS:
        return True
    cp = shared.shard(_kernel(), plan=plan, transport="peer")
    same = []
    for _ in range(3):
        try:
            cp(*(x[..., :8] for x in (cp.shard(x, 2) for x in whole)))
            return False
        except attncc.AttnccError:
            same.append(gradients(cp, whole))
    return all(torch.equal(a, b) for found in same for a, b in zip(wanted, found, strict=True))


def options() -> dict[str, bool]:
    """Gradients in bf16 are near those in fp32, cost half, and calls repeat to the bit; meshes are groups."""
    kernel, plan, whole = _kernel(), shared.plan(_kernel(), 64, **SIZES), _rows(64)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    exact, rounded = shared.shard(kernel, mesh, plan=plan), shared.shard(kernel, plan=plan, gradients="bf16")
    first, near = gradients(exact, whole), gradients(rounded, whole)
    ((_, of_exact),), ((_, of_rounded),) = exact.exchanges.items(), rounded.exchanges.items()
    back = of_exact.bytes_received - of_rounded.bytes_received
    sent = plan.masks[0].sent[exact.rank]  # in fp32, as K and V are; gradients of these rows come back
    repeats = [gradients(exact, whole) for _ in range(10)]
    return {
        "repeats": all(torch.equal(a, b) for found in repeats for a, b in zip(first, found, strict=True)),
        "near": all(torch.allclose(a, b, atol=5e-2) for a, b in zip(first, near, strict=True)),
        "rounds": (sent == 0) == all(torch.equal(a, b) for a, b in zip(first, near, strict=True)),
        "half": back == sent // 2,
        "compiled": compiled(exact, whole, first),
        "checkpointed": checkpointed(exact, whole, first),
        "goes on": goes_on(plan, whole, first),
        "positions": bool(np.array_equal(exact.positions().numpy(), exact.rows().numpy())),
    }


def failing_backward(rank: int, transport: str) -> tuple[str, float]:
    """What is raised, and after how long, where the backward pass of rank 1 alone runs out of memory."""
    group, kernel = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=SOON)), _kernel("full")
    cp = shared.shard(kernel, group, plan=shared.plan(kernel, 64, **SIZES), transport=transport)
    out, start = cp(*(x.requires_grad_() for x in _rows())), time.monotonic()
    full = torch.OutOfMemoryError("no memory")
    with patch.object(cp.launches(out.device), "backward", side_effect=full) if rank == 1 else nullcontext():
        try:
            out.sum().backward()
        except (RuntimeError, attncc.AttnccError) as error:
            return type(error).__name__, time.monotonic() - start
    return "", 0


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    limit = datetime.timedelta(seconds=TIMEOUT)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=limit)
    found: dict[str, Any] = {"options": options()}
    for name, (attempt, _) in REFUSED.items():
        try:
            attempt(rank)
        except attncc.AttnccError as error:
            found[name] = error.diagnostics[0].code
        dist.barrier()
    for transport in TRANSPORTS:
        found[f"failing backward, {transport}"] = failing_backward(rank, transport)
        dist.barrier()
    soon = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=SOON))
    kernel, plan = _kernel("full"), shared.plan(_kernel("full"), 64, **SIZES)  # both ranks need the rows of the other
    cp = shared.shard(kernel, plan=plan)
    peers = [shared.shard(kernel, soon, plan=plan, transport="peer")] if PEERS else []
    for call in (cp, *peers):
        call(*_rows())
    if rank == 1:
        Path(folder, "1.json").write_text(json.dumps(found), encoding="utf-8")
        os._exit(0)  # dies between two calls, without a word
    for name, call in zip(("a dead rank", "a dead peer"), (cp, *peers), strict=False):
        start = time.monotonic()
        try:
            call(*_rows())
        except (RuntimeError, attncc.AttnccError):
            found[name] = time.monotonic() - start
    Path(folder, "0.json").write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)
