"""Imports: files of the user's own project are read, everything else is a library known by name alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from ..diagnostics import AttnccError
from . import library
from .text import PythonText, read_python
from .values import Later, Library, Module, Scope, Text, Value


class Modules:
    """The files that one run has read, each once. `run_file` reads the statements of one into its scope."""

    def __init__(self, run_file: Callable[[Scope], None]) -> None:
        self._run_file = run_file
        self._scopes: dict[Path, Scope] = {}
        self._loading: set[Later] = set()  # names that are looked up now
        self._find = cache(_find)

    def read(self, path: Path) -> Scope:
        """The names of a file. AttnccError A701, A702 if it can't be read."""
        key = path.resolve()
        if key not in self._scopes:
            self._scopes[key] = self._run(read_python(path))
        return self._scopes[key]

    def _run(self, text: PythonText) -> Scope:
        scope = Scope(text, label=Path(text.source.path).stem)
        self._scopes[Path(text.source.path).resolve()] = scope  # for imports in a circle
        scope.names["__name__"] = Text(scope.label)
        self._run_file(scope)
        return scope

    # ---------------------------------------------------------------- imports

    def resolve(self, value: Value | None) -> Value | None:
        """What an import brings, now that it is used; None for a name that is looked up to find itself, as Python finds
        none in a module that isn't read to its end: `from . import below` in the `__init__.py` that holds `below`."""
        while isinstance(value, Later):
            later = value
            if later in self._loading:
                return None
            self._loading.add(later)
            try:
                value = later.load()
            finally:
                self._loading.remove(later)
        return value

    def imported(self, module: str, scope: Scope) -> Value:
        """`import module`; leading dots count as in `from ..module import name`."""
        return Later(lambda: self._module(module, scope))

    def member(self, module: str, name: str, scope: Scope) -> Value:
        """`from module import name`: a name in it, or a module below it."""

        def load() -> Value:
            whole = self._module(module, scope)
            found = self.name_in(whole, name) if isinstance(whole, Module) else None
            if found is not None:
                return found
            return Library(f"{whole.path if isinstance(whole, Library) else module.lstrip('.')}.{name}".lstrip("."))

        return Later(load)

    def name_in(self, module: Module, name: str) -> Value | None:
        """`module.name`: a name that the file binds, or a file of its package."""
        found = self.resolve(module.scope.names.get(name))
        path = Path(module.scope.text.source.path)
        if found is not None or path.name != "__init__.py":
            return found
        below = self._module(f".{name}", module.scope)
        return below if isinstance(below, Module) else None

    def _module(self, module: str, scope: Scope) -> Value:
        path = self._find(module, Path(scope.text.source.path).parent)
        try:
            return Module(self.read(path)) if path is not None else Library(module.lstrip("."))
        except AttnccError:
            return Library(module.lstrip("."))


def _find(module: str, beside: Path) -> Path | None:
    """The file of a module that is imported in a folder: relative to this, in it, or below what holds its package."""
    name = module.lstrip(".")
    if module.partition(".")[0] in library.KNOWN:
        return None
    dots = len(module) - len(name)
    folder = beside.resolve()
    if dots:
        roots = [folder.joinpath(*[".."] * (dots - 1))]
    else:
        package = folder
        while (package / "__init__.py").is_file():
            package = package.parent
        roots = [folder, package]
    parts = name.split(".") if name else []
    for root in roots:
        base = root.joinpath(*parts)
        for path in (base.with_suffix(".py") if parts else base, base / "__init__.py"):
            if path.is_file():
                here = Path.cwd()
                return path.relative_to(here) if path.is_relative_to(here) else path
    return None
