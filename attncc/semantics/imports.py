"""Finds imported files and says which masks a file sees: its own and those of the files that it imports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .. import resources
from ..diagnostics import AttnccError, Label, did_you_mean
from ..source import SourceFile
from ..syntax import ast
from ..syntax.parser import parsed
from . import names
from .names import Mask
from .report import Report


class Imports:
    """The files that one load reads, each once."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._own: dict[Path, dict[str, Mask]] = {}  # the masks of each file read so far
        self._open: list[Path] = []  # the files being read: the one that is loaded, what it imports, and so on

    def masks(self, module: ast.Module, path: Path) -> dict[str, Mask]:
        """The masks that the file at `path` sees, by name. Also checks the names of its own."""
        self._open.append(path.resolve())
        visible: dict[str, Mask] = {}
        imported: dict[str, ast.Import] = {}
        seen: dict[Path, ast.Import] = {}
        for node in module.imports:
            target = self._find(node, path)
            if target is None or self._twice(node, target.resolve(), seen):
                continue
            for name, mask in self._read(node, target).items():
                self._clash(node, name, visible, imported)
                visible.setdefault(name, mask)
                imported.setdefault(name, node)
        self._declare(module, visible)
        self._open.pop()
        return visible

    # ---------------------------------------------------------------- files

    def _find(self, node: ast.Import, path: Path) -> Path | None:
        """The imported file: of the library by name, or relative to the importing file."""
        if isinstance(node.target, ast.Name):
            return self._find_in_library(node, node.target)
        target = path.parent / node.target
        if Path(node.target).is_absolute():
            self.report.error(
                "A107", "an import is relative to the file that it stands in", node.span, help="write a relative path"
            )
            return None
        if not target.is_file():
            beside = [item.name for item in target.parent.glob("*.attn")] if target.parent.is_dir() else []
            advice = did_you_mean(target.name, beside) or "the path is relative to the file that it stands in"
            self.report.error("A107", f"there is no file {target}", node.span, help=advice)
            return None
        return target

    def _find_in_library(self, node: ast.Import, name: ast.Name) -> Path | None:
        library = {item.stem: item for item in sorted(resources.folder("specs").glob("*.attn"))}
        if name.name in library:
            return library[name.name]
        close = did_you_mean(name.name, library)
        self.report.error(
            "A107",
            f"the library has no file `{name.name}`",
            name.span,
            notes=[] if close else [f"it has: {', '.join(library)}"],
            help=close or f'for a file of yours, write `import "{name.name}.attn"`',
        )
        return None

    def _twice(self, node: ast.Import, target: Path, seen: dict[Path, ast.Import]) -> bool:
        first = seen.setdefault(target, node)
        if first is node:
            return False
        self.report.error(
            "A109",
            "this file is imported twice",
            node.span,
            labels=[Label(first.span, "the first time")],
            help="remove one",
        )
        return True

    def _read(self, node: ast.Import, path: Path) -> Mapping[str, Mask]:
        """The masks that an imported file declares itself."""
        resolved = path.resolve()
        if resolved in self._open:
            chain = [*self._open[self._open.index(resolved) :], resolved]
            self.report.error(
                "A108",
                "the imports form a cycle",
                node.span,
                notes=[" → ".join(item.name for item in chain)],
                help="move the masks that both files need into a third",
            )
            return {}
        if resolved not in self._own:
            self._own[resolved] = {}
            module = self._parse(node, path)
            if module is not None:
                visible = self.masks(module, path)
                own = {item.name.name for item in module.items if isinstance(item, ast.Mask)}
                self._own[resolved] = {name: mask for name, mask in visible.items() if name in own}
        return self._own[resolved]

    def _parse(self, node: ast.Import, path: Path) -> ast.Module | None:
        try:
            return parsed(SourceFile.read(path))
        except AttnccError as error:
            self.report.found.items += error.diagnostics
        except (OSError, UnicodeDecodeError) as error:
            self.report.error("A107", f"{path} can't be read: {error}", node.span, help="it must be a UTF-8 text file")
        return None

    # ---------------------------------------------------------------- names

    def _clash(
        self, node: ast.Import, name: str, visible: Mapping[str, Mask], imported: Mapping[str, ast.Import]
    ) -> None:
        if name in imported:
            self.report.error(
                "A109",
                f"two imported files have a mask `{name}`",
                node.span,
                labels=[Label(imported[name].span, "the other file"), Label(visible[name].node.name.span, "its mask")],
                help="rename one, or import only one of them",
            )

    def _declare(self, module: ast.Module, visible: dict[str, Mask]) -> None:
        """Adds the file's own masks, which its imports must not name too."""
        for node in module.items:
            if not isinstance(node, ast.Mask):
                continue
            name = node.name
            if reason := names.reserved(name.name, "mask"):
                self.report.error(
                    "A104",
                    f"`{name.name}` can't be the name of a mask: {reason}",
                    name.span,
                    help="choose another name",
                )
            elif name.name in visible:
                self.report.error(
                    "A103",
                    f"there is already a mask `{name.name}`",
                    name.span,
                    labels=[Label(visible[name.name].node.name.span, "declared here")],
                    help="every name has one meaning; choose another name",
                )
            visible.setdefault(name.name, Mask(node, visible))
