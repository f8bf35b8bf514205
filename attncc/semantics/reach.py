"""Which files a spec may import: those in its folder and below, those of the library, and where else it is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .. import resources
from ..diagnostics import AttnccError, Diagnostic

ENDING = ".attn"
MAX_FILES = 64  # that one spec imports, directly or not

Folders = Iterable[Path | str] | Path | str  # or a single one


@dataclass(frozen=True)
class Reach:
    """The folders whose `.attn` files one load may read. Links are followed before a path is judged."""

    folders: tuple[Path, ...]

    @classmethod
    def of(cls, spec: Path, allowed: Folders = ()) -> Reach:
        """That of a spec: the folder that it stands in (of a text, the working one), the library, what is allowed."""
        more = (
            (allowed,) if isinstance(allowed, Path | str) else tuple(allowed) if isinstance(allowed, Iterable) else None
        )
        if more is None or not all(isinstance(folder, Path | str) for folder in more):
            raise AttnccError(
                Diagnostic(
                    "A518",
                    "`allow_imports` names no folders",
                    notes=("expected a folder, or several: each a str or a Path", f"came {allowed!r:.60}"),
                    help='pass the folders that files are imported from, as in allow_imports=["../shared"]',
                )
            )
        folders = (spec.parent, resources.folder("specs"), *map(Path, more))
        return cls(tuple(folder.resolve() for folder in folders))

    def holds(self, resolved: Path) -> bool:
        return any(resolved.is_relative_to(folder) for folder in self.folders)
