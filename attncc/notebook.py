"""What a notebook shows while something takes long: one line, which changes in place."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any
from uuid import uuid4

PATIENCE = 1.0  # seconds that work takes before anything is shown

Show = Callable[[str], None]


@contextmanager
def shown_while(label: str) -> Iterator[None]:
    """In a notebook: the label with the seconds so far, once its body has taken a second. Elsewhere nothing."""
    show = _line()
    if show is None:
        yield
        return
    start, over = time.monotonic(), threading.Event()

    def watch() -> None:
        while not over.wait(PATIENCE):
            show(f"{label}: {time.monotonic() - start:.0f} s")

    # Output belongs to a cell by variables of the context, which a thread doesn't have by itself.
    watcher = threading.Thread(target=copy_context().run, args=(watch,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _line() -> Show | None:
    """Shows a text in place of the one before it, below the cell that runs; None outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    name, begun = f"attncc-{uuid4()}", False

    def show(text: str) -> None:
        nonlocal begun
        shell.display_pub.publish({"text/plain": text}, transient={"display_id": name}, update=begun)
        begun = True

    return show


def started_by_a_cell() -> bool:
    """Whether this process runs `!command` of a notebook. Such a process writes to a terminal, by whose columns and
    colors it may go, but no line can be rewritten: a cell keeps each version. ipykernel sets these for its commands.
    """
    return os.environ.get("TERM") == "xterm-color" and os.environ.get("PAGER") == "cat"
