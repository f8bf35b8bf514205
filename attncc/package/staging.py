"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic
from ..runtime.store.manifest import MANIFEST
from .exchange import exchange
from .text import MARK

_INIT = "__init__.py"
_CACHE = "__pycache__"
_NEW, _OLD = "new", "old"


def check_replaceable(out: Path, names: Iterable[str]) -> None:
    """AttnccError A515 if the package, or a variant's folder in it, exists and was not written by a build."""
    for folder in (out, *(out / name for name in names)):
        foreign = folder.exists() and not _is_ours(folder)
        if foreign and not (folder == out and _is_empty(folder)):
            raise AttnccError(
                Diagnostic(
                    "A515",
                    f"{folder} was not written by attncc, and the build would replace it",
                    help="choose another folder with -o",
                )
            )


def earlier_variants(out: Path) -> list[str]:
    """The variants that earlier builds left in a package, whose folders have a manifest; a kernel repository has a
    folder of its runtime beside them."""
    if not out.is_dir():
        return []
    return [path.name for path in out.iterdir() if _is_ours(path) and (path / MANIFEST).exists()]


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """An empty folder that becomes `out` once its body is through, together with all else that stands in `out`.

    `out` changes in one step. If the body fails, is interrupted or killed, `out` stays as it was. Where the system
    can't exchange folders, `out` is away for a moment; if the build is killed then, the next one brings it back first.
    Of builds into one folder each waits for the one before, so that its body sees all that the others left.
    """
    place = out.resolve()  # a link to the folder stays a link
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.parent) as alone:
        _clear(place, alone)
        yield from _staged(place)


def _staged(place: Path) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=_prefix(place), dir=place.parent))
    new = work / _NEW
    try:
        new.mkdir()
        yield new
        if place.exists():
            _bring(place, new)
        _replace(place, new, work / _OLD)
    finally:
        _remove(work, place)


def _prefix(place: Path) -> str:
    return f".{place.name}.attncc-"


def _clear(place: Path, alone: bool) -> None:
    """Takes away what killed builds have left beside `place`; unless `alone`, another build may be at work there."""
    ours = re.compile(rf"{re.escape(_prefix(place))}[a-z0-9_]{{8}}")
    for path in place.parent.iterdir():
        if ours.fullmatch(path.name) and (alone or not place.exists()):
            _remove(path, place)


def _remove(work: Path, place: Path) -> None:
    """Removes the folder of a build, which may hold what stood in `place`."""
    if (work / _OLD).exists() and not place.exists():
        (work / _OLD).rename(place)
    shutil.rmtree(work, ignore_errors=True)


def _bring(place: Path, new: Path) -> None:
    """Adds to `new` what only `place` has, as further names of the same files where that can be."""
    shutil.copymode(place, new)
    for path in place.iterdir():
        target = new / path.name
        if path.name == _CACHE or target.exists():
            continue
        if path.is_dir() and not path.is_symlink():
            ignored = shutil.ignore_patterns(_CACHE)
            shutil.copytree(path, target, symlinks=True, ignore=ignored, copy_function=_link)
        else:
            _link(path, target)


def _link(path: Path | str, target: Path | str) -> None:
    try:
        os.link(path, target, follow_symlinks=False)
    except OSError:  # the file system has no such links, or not as many
        shutil.copy2(path, target, follow_symlinks=False)


def _replace(place: Path, new: Path, old: Path) -> None:
    if not place.exists():
        new.rename(place)
    elif not exchange(new, place):
        place.rename(old)
        new.rename(place)


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Holds the lock of a folder, which leaves no file in it; gives False where there are no such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    held = False
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            held = True
        yield held
    finally:
        os.close(descriptor)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _is_ours(folder: Path) -> bool:
    try:
        return (folder / _INIT).read_text(encoding="utf-8", errors="replace").startswith(MARK)
    except OSError:
        return False
