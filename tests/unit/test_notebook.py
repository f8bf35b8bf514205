"""What a notebook shows of slow work, with a stand-in for IPython; tests/test_notebooks.py has a real one."""

from __future__ import annotations

import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from attncc import notebook
from attncc.notebook import shown_while, started_by_a_cell


def with_ipython(monkeypatch: pytest.MonkeyPatch, *, kernel: Any) -> list[tuple[str, str, bool]]:
    """What is published from here on: text, name of the line, whether it takes the place of the one before."""
    published: list[tuple[str, str, bool]] = []

    def publish(data: dict[str, str], *, transient: dict[str, str], update: bool) -> None:
        published.append((data["text/plain"], transient["display_id"], update))

    shell = SimpleNamespace(kernel=kernel, display_pub=SimpleNamespace(publish=publish))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(notebook, "PATIENCE", 0.05)
    return published


def test_one_line_that_changes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    published = with_ipython(monkeypatch, kernel=object())
    with shown_while("compiling causal"):
        time.sleep(0.5)
    assert len(published) >= 2
    assert all(re.fullmatch(r"compiling causal: \d+ s", text) for text, _, _ in published)
    assert len({name for _, name, _ in published}) == 1
    assert [update for _, _, update in published] == [False] + [True] * (len(published) - 1)


def test_nothing_for_quick_work(monkeypatch: pytest.MonkeyPatch) -> None:
    published = with_ipython(monkeypatch, kernel=object())
    with shown_while("compiling causal"):
        pass
    assert published == []


def test_nothing_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    published = with_ipython(monkeypatch, kernel=None)
    with shown_while("compiling causal"):
        time.sleep(0.2)
    monkeypatch.delitem(sys.modules, "IPython")
    with shown_while("compiling causal"):
        time.sleep(0.2)
    assert published == []


def test_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with_ipython(monkeypatch, kernel=object())
    with pytest.raises(ZeroDivisionError), shown_while("compiling causal"):
        _ = 1 / 0


def test_commands_of_cells_are_known_by_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setenv("PAGER", "less")
    assert not started_by_a_cell()
    monkeypatch.setenv("PAGER", "cat")
    assert started_by_a_cell()
