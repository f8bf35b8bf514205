"""The progress bar, on a terminal that isn't one."""

from __future__ import annotations

import io
import time

import pytest

from attncc.cli import console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr from here on; not a fixture, since pytest puts its own back before a test begins."""
    monkeypatch.setattr("sys.stderr", shown := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    return shown


def test_a_bar_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nothing advances it: one kernel may take all the time."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(console, "PATIENCE", 0.1)
    with console.progress("compiling", 7) as advance:
        time.sleep(0.5)
        assert "compiling" in terminal.getvalue() and "0/7" in terminal.getvalue()
        advance("causal")
        time.sleep(0.3)
        assert "compiling causal" in terminal.getvalue() and "1/7" in terminal.getvalue()
    with console.progress("checking"):
        time.sleep(0.5)
    assert "checking" in terminal.getvalue()


def test_no_bar_for_quick_work_and_none_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with console.progress("compiling", 1) as advance:
        advance("causal")
        time.sleep(0.2)
    assert "compiling" not in terminal.getvalue()
    monkeypatch.setattr(console, "PATIENCE", 0)
    monkeypatch.setattr("sys.stderr", silent := io.StringIO())
    with console.progress("compiling", 1):
        time.sleep(0.2)
    assert silent.getvalue() == ""


def test_lines_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell keeps what a command rewrites."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setattr(console, "PATIENCE", 0.1)
    monkeypatch.setattr(console, "SECONDS_A_LINE", 1000)
    with console.progress("compiling", 3) as advance:
        time.sleep(0.5)
        advance("causal")
        monkeypatch.setattr(console, "SECONDS_A_LINE", 0)
        advance("alibi")
    assert terminal.getvalue() == "compiling …\ncompiling 2 of 3 alibi\n"
    monkeypatch.setattr(console, "PATIENCE", 60)
    with console.progress("timing"):
        pass
    assert "timing" not in terminal.getvalue()
