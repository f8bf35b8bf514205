"""Processes of torch.distributed on the CPU, for tests.

A server forks them. It imports torch and the tests' modules once, where each process would take seconds for it. This
process can't fork them itself: autograd has threads here.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import torch

from attncc.distributed.engines import why_no_peers

PEERS = not why_no_peers("cpu", None)  # whether processes here can copy into each other's memory
# What the server imports as it starts. A process imports the rest.
IMPORTED = [
    "torch.distributed",
    *("torch._dynamo", "functorch.compile"),  # what torch.compile imports when it is first used
    "attncc.distributed",
    *(f"tests.unit.distributed.{name}" for name in ("decoding", "late", "poisoned", "refusals", "sharing", "training")),
]


def run_ranks(process: Callable[..., None], arguments: tuple[Any, ...], nprocs: int) -> None:
    """`process(rank, *arguments)` in each process. Raises the error of one, as torch.multiprocessing.spawn does."""
    multiprocessing.set_forkserver_preload(IMPORTED)
    torch.multiprocessing.start_processes(process, arguments, nprocs, start_method="forkserver")
