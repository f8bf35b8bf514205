"""Which transport carries rows: copies into other ranks' memory, or a collective."""

from __future__ import annotations

import socket
from typing import Any

import torch
import torch.distributed as dist

from ..problem.refusal import refused
from .engines import why_no_peers
from .peer_memory import peer_memory
from .peer_transport import PeerExchange
from .plan_data import MaskPlan, PlanData
from .transport import Exchange

TRANSPORTS = ("auto", "peer", "collective")


def exchange_of(  # noqa: PLR0917  (as Exchange takes them)
    transport: str, plan: PlanData, mask: MaskPlan, group: Any, axis: int, device: Any
) -> Exchange:
    """All ranks of the group call this together. AttnccError A726 if the transport is "peer" and can't be."""
    usual = transport == "auto" and torch.device(device).type != "cuda"
    if transport == "collective" or usual or not any(mask.receives):
        return Exchange(plan, mask, group, axis, device)
    why = _why_not(plan, group, device)
    if not why:
        return PeerExchange(plan, mask, group, axis, device, peer_memory(group, device))
    if transport == "peer":
        on_gpu = torch.device(device).type == "cuda"
        expected = "GPUs of one node that reach each other's memory" if on_gpu else "processes of one host, an x86-64"
        raise refused("A726", "ranks can't copy into each other's memory", expected=expected, came=why)
    return Exchange(plan, mask, group, axis, device)


def _why_not(plan: PlanData, group: Any, device: Any) -> str:
    """The same on all ranks: why one of them can't; empty if all can."""
    if plan.machine.nodes > 1:
        return f"a plan of {plan.machine.nodes} nodes"
    own = socket.gethostname(), why_no_peers(device, group)
    answers: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(answers, own, group)
    if len({host for host, _ in answers}) > 1:
        return "ranks on several hosts"
    return next((f"rank {rank}: {why}" for rank, (_, why) in enumerate(answers) if why), "")
