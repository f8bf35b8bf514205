"""Commands answer within two seconds of the processor and 1 GB, without NVRTC's, whatever a file of 100 KB holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.large_files import FILES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 4.0  # twice what is promised, on a core without company
MOST_MEGABYTES = 1024
WORST = {  # the files that take each command longest
    "explain": ["any of 64", "distances"],
    "backward": ["comparisons"],
    "picture": ["remainders"],
    "check": ["thirty arrays"],
}
SLOW = [command for command in WORST if command != "check"]


def test_files_are_no_longer_than_said() -> None:
    assert max(len(text.encode()) for text in FILES.values()) <= 100_200


@pytest.mark.parametrize("command", ["check", *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW)])
def test_the_largest(command: str) -> None:
    """Some seconds: no smaller file shows what the work grows with."""
    assert len(told(command, "-k", *WORST[command])) == len(WORST[command])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "ir"])  # all take some minutes: `python -m tests.large_files`
def test_time_and_memory(command: str) -> None:
    assert len(told(command)) == len(FILES)


def told(command: str, *options: str) -> list[str]:
    """The lines about files, none of which takes too much."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.large_files", command, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    for line in lines:
        found = re.fullmatch(rf"{command} +(.*?) +[\d.]+ s \( *([\d.]+) alone\), +(\d+) MB  (.*)", line)
        assert found is not None, line
        assert float(found[2]) < MOST_SECONDS and int(found[3]) < MOST_MEGABYTES, line
        assert "A900" not in line and "Error(" not in line, line
    return lines
