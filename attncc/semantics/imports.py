"""Finds imported files and says which masks and functions a file sees: its own and those of files that it imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from .. import resources
from ..diagnostics import AttnccError, Label, did_you_mean, suggested
from ..source import SourceFile, read_text
from ..syntax import ast
from ..syntax.parser import parsed
from ..syntax.tokens import names_version
from . import names
from .limits import check_module
from .names import Mask
from .reach import ENDING, MAX_FILES, Reach
from .report import Report

Reader = Callable[[Path], str]  # the text of a file whose links were followed; raises what `read_text` does


class Imports:
    """The files that one load reads, each once. An editor's `read` gives the text of a file that is open in it."""

    def __init__(self, report: Report, reach: Reach, read: Reader = read_text) -> None:
        self.report = report
        self.reach = reach
        self.read = read
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
        if Path(node.target).is_absolute():
            self.report.error(
                "A107", "an import is relative to the file that it stands in", node.span, help="write a relative path"
            )
            return None
        target = path.parent / node.target
        if not self._allowed(node, node.target, target):
            return None
        if not _is_file(target):
            self._missing(node, Path(node.target), target)
            return None
        return target

    def _missing(self, node: ast.Import, given: Path, target: Path) -> None:
        if _exists(target):
            what, advice = f"{target} is no regular file", "name a text file, not a folder, a pipe or a device"
            self.report.error("A107", what, node.span, help=advice)
            return
        close = {given.with_name(name).as_posix() for name in _beside(target) if did_you_mean(given.name, [name])}
        advice = did_you_mean(given.as_posix(), close) or "the path is relative to the file that it stands in"
        edit = suggested(advice, node.span)
        edit = edit and replace(edit, text=f'import "{edit.text}"')
        self.report.error("A107", f"there is no file {target}", node.span, help=advice, instead=edit)

    def _allowed(self, node: ast.Import, written: str, target: Path) -> bool:
        """Whether the path may be looked at. What is said if not tells nothing of what is there."""
        resolved = _resolved(target)
        if resolved is None:
            self.report.error("A107", "this is no path", node.span, help=f"write one such as `masks{ENDING}`")
        elif not self.reach.holds(resolved):
            self.report.error(
                "A115",
                "this file is outside of the spec's folder",
                node.span,
                notes=["a spec imports from its own folder, from those below it, and from the library"],
                help="move it there, or allow its folder with allow_imports=…",
            )
        elif {Path(written).suffix, resolved.suffix} != {ENDING}:
            self.report.error(
                "A107", f"only {ENDING} files can be imported", node.span, help=f"give the file a name with {ENDING}"
            )
        else:
            return True
        return False

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
            instead=name.span if close else None,
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
                own = {item.name.name for item in module.items if isinstance(item, ast.Mask | ast.Function)}
                self._own[resolved] = {name: mask for name, mask in visible.items() if name in own}
        return self._own[resolved]

    def _parse(self, node: ast.Import, path: Path) -> ast.Module | None:
        """The file's tree. Of what is no attn text nothing is shown."""
        if len(self._own) > MAX_FILES:
            self.report.error(
                "A011", f"more than {MAX_FILES} files are imported", node.span, help="put their masks into fewer"
            )
            return None
        try:
            source = SourceFile(str(path), self.read(path.resolve()))
            if names_version(source):
                module = parsed(source)
                check_module(module)
                return module
            what, advice = "it is no attn text", "an attn file begins with `attn 1`"
        except AttnccError as error:
            self.report.found.items += error.diagnostics
            return None
        except UnicodeDecodeError:
            what, advice = "it is not UTF-8", "save the file as UTF-8"
        except OSError as error:
            what, advice = error.strerror or "the system refuses", "it must be a UTF-8 text file that you may read"
        self.report.error("A107", f"{path} can't be read: {what}", node.span, help=advice)
        return None

    # ---------------------------------------------------------------- names

    def _clash(
        self, node: ast.Import, name: str, visible: Mapping[str, Mask], imported: Mapping[str, ast.Import]
    ) -> None:
        if name in imported:
            self.report.error(
                "A109",
                f"two imported files have a {visible[name].kind} `{name}`",
                node.span,
                labels=[Label(imported[name].span, "the other file"), Label(visible[name].node.name.span, "its own")],
                help="rename one, or import only one of them",
            )

    def _declare(self, module: ast.Module, visible: dict[str, Mask]) -> None:
        """Adds the file's own masks, which its imports must not name too."""
        for node in module.items:
            if not isinstance(node, ast.Mask | ast.Function):
                continue
            name, mask = node.name, Mask(node, visible)
            if reason := names.reserved(name.name, mask.kind):
                self.report.error(
                    "A104",
                    f"`{name.name}` can't be the name of a {mask.kind}: {reason}",
                    name.span,
                    help="choose another name",
                )
            elif name.name in visible:
                self.report.error(
                    "A103",
                    f"there is already a {visible[name.name].kind} `{name.name}`",
                    name.span,
                    labels=[Label(visible[name.name].node.name.span, "declared here")],
                    help="every name has one meaning; choose another name",
                )
            visible.setdefault(name.name, mask)


def _resolved(path: Path) -> Path | None:
    """Where a path leads, through links; None where it leads nowhere: in a circle, or with a NUL in it."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def _is_file(path: Path) -> bool:
    """Whether there is one, as far as the system tells. That it may be read isn't known yet."""
    try:
        return path.is_file()
    except PermissionError:
        return True
    except OSError:  # the name is too long
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _beside(path: Path) -> list[str]:
    """The files that may have been meant."""
    try:
        return [item.name for item in path.parent.glob(f"*{ENDING}") if item.is_file()]
    except OSError:
        return []
