"""Folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic
from .text import MARK

_INIT = "__init__.py"


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
    """The variants that earlier builds left in a package."""
    return [path.name for path in out.iterdir() if _is_ours(path)] if out.is_dir() else []


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """An empty folder whose entries take the places of their namesakes in `out` once its body is through.

    If the body fails or is interrupted, `out` stays as it was; if that happens while entries move, they move back.
    Of builds into one folder each waits for the one before, so that its body sees all that the others left.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with _alone(out.parent):
        yield from _staged(out)


def _staged(out: Path) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    new, old = work / "new", work / "old"
    try:
        new.mkdir()
        old.mkdir()
        yield new
        _exchange(new, out, old)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, which leaves no file in it, where the system and its file system have such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _exchange(new: Path, out: Path, old: Path) -> None:
    created = not out.exists()
    names = sorted(path.name for path in new.iterdir())
    try:
        out.mkdir(exist_ok=True)
        for name in names:
            if (out / name).exists():
                (out / name).rename(old / name)
            (new / name).rename(out / name)
    except BaseException:
        for name in names:
            _move_back(out / name, new / name, old / name)
        if created:
            out.rmdir()
        raise


def _move_back(place: Path, new: Path, old: Path) -> None:
    if place.exists() and not new.exists():
        place.rename(new)
    if old.exists():
        old.rename(place)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _is_ours(folder: Path) -> bool:
    try:
        return (folder / _INIT).read_text(encoding="utf-8", errors="replace").startswith(MARK)
    except OSError:
        return False
