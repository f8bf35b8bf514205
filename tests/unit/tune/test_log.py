"""The log's file: whose it is, and what becomes of a run that can't write it any more."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attncc.diagnostics import AttnccError
from attncc.tune.log import Log
from tests.unit.tune.machines import Rig
from tests.unit.tune.specifications import BRACES, VARIANT, tuned

IDENTITY = {"problem": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def test_only_a_log_is_replaced(path: Path) -> None:
    path.write_text("attn 1\n")
    with pytest.raises(AttnccError, match=r"(?s)A527.*isn't overwritten.*name another file"):
        Log.begin(path, IDENTITY, {})
    assert path.read_text() == "attn 1\n"
    with pytest.raises(AttnccError, match="A527"):
        Log.begin(path.parent, IDENTITY, {})
    path.write_text("")
    for _ in range(2):
        Log.begin(path, IDENTITY, {}).close()
    assert path.read_text().count('"begun"') == 1


@pytest.mark.skipif(os.name != "posix", reason="there are no such locks")
def test_two_runs_never_share_a_log(path: Path) -> None:
    first = Log.begin(path, IDENTITY, {})
    before = path.read_text()
    with pytest.raises(AttnccError, match=r"A526.*another attncc tune"):
        Log.begin(path, IDENTITY, {})
    with pytest.raises(AttnccError, match="A526"):
        Log.resume(path, IDENTITY)
    assert path.read_text() == before
    first.close()
    Log.resume(path, IDENTITY).close()


class Full:
    """A file on a disk that is full."""

    def write(self, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    close = flush = lambda self: self.write("")


def test_a_full_disk_costs_the_log_alone() -> None:
    session = Rig(tuned(VARIANT + BRACES)).session(lambda plan: 1 + 0.1 * (plan.block_kv == 32))
    session.log._file = Full()
    session.run()
    assert session.winner is not None
    assert session.log.trouble == os.strerror(errno.ENOSPC)


def _unreadable(*_: Any, **__: Any) -> Iterator[str]:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_why_a_log_cannot_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttnccError, match=r"A524.*there is none of an earlier run"):
        Log.resume(path, IDENTITY)
    path.write_text("{}\n")
    with pytest.raises(AttnccError, match=r"A524.*doesn't begin as the log of a run"):
        Log.resume(path, IDENTITY)
    monkeypatch.setattr(Path, "read_text", _unreadable)
    with pytest.raises(AttnccError, match=r"A524.*can't be read: Permission denied"):
        Log.resume(path, IDENTITY)
