"""`check` and lowering answer within seconds, whatever a file of 100 KB holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.large_files import FILES

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 16.0  # of the processor, on a busy machine, where it counts two to three times
MOST_MEGABYTES = 1024


def test_files_are_no_longer_than_said() -> None:
    assert max(len(text.encode()) for text in FILES.values()) <= 100_200


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "ir"])  # all take some minutes: `python -m tests.large_files`
def test_time_and_memory(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.large_files", command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(FILES)
    for line in lines:
        found = re.fullmatch(rf"{command} +(.*?) +([\d.]+) s, +(\d+) MB  (.*)", line)
        assert found is not None, line
        assert float(found[2]) < MOST_SECONDS and int(found[3]) < MOST_MEGABYTES, line
        assert "A900" not in line and "Error(" not in line, line
