"""The log of a run: a line of JSON for each thing that happened. By it a run that ended early goes on.

The first line says what is tuned, and on what; the others what became of candidates, each block of windows, and the
verdict. Lines are written as they come, so that what was found is kept whatever ends the process; a last line that is
cut off counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..diagnostics import AttnccError, Diagnostic
from .log_records import is_whole
from .race import Block, Board

FORMAT = 1
_BEGIN = b'{"what": "begun"'
_SHOWN = 120  # characters of a record, in errors

Record = dict[str, Any]


@dataclass
class Log:
    """Of one run, which holds the file's lock. `identity` is what another run must share to go on from it; `records`
    what earlier ones wrote; `trouble` why lines are missing, if any are."""

    path: Path
    identity: Mapping[str, Any]
    _file: IO[str] | None
    records: list[Record] = field(default_factory=list)
    trouble: str = ""

    @classmethod
    def begin(cls, path: Path, identity: Mapping[str, Any], more: Mapping[str, Any]) -> Log:
        """A new one, in place of an older one. OSError where it can't be written; AttnccError A526 if another run
        writes it, A527 for a file that is no log."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not _may_be_replaced(path):
            raise _is_no_log(path)
        file = _opened(path)
        file.truncate(0)
        log = cls(path, identity, file)
        log._put("begun", format=FORMAT, identity=_plain(identity), **more)
        return log

    @classmethod
    def resume(cls, path: Path, identity: Mapping[str, Any]) -> Log:
        """What is there, to be continued. AttnccError A524 if nothing is, if it is damaged, or of something else; A526
        if another run writes it."""
        records = list(_read(path))
        if not _begins(records):
            raise _cannot(path, "it doesn't begin as the log of a run does")
        if damaged := [record for record in records if not is_whole(record)]:
            shown = json.dumps(damaged[0])
            raise _cannot(path, "it is damaged", f"this record lacks something: {shown[:_SHOWN]}")
        kept, wanted = records[0]["identity"], _plain(identity)
        differs = sorted(name for name in {*kept, *wanted} if kept.get(name) != wanted.get(name))
        if differs:
            notes = (f"{name}: {kept.get(name)} there, {wanted.get(name)} now" for name in differs)
            raise _cannot(path, "it is of another run", *notes)
        file = _opened(path)
        file.write("\n")  # ends a line that was cut off
        return cls(path, identity, file, records)

    def write(self, what: str, **fields: Any) -> None:
        """If it fails, `trouble` says why, and the run goes on without a log: what it finds still counts."""
        if self.trouble:
            return
        try:
            self._put(what, **fields)
        except OSError as error:
            self.trouble = str(error.strerror)
            self.close()

    def _put(self, what: str, **fields: Any) -> None:
        if self._file is None:
            self._file = _opened(self.path)
        self._file.write(json.dumps({"what": what, **fields}) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # `write` has told
                self._file.close()
            self._file = None

    def check_names(self, known: Collection[str]) -> None:
        """AttnccError A524 for what was timed, or won, and isn't among the candidates."""
        names = (record["name"] for what in ("block", "verdict") for record in self.of(what))
        if unknown := next((name for name in names if name not in known), None):
            raise _cannot(self.path, "it is damaged", f"there is no candidate {unknown[:_SHOWN]}")

    def of(self, what: str) -> Iterator[Record]:
        """What earlier runs wrote of a kind."""
        return (record for record in self.records if record["what"] == what)

    def board(self) -> Board:
        """The blocks of earlier runs; new ones are written here."""
        board = Board()
        for record in self.of("block"):
            board.add(record["kind"], record["name"], Block(*record["milliseconds"]))
        board.heard = self._heard
        return board

    def _heard(self, kind: str, name: str, block: Block) -> None:
        self.write("block", kind=kind, name=name, milliseconds=[block.before, block.own, block.after])


def name_of(identity: Mapping[str, Any]) -> str:
    """A file name for the log of a run, that another run of the same finds."""
    text = json.dumps(_plain(identity), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32] + ".jsonl"


def _plain(identity: Mapping[str, Any]) -> Record:
    """As it comes back out of JSON."""
    plain: Record = json.loads(json.dumps(dict(identity)))
    return plain


def _begins(records: Sequence[Record]) -> bool:
    """Whether these are the records of a log."""
    return bool(records) and records[0].get("what") == "begun" and records[0].get("format") == FORMAT


def _read(path: Path) -> Iterator[Record]:
    """AttnccError A524 if it can't be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise _cannot(path, "there is none of an earlier run") from None
    except OSError as error:
        raise _cannot(path, f"it can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _cannot(path, "it isn't text") from None
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and "what" in record:
            yield record


def _may_be_replaced(path: Path) -> bool:
    """Whether it is a log, of any version of attncc, or empty: anything else may be precious."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(len(_BEGIN))
    return begin in (b"", _BEGIN)


def _opened(path: Path) -> IO[str]:
    """The file, for lines to be added, and locked. OSError; AttnccError A526 if another process has the lock."""
    file = path.open("a", encoding="utf-8")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise _is_in_use(path) from None
    except (ImportError, OSError):  # Windows and some file systems have no such locks
        pass
    return file


def _is_no_log(path: Path) -> AttnccError:
    help_ = "name another file with --log"
    return AttnccError(Diagnostic("A527", f"{path} is no log of attncc tune: it isn't overwritten", help=help_))


def _is_in_use(path: Path) -> AttnccError:
    help_ = "wait until it ends: two runs on one GPU disturb each other's times"
    return AttnccError(Diagnostic("A526", f"another attncc tune is writing the log {path}", help=help_))


def _cannot(path: Path, why: str, *notes: str) -> AttnccError:
    help_ = "leave --resume out to begin anew, or name the log with --log"
    return AttnccError(Diagnostic("A524", f"{path} can't be resumed: {why}", notes=notes, help=help_))
