"""Threads that nothing waits for."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError

import pytest

from attncc.threads import DaemonThreads


def test_results_and_errors_come_back() -> None:
    with DaemonThreads(2) as threads:
        assert list(threads.map(lambda x: x * x, range(50))) == [x * x for x in range(50)]
        with pytest.raises(ZeroDivisionError):
            threads.submit(lambda: 1 // 0).result(10)


def test_no_more_threads_than_the_work_needs_and_than_the_limit() -> None:
    threads, here = DaemonThreads(3), threading.Event()
    assert threads._threads == 0
    for _ in range(5):
        threads.submit(lambda: None).result(10)
        while not threads._idle:
            time.sleep(0.001)
    assert threads._threads == 1
    waiting = [threads.submit(here.wait, 10) for _ in range(9)]
    assert threads._threads == 3
    here.set()
    assert all(item.result(10) for item in waiting)
    threads.shutdown()
    assert threads._threads == 0


def test_idle_threads_end() -> None:
    ended = threading.Event()
    threads = DaemonThreads(1, idle_seconds=0.05, at_end=ended.set)
    threads.submit(lambda: None).result(10)
    assert ended.wait(10)
    assert threads._threads == 0
    assert threads.submit(lambda: 3).result(10) == 3


def test_leaving_waits_for_nothing() -> None:
    here = threading.Event()
    with pytest.raises(KeyboardInterrupt), DaemonThreads(1) as threads:
        running, waiting = threads.submit(here.wait, 10), threads.submit(here.wait, 10)
        while not running.running():
            time.sleep(0.001)
        raise KeyboardInterrupt
    with pytest.raises(CancelledError):
        waiting.result(0)
    with pytest.raises(RuntimeError):
        threads.submit(here.wait)
    assert not running.done()
    here.set()
    assert running.result(10)
