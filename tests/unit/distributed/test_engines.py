"""Where ranks can't copy into each other's memory on the CPU, they are told so."""

from __future__ import annotations

import errno
import os
import platform
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("torch")

from attncc.distributed.engines import _reserved, why_no_peers


def test_a_file_is_as_long_as_asked_or_told_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is only said to be long would end the process when memory runs out below it."""
    with tempfile.NamedTemporaryFile() as file:
        assert _reserved(file.fileno(), 3 << 20) == ""
        found = Path(file.name).stat()
        assert found.st_size == 3 << 20
        assert found.st_blocks * 512 >= found.st_size

        def full(*_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
        assert "No space left" in _reserved(file.fileno(), 1 << 30)


@pytest.mark.parametrize(("machine", "can"), [("x86_64", True), ("AMD64", True), ("aarch64", False), ("arm64", False)])
def test_writes_are_to_be_seen_in_their_order(monkeypatch: pytest.MonkeyPatch, machine: str, can: bool) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert (why_no_peers("cpu", None) == "") is can
