"""The files that are open in an editor, and what was found in them. A file that another one imports is read as the
editor shows it, saved or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock

from .. import resources
from ..checks import Checked, checked
from ..ir import Variant
from ..semantics.constants import NO_DEFINES
from ..semantics.reach import ENDING, Folders, Reach
from ..source import SourceFile, read_text
from .outline import Declared, Outline
from .text import normal


@dataclass
class Document:
    """One version of an open file. `checked` and `reads` are there once it was checked."""

    path: Path
    version: int
    source: SourceFile
    checked: Checked | None = None
    reads: set[Path] = field(default_factory=set)  # the files that it imports, directly or not
    checking: Lock = field(default_factory=Lock)

    @cached_property
    def outline(self) -> Outline:
        return Outline.of(self.source)

    def variant(self, name: str) -> Variant | None:
        """What a variant means, once the whole file was found right."""
        program = self.checked.program if self.checked else None
        return next((item for item in program.variants if item.name == name), None) if program else None


class Documents:
    """All open files. `allow_imports` are folders whose files they may import, besides their own and the library."""

    def __init__(self, allow_imports: Folders = ()) -> None:
        self.allow_imports = allow_imports
        self._open: dict[Path, Document] = {}

    def put(self, path: Path, version: int, text: str) -> Document:
        """A new version. What was found in the old one is forgotten."""
        document = Document(path, version, SourceFile(str(path), normal(text)))
        self._open[_resolved(path)] = document
        return document

    def close(self, path: Path) -> None:
        self._open.pop(_resolved(path), None)

    def find(self, path: Path) -> Document | None:
        return self._open.get(_resolved(path))

    def importing(self, path: Path) -> list[Document]:
        """The open files that were found to import this one."""
        resolved = _resolved(path)
        return [document for document in list(self._open.values()) if resolved in document.reads]

    def all(self) -> list[Document]:
        return list(self._open.values())

    def read(self, resolved: Path) -> str:
        """The text of a file. Raises what `read_text` does where it isn't open."""
        document = self._open.get(resolved)
        return document.source.text if document else read_text(resolved)

    def check(self, document: Document) -> Checked:
        """What `attncc check` finds, kept for as long as the text and what it imports stay."""
        with document.checking:
            if document.checked is None:
                self._check(document)
            assert document.checked is not None
            return document.checked

    def _check(self, document: Document) -> None:
        reads: set[Path] = set()

        def read(resolved: Path) -> str:
            reads.add(resolved)
            return self.read(resolved)

        document.checked = checked(document.source, NO_DEFINES, self.allow_imports, read)
        document.reads = reads

    def forget(self, document: Document) -> None:
        """What was found, since a file that it imports has changed."""
        with document.checking:
            document.checked = None

    # ---------------------------------------------------------------- imports

    def imported_file(self, document: Document, written: str) -> Path | None:
        """Where `import masks` or `import "mine.attn"` leads, if it may be read; `written` with its quotes."""
        if not written.startswith('"'):
            return library_files().get(written)
        target = document.path.parent / written.strip('"')
        try:
            resolved = target.resolve()
            allowed = Reach.of(document.path, self.allow_imports).holds(resolved) and resolved.suffix == ENDING
            return target if allowed and (resolved in self._open or target.is_file()) else None
        except (OSError, ValueError, RuntimeError):
            return None

    def imported(self, document: Document) -> Iterator[Declared]:
        """The masks and functions that the imports of a file bring."""
        for item in document.outline.items:
            if item.kind != "import" or len(item.head.tokens) < 2:
                continue
            path = self.imported_file(document, str(item.head.tokens[1]))
            if path is not None:
                yield from self._declared(path)

    def _declared(self, path: Path) -> Iterator[Declared]:
        open_one = self.find(path)
        try:
            outline = open_one.outline if open_one else Outline.of(SourceFile(str(path), read_text(path)))
        except (OSError, UnicodeDecodeError):
            return
        yield from outline.globals.values()


def library_files() -> dict[str, Path]:
    """Every file that can be imported by its name."""
    return {path.stem: path for path in sorted(resources.folder("specs").glob(f"*{ENDING}"))}


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):  # a circle of links, a NUL
        return path
