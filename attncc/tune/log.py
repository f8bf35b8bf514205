"""The log of a run: a line of JSON for each thing that happened. By it a run that ended early goes on.

The first line says what is tuned, and on what; the others what became of candidates, each block of windows, and the
verdict. Lines are written as they come, so that what was found is kept whatever ends the process; a last line that is
cut off counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..diagnostics import AttnccError, Diagnostic
from .log_records import is_whole
from .race import Block, Board

FORMAT = 1
_SHOWN = 120  # characters of a record, in errors

Record = dict[str, Any]


@dataclass
class Log:
    """Of one run. `identity` is what another run must share to go on from it; `records` what earlier ones wrote."""

    path: Path
    identity: Mapping[str, Any]
    records: list[Record] = field(default_factory=list)
    _file: IO[str] | None = None

    @classmethod
    def begin(cls, path: Path, identity: Mapping[str, Any], more: Mapping[str, Any]) -> Log:
        """A new one, in place of what is there. OSError where it can't be written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        log = cls(path, identity)
        log.write("begun", format=FORMAT, identity=_plain(identity), **more)
        return log

    @classmethod
    def resume(cls, path: Path, identity: Mapping[str, Any]) -> Log:
        """What is there, to be continued. AttnccError A524 if nothing is, if it is damaged, or of something else."""
        records = list(_read(path))
        if not records or records[0].get("what") != "begun" or records[0].get("format") != FORMAT:
            raise _cannot(path, "there is none of an earlier run")
        if damaged := [record for record in records if not is_whole(record)]:
            shown = json.dumps(damaged[0])
            raise _cannot(path, "it is damaged", f"this record lacks something: {shown[:_SHOWN]}")
        kept, wanted = records[0]["identity"], _plain(identity)
        differs = sorted(name for name in {*kept, *wanted} if kept.get(name) != wanted.get(name))
        if differs:
            notes = (f"{name}: {kept.get(name)} there, {wanted.get(name)} now" for name in differs)
            raise _cannot(path, "it is of another run", *notes)
        return cls(path, identity, records)

    def write(self, what: str, **fields: Any) -> None:
        if self._file is None:
            self._file = self.path.open("a", encoding="utf-8")
            if self.records:
                self._file.write("\n")  # ends a line that was cut off
        self._file.write(json.dumps({"what": what, **fields}) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
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


def _read(path: Path) -> Iterator[Record]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    except UnicodeDecodeError:
        raise _cannot(path, "it isn't text") from None
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and "what" in record:
            yield record


def _cannot(path: Path, why: str, *notes: str) -> AttnccError:
    help_ = "leave --resume out to begin anew, or name the log with --log"
    return AttnccError(Diagnostic("A524", f"{path} can't be resumed: {why}", notes=notes, help=help_))
