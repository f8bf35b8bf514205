"""Ctrl-C, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

MAIN = """
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # as main does, before commands bring threads of numpy
from attncc import cli
from attncc.cli import check
from attncc.cli.interrupts import Interrupted

def press():
    os.kill(os.getpid(), signal.SIGINT)

def once(**given):
    press()
    for _ in range(400):  # not one sleep: Python misses a signal that comes right before the system call
        time.sleep(0.05)

def under_the_handler_of_a_library(**given):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as NVRTC does for a while, which then exits with 4
    once()

def twice(**given):
    try:
        once()
    except Interrupted:
        once()

def at_the_end(**given):
    raise SystemExit(0)

check.command.callback = globals()[sys.argv.pop()]
cli.main()
"""


@pytest.mark.parametrize("pressed", ["once", "under_the_handler_of_a_library", "twice"])
def test_ends_with_a_line_and_the_status_of_shells(pressed: str) -> None:
    command = [sys.executable, "-c", MAIN, "check", "specs/causal.attn", pressed]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=25, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


def test_nothing_is_said_of_a_command_that_nobody_interrupts() -> None:
    command = [sys.executable, "-c", MAIN, "check", "specs/causal.attn", "at_the_end"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=25, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
