"""Threads that nothing waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Condition, Thread
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """Runs functions in threads that begin as work arrives.

    Python joins the threads of a ThreadPoolExecutor before it ends, even after Ctrl-C. It ends without waiting for
    these. Leaving a `with` block doesn't wait either: what hasn't begun is cancelled.
    """

    def __init__(self, limit: int, idle_seconds: float = 60, at_end: Callable[[], None] = lambda: None) -> None:
        """`at_end` runs in each thread when it ends: after `idle_seconds` without work, or after `shutdown`."""
        self._limit, self._idle_seconds, self._at_end = max(limit, 1), idle_seconds, at_end
        self._changed = Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = 0
        self._idle = 0  # of these, how many wait for work
        self._closed = False

    def submit(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("these threads were shut down")
            self._waiting.append((future, lambda: function(*arguments, **named)))
            if self._idle < len(self._waiting) and self._threads < self._limit:
                Thread(target=self._run, daemon=True).start()
                self._threads += 1
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more work. `wait`: until all threads have ended."""
        with self._changed:
            self._closed = True
            if cancel_futures:
                while self._waiting:
                    self._waiting.popleft()[0].cancel()
            self._changed.notify_all()
            if wait:
                self._changed.wait_for(lambda: self._threads == 0)

    def __exit__(self, *_: object) -> None:
        self.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while (item := self._next()) is not None:
            _do(*item)
            del item  # an idle thread keeps no results alive
        self._at_end()

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """None if there was nothing to do for long: then the thread is no longer counted."""
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._closed, self._idle_seconds)
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            self._changed.notify_all()
            return None


def _do(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
