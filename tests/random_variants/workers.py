"""Processes that check one variant after the other. A kernel that crashes its process, or waits for ever, is a finding;
a new process goes on with the variant's other kernels."""

from __future__ import annotations

import ctypes
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.random_variants.findings import Finding, Verdict

CHECK_SECONDS = 600  # longer than this, a kernel hangs
POLL_SECONDS = 5  # how often those that hang are looked for
VARIANTS = 100  # that a process checks before another takes its place: compiled kernels stay in memory
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>: what a process gets when its parent ends
_FORKING = get_context("fork")  # what is imported needn't be again

Check = Callable[[int, str], Finding | bool]
Forget = Callable[[int], None]


@dataclass(frozen=True)
class Job:
    """What processes do: `check` each of the kinds for a seed, then `forget` what was kept for it."""

    check: Check
    forget: Forget
    kinds: tuple[str, ...]


@dataclass
class _Worker:
    """A process, and the variant that it is at."""

    job: Job
    verdict: Verdict | None = None
    begun: float = 0.0  # the variant
    kind_begun: float = 0.0
    variants: int = 0
    process: Any = field(init=False)
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection, theirs = _FORKING.Pipe()
        self.process = _FORKING.Process(target=_serve, args=(theirs, self.job), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, verdict: Verdict) -> None:
        """Its kinds that have no result yet."""
        self.verdict, self.begun, self.kind_begun = verdict, time.monotonic(), time.monotonic()
        self.variants += 1
        self.connection.send((verdict.seed, self._left()))

    def take(self) -> bool:
        """One result. Whether the process can go on."""
        assert self.verdict is not None
        try:
            found = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            found = self._lost(f"ends its process with {self.process.exitcode}")
        return self._add(found)

    def hangs(self) -> bool:
        return self.verdict is not None and time.monotonic() - self.kind_begun > CHECK_SECONDS

    def give_up(self) -> None:
        self._add(self._lost(f"hangs for {CHECK_SECONDS} s"))

    def done(self) -> bool:
        return not self._left()

    def stop(self) -> None:
        if self.verdict is not None:
            self.verdict.seconds += time.monotonic() - self.begun
        self.process.kill()
        self.process.join()
        self.connection.close()

    def _left(self) -> tuple[str, ...]:
        assert self.verdict is not None
        return tuple(kind for kind in self.job.kinds if kind not in self.verdict.passes)

    def _lost(self, how: str) -> Finding:
        assert self.verdict is not None
        return Finding(self.verdict.seed, self._left()[0], "", (how,))

    def _add(self, found: Finding | bool) -> bool:
        assert self.verdict is not None
        self.verdict.add(self._left()[0], found)
        self.kind_begun = time.monotonic()
        return not isinstance(found, Finding)  # a wrong kernel may have left the emulated or real GPU in disorder


def _serve(connection: Connection, job: Job) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        try:
            seed, kinds = connection.recv()
        except EOFError:
            return
        for kind in kinds:
            found: Finding | bool
            try:
                found = job.check(seed, kind)
            except Exception:  # a finding as well
                found = Finding(seed, kind, "", (traceback.format_exc(),))
            connection.send(found)
        job.forget(seed)


def verdicts(job: Job, seeds: Iterator[int], processes: int, until: float) -> Iterator[Verdict]:
    """Those of each seed, as they come. None begins after `until` (of `time.monotonic`), and what runs then is left."""
    workers = [_Worker(job) for _ in range(processes)]
    try:
        for worker in workers:
            _next(worker, seeds)
        while busy := [worker for worker in workers if worker.verdict is not None]:
            ready = wait([worker.connection for worker in busy], max(min(until - time.monotonic(), POLL_SECONDS), 0))
            if time.monotonic() >= until:
                return
            for worker in busy:
                if worker.connection in ready or worker.hangs():
                    yield from _step(workers, worker, seeds)
    finally:
        for worker in workers:
            worker.stop()


def _step(workers: list[_Worker], worker: _Worker, seeds: Iterator[int]) -> Iterator[Verdict]:
    """Takes a result, or what a kernel that hangs is. The verdict, if it is complete."""
    if worker.hangs():
        worker.give_up()
        goes_on = False
    else:
        goes_on = worker.take()
    verdict, done = worker.verdict, worker.done()
    assert verdict is not None
    if not goes_on or (done and worker.variants >= VARIANTS):
        worker.stop()
        fresh = _Worker(worker.job)
        workers[workers.index(worker)] = fresh
        worker = fresh
        if not done:
            worker.begin(verdict)
    elif done:
        verdict.seconds += time.monotonic() - worker.begun
    if done:
        yield verdict
        _next(worker, seeds)


def _next(worker: _Worker, seeds: Iterator[int]) -> None:
    worker.verdict = None
    seed = next(seeds, None)
    if seed is not None:
        worker.begin(Verdict(seed))
