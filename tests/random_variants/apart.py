"""Each check in a process of its own: a kernel that crashes the emulator, or waits for ever, is a finding."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from tests.random_variants import emulated
from tests.random_variants.emulated import Finding

SECONDS = 600
_FORKING = get_context("fork")  # what is imported needn't be again


@contextmanager
def folder() -> Iterator[Path]:
    """Where compiled kernels lie as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="attncc-random-") as name:
        yield Path(name)


def check(seed: int, kind: str, compiled: Path) -> Finding | bool:
    """`emulated.check`; what a variant's kernels were compiled to is removed after it. Kinds have folders of their own,
    as another process may be at the same variant."""
    compiled = compiled / kind.replace(" ", "_")
    compiled.mkdir(exist_ok=True)
    ours, theirs = _FORKING.Pipe(duplex=False)
    child = _FORKING.Process(target=_send, args=(theirs, seed, kind, compiled))
    child.start()
    theirs.close()
    try:
        found: Finding | bool = ours.recv() if ours.poll(SECONDS) else _lost(seed, kind, f"hangs for {SECONDS} s")
    except EOFError:
        child.join()
        found = _lost(seed, kind, f"ends its process with {child.exitcode}")
    child.kill()
    child.join()
    _clear(compiled, seed)
    return found


def _send(to: Connection, seed: int, kind: str, compiled: Path) -> None:
    tempfile.tempdir = str(compiled)
    try:
        to.send(emulated.check(seed, kind))
    except Exception:  # a finding as well
        to.send(_lost(seed, kind, traceback.format_exc()))


def _lost(seed: int, kind: str, how: str) -> Finding:
    return Finding(seed, kind, "", (how,))


def _clear(compiled: Path, seed: int) -> None:
    for source in compiled.rglob("*.cpp"):
        if f"random_{seed}_" in source.read_text():
            for path in source.parent.glob(f"{source.stem}.*"):
                path.unlink()
