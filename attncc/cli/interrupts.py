"""Ctrl-C ends a command with one line and status 130, whatever library it is in."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

STATUS = 128 + signal.SIGINT  # as shells have it


class Interrupted(BaseException):
    """Raised in the main thread by the first Ctrl-C. No KeyboardInterrupt: click would print `Aborted!` and give 1."""


def watch_interrupts() -> None:
    """From here on the first Ctrl-C raises `Interrupted`, and the second ends the process at once.

    A thread waits for SIGINT, which no other thread takes: Python's own handlers would wait until a library returns,
    and libraries may have handlers of their own. The main thread gets another signal in its place. To be called before
    numpy is imported: threads that there are already could take SIGINT.
    """
    if not hasattr(signal, "sigwait"):
        return
    signal.signal(signal.SIGUSR1, _raise)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_wait, args=(threading.get_ident(),), daemon=True).start()


def ignore_interrupts() -> None:
    """The command is over: its end takes no first Ctrl-C any more."""
    if hasattr(signal, "sigwait"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def say_interrupted() -> None:
    """The one line, below the terminal's `^C`."""
    print("\n" * sys.stderr.isatty() + "interrupted", file=sys.stderr, flush=True)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def _wait(main: int) -> None:
    signal.sigwait({signal.SIGINT})
    signal.pthread_kill(main, signal.SIGUSR1)
    signal.sigwait({signal.SIGINT})
    say_interrupted()
    os._exit(STATUS)
