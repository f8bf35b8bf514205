"""The .attn files that commands are given."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..diagnostics import AttnccError, Diagnostic
from .console import as_json, report
from .options import STDIN

if TYPE_CHECKING:
    from ..compiler import Specification
    from ..ir import Variant
    from ..source import SourceFile


def load_specification(path: Path, given: dict[str, Any]) -> Specification:
    """The variant that `--variant` names, or the only one, with its schedules, for kernels of the `--dtype` of commands
    that have one; prints the file's warnings.

    AttnccError with everything that is wrong with it.
    """
    from .. import compiler

    specification, program = compiler.load_specification(
        spec(path), given["variant"], given["defines"], given["allow_imports"]
    )
    if program.warnings:
        report(program.warnings, err=as_json())
    return specification.serving(given["dtype"]) if "dtype" in given else specification


def source(path: Path) -> SourceFile:
    """The text of a file, or of stdin for `-`. AttnccError A511 if it can't be read."""
    from ..source import SourceFile
    from ..spec_text import read

    if path != STDIN:
        return read(path)
    try:
        return SourceFile("<stdin>", sys.stdin.buffer.read().decode())
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise AttnccError(Diagnostic("A511", f"line {line} of stdin is not UTF-8", help="send UTF-8")) from None


def spec(path: Path) -> Path | str:
    """What the compiler reads: a file, or the text of stdin for `-`."""
    return source(path).text + "\n" if path == STDIN else path


_AXIS = re.compile(r"axis `(\w+)` of input")
_OPTIONS = {
    "batch": "--batch",
    "head": "--heads",
    "kv_head": "--kv-heads",
    "q": "--q-len",
    "kv": "--kv-len",
    "pos": "--kv-len",
}


_WITHOUT_A_GPU = (
    "tune, bench, `explain --measure` and `--device cuda` want one; run, show, explain, check and build work without"
)


def on_the_command_line(found: Diagnostic) -> Diagnostic:
    """The same, with options where the help speaks of Python."""
    axis = _AXIS.match(found.message)
    if found.code == "A609" and axis and axis[1] in _OPTIONS:
        came = found.notes[-1].removeprefix("came ")
        return replace(found, help=f"give {_OPTIONS[axis[1]]} {came}, or another array")
    if found.code == "A503":
        return replace(found, help=_WITHOUT_A_GPU)
    return replace(
        found, help=found.help.replace("variant=…", "--variant NAME").replace("allow_imports=…", "--allow-imports DIR")
    )


def check_element_types(variant: Variant, given: Mapping[str, Any]) -> None:
    """A604 for an input of `-i` that no kernel would take, where a command makes no call of one."""
    import numpy as np

    from ..problem import Signature
    from ..problem.arrays import array_facts
    from ..problem.inputs import check_dtype

    declared = {item.name: item for item in variant.inputs}
    for name, value in given.items():
        if name in declared and isinstance(value, np.ndarray):
            check_dtype(Signature(variant, "bf16"), declared[name], array_facts(name, value))


def replace_text(path: Path, text: str) -> None:
    """Writes beside the file and renames, so that an interruption leaves the old or the new text, whole. Of a link the
    file changes that it leads to."""
    check_replaceable(path)
    own = path.resolve()
    draft = own.with_name(f".{own.name}.{os.getpid()}")
    with writing(path):
        try:
            draft.write_text(text, encoding="utf-8")
            if own.exists():
                draft.chmod(own.stat().st_mode)
            draft.replace(own)
        finally:
            draft.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """A usage error where the file can't be replaced, or is read-only, for which a rename wouldn't care."""
    own = path.resolve()
    with writing(path):
        for place in (own.parent, own):
            if place.exists() and not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A usage error where the system refuses to write the file that the command line names."""
    try:
        yield
    except OSError as error:
        raise click.UsageError(f"{path} can't be written: {error.strerror}") from None
