"""Processes that compile, each with one thread here that gives it work and waits for its reply.

They begin when work arrives, one for each core at most (`jobs`), and end after a minute without work or with this
process. What happens to one (a crash, too much time, too much memory) is the error of its compilation alone; the next
gets a new one.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from threading import Lock, local
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ...diagnostics import AttnccError, Diagnostic
from ...threads import DaemonThreads
from . import nvrtc_worker

SECONDS = "ATTNCC_COMPILE_SECONDS"  # environment: what one compilation may take
GIBIBYTES = "ATTNCC_COMPILE_GIB"  # environment: the address space of one of these processes
JOBS = "ATTNCC_COMPILE_JOBS"  # environment: how many of these processes there are
_DEFAULT_SECONDS, _DEFAULT_GIBIBYTES = 300.0, 8.0  # large kernels take 10 s and 0.2 GiB, on a quiet core
# All that a compiler's process gets of the environment: what finds libraries and files, and the allocator's settings.
# No LD_PRELOAD, and no NVRTC_*, with which NVRTC changes its options.
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "GLIBC_TUNABLES")
_PASSED_ON_PREFIX = "MALLOC_"
_LINES_OF_ERRORS = 5

T = TypeVar("T")
Reply = list[bytes]


class _Process:
    """A running compiler. Its methods are called by one thread, but for `kill`."""

    def __init__(self, names: tuple[str, ...], gibibytes: float) -> None:
        # What it writes to stderr is read where it crashes; a pipe that nobody reads would fill up.
        self._errors = os.memfd_create("nvrtc") if hasattr(os, "memfd_create") else os.open(os.devnull, os.O_RDWR)
        memory = str(int(gibibytes * (1 << 30)))
        command = [sys.executable or "", "-I", "-S", nvrtc_worker.__file__, str(os.getpid()), memory, *names]
        try:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(),
                cwd="/",  # debug lines in a cubin name it: so its bytes are the same, wherever this process is
                start_new_session=True,  # Ctrl-C in a terminal is for this process alone
            )
        except BaseException:
            os.close(self._errors)
            raise
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    def call(self, request: list[bytes], seconds: float) -> Reply:
        """TimeoutError, or OSError or EOFError if it ended."""
        deadline = monotonic() + seconds
        ready = select.poll()
        ready.register(self._replies, select.POLLIN)

        def wait() -> None:
            if not ready.poll(max(deadline - monotonic(), 0) * 1000):
                raise TimeoutError

        nvrtc_worker.send(self._requests.fileno(), request)
        return nvrtc_worker.receive(self._replies.fileno(), wait)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self, wait: bool = False) -> None:
        self._process.kill()
        if wait:
            self._process.wait()

    def end(self) -> tuple[int, list[str]]:
        """Ends it if it hasn't ended. The status, negative for a signal, and the last lines that it wrote."""
        self._process.kill()
        status = self._process.wait()
        self._process.stdin, self._process.stdout = None, None
        lines = os.pread(self._errors, 1 << 16, max(os.fstat(self._errors).st_size - (1 << 16), 0))
        self.forget()
        return status, lines.decode(errors="replace").splitlines()[-_LINES_OF_ERRORS:]

    def forget(self) -> None:
        """Closes what this process has of it."""
        self._requests.close()
        self._replies.close()
        os.close(self._errors)
        self._process.returncode = self._process.returncode or 0  # so that Popen doesn't look for it


class _Call:
    """A request that waits, runs or is done."""

    def __init__(self, what: str, request: list[bytes]) -> None:
        self.what, self.request = what, request
        self.process: _Process | None = None  # the one that it runs in
        self.abandoned = False


class Pool:
    """Compilers that load the first of the libraries `names` that can be loaded."""

    def __init__(self, names: tuple[str, ...], seconds: float, gibibytes: float, limit: int | None = None) -> None:
        self._names, self._seconds, self._gibibytes = names, seconds, gibibytes
        self._threads = DaemonThreads(limit or jobs(), at_end=self._end_own)
        self._own = local()  # `process`: that of each thread
        self._lock = Lock()
        self._processes: set[_Process] = set()
        self._calls: WeakKeyDictionary[Future[Any], _Call] = WeakKeyDictionary()
        self._closed = False

    def submit(self, what: str, request: list[bytes], finish: Callable[[Reply], T]) -> Future[T]:
        """What `finish` makes of the reply; it runs in another thread. `what`: the kernel, as errors name it.

        Its errors: those of `finish`, and AttnccError A906 for a crash, A907 for too long, A908 for too much memory.
        """
        call = _Call(what, request)
        future = self._threads.submit(lambda: finish(self._reply(call)))
        self._calls[future] = call
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Ends a compilation of this pool, and the process that it runs in."""
        call = self._calls.get(future)
        if call is None or future.cancel() or future.done():
            return
        with self._lock:
            call.abandoned = True
            if call.process is not None:
                call.process.kill()

    def close(self) -> None:
        """Ends all of its processes."""
        with self._lock:
            self._closed = True
            self._threads.shutdown(wait=False, cancel_futures=True)
            for process in self._processes:
                process.kill(wait=True)

    def forget(self) -> None:
        """In a child of `os.fork`: the processes, and the threads that talk to them, are the parent's."""
        for process in self._processes:
            process.forget()

    def _reply(self, call: _Call) -> Reply:
        process = self._process(call)
        try:
            reply = process.call(call.request, self._seconds)
        except TimeoutError:
            self._end(process)
            raise AttnccError(_too_long(call.what, self._seconds)) from None
        except (OSError, EOFError):
            status, lines = self._end(process)
            if call.abandoned or self._closed:
                raise CancelledError from None
            full = any("bad_alloc" in line or "out of memory" in line.lower() for line in lines)
            what = _too_much(call.what, self._gibibytes) if full else _ended(call.what, status, lines)
            raise AttnccError(what) from None
        with self._lock:
            call.process = None
        if call.abandoned or reply[0] == b"out of memory":
            self._end(process)
        if reply[0] == b"out of memory":
            raise AttnccError(_too_much(call.what, self._gibibytes))
        return reply

    def _process(self, call: _Call) -> _Process:
        """This thread's, or a new one if it has none or lost it."""
        found: _Process | None = getattr(self._own, "process", None)
        if found is not None and not found.alive:
            self._end(found)
            found = None
        if found is None:
            found = self._started(call.what)
        with self._lock:
            call.process = found
            if not call.abandoned and not self._closed:
                return found
        self._end(found)
        raise CancelledError

    def _started(self, what: str) -> _Process:
        try:
            process = self._own.process = _Process(self._names, self._gibibytes)
        except OSError as error:
            raise AttnccError(_not_started(what, error)) from None
        with self._lock:
            self._processes.add(process)
        return process

    def _end(self, process: _Process) -> tuple[int, list[str]]:
        with self._lock:
            self._processes.discard(process)
            self._own.process = None
            return process.end()

    def _end_own(self) -> None:
        process: _Process | None = getattr(self._own, "process", None)
        if process is not None:
            self._end(process)


def _too_long(what: str, seconds: float) -> Diagnostic:
    return Diagnostic(
        "A907",
        f"NVRTC didn't compile {what} within {seconds:g} s",
        notes=("it was ended",),
        help=f"smaller tiles compile faster; {SECONDS} in the environment sets the limit, in seconds",
    )


def _too_much(what: str, gibibytes: float) -> Diagnostic:
    return Diagnostic(
        "A908",
        f"NVRTC needs more than {gibibytes:g} GiB of memory to compile {what}",
        help=f"smaller tiles need less; {GIBIBYTES} in the environment sets the limit, in GiB",
    )


def _ended(what: str, status: int, lines: list[str]) -> Diagnostic:
    how = f"signal {-status}, {signal.strsignal(-status)}" if status < 0 else f"status {status}"
    outside = ("something outside of it sent that signal: the system may be out of memory",)
    return Diagnostic(
        "A906",
        f"NVRTC's process ended while it compiled {what}: {how}",
        notes=(*lines, *(outside if status == -signal.SIGKILL else ())),
        help="try again, with --jobs 1 if memory is short; if it stays, please report it with the .attn file",
    )


def _not_started(what: str, error: OSError) -> Diagnostic:
    return Diagnostic(
        "A906",
        f"no process could be started to compile {what}: {error.strerror}",
        notes=(f"attncc starts `{sys.executable}`, which sys.executable names",),
        help="run attncc in a Python interpreter that can be started as a program",
    )


def jobs() -> int:
    """How many kernels this process compiles at once: all its cores, unless ATTNCC_COMPILE_JOBS says otherwise.

    AttnccError A906 if that is no number above 0.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(int(_limit(JOBS, cores, "A906")), 1)


def _environment() -> dict[str, str]:
    passed_on = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIX)
    }
    return passed_on | {"CUDA_CACHE_DISABLE": "1"}  # NVRTC's own cache, for versions without the option


def _limit(variable: str, default: float, code: str) -> float:
    text = os.environ.get(variable, "")
    try:
        value = float(text or default)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        what, help_ = f"{variable} is `{text}`, which is no limit", "set it to a number above 0, or unset it"
        raise AttnccError(Diagnostic(code, what, help=help_))
    return value


_pools: dict[tuple[tuple[str, ...], float, float, int], Pool] = {}
_pools_lock = Lock()


def pool(names: tuple[str, ...]) -> Pool:
    """This process's compilers that use the first of these libraries. AttnccError A906 to A908 for a wrong limit."""
    limits = _limit(SECONDS, _DEFAULT_SECONDS, "A907"), _limit(GIBIBYTES, _DEFAULT_GIBIBYTES, "A908"), jobs()
    with _pools_lock:
        if (names, *limits) not in _pools:
            _pools[names, *limits] = Pool(names, *limits)
        return _pools[names, *limits]


def abandon(future: Future[Any]) -> None:
    """Ends a compilation of any pool; its result is a CancelledError, unless it is there already."""
    for item in list(_pools.values()):
        item.abandon(future)


def _close_all() -> None:
    with _pools_lock:
        while _pools:
            _pools.popitem()[1].close()


def _begin_afresh() -> None:
    """In a child of `os.fork`."""
    global _pools_lock  # noqa: PLW0603
    _pools_lock = Lock()  # a thread that isn't here may have held it
    for item in _pools.values():
        item.forget()
    _pools.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_afresh)
