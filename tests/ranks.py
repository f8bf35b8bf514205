"""Processes of torch.distributed on the CPU, for tests.

A server forks them. It imports torch and the tests' modules once, where each process would take seconds for it. This
process can't fork them itself: autograd has threads here.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attncc.distributed.engines import why_no_peers

PEERS = not why_no_peers("cpu", None)  # whether processes here can copy into each other's memory
SECONDS = 240  # a process that isn't done by then waits for something that doesn't come
# What the server imports as it starts. A process imports the rest.
IMPORTED = [
    "torch.distributed",
    *("torch._dynamo", "functorch.compile"),  # what torch.compile imports when it is first used
    "attncc.distributed",
    *(f"tests.unit.distributed.{name}" for name in ("decoding", "late", "poisoned", "refusals", "sharing", "training")),
]


def run_ranks(process: Callable[..., None], arguments: tuple[Any, ...], nprocs: int) -> None:
    """`process(rank, *arguments)` in each process. Raises the error of one, as torch.multiprocessing.spawn does.

    A process that takes too long ends with an error that says where each of its threads is.
    """
    multiprocessing.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        given = (process, arguments, folder, SECONDS)
        try:
            torch.multiprocessing.start_processes(_timed, given, nprocs, start_method="forkserver")
        except torch.multiprocessing.ProcessExitedException as error:
            for file in sorted(Path(folder).iterdir()):
                error.add_note(f"process {file.name}: {file.read_text('utf-8') or 'no timeout'}")
            raise


def _timed(rank: int, process: Callable[..., None], arguments: tuple[Any, ...], folder: str, seconds: float) -> None:
    stacks = Path(folder, str(rank)).open("w")  # noqa: SIM115 (faulthandler keeps it)
    faulthandler.dump_traceback_later(seconds, exit=True, file=stacks)  # by a thread that needs no GIL
    process(rank, *arguments)
