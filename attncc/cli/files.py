"""The .attn files that commands are given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..diagnostics import AttnccError, Diagnostic
from .console import as_json, report

if TYPE_CHECKING:
    from ..compiler import Specification


def load_specification(path: Path, given: dict[str, Any]) -> Specification:
    """The variant that `--variant` names, or the only one, with its schedules, for kernels of the `--dtype` of commands
    that have one; prints the file's warnings.

    AttnccError with everything that is wrong with it.
    """
    from .. import compiler

    try:
        specification, program = compiler.load_specification(path, given["variant"], given["defines"])
    except AttnccError as error:
        raise AttnccError([_on_the_command_line(item) for item in error.diagnostics]) from None
    if program.warnings:
        report(program.warnings, err=as_json())
    return specification.serving(given["dtype"]) if "dtype" in given else specification


def _on_the_command_line(found: Diagnostic) -> Diagnostic:
    """The same, with the option's name where Python's keyword stood."""
    return replace(found, help=found.help.replace("variant=…", "--variant NAME"))


def replace_text(path: Path, text: str) -> None:
    """Writes beside the file and renames, so that an interruption leaves the old or the new text, whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            draft.write_text(text, encoding="utf-8")
            draft.chmod(path.stat().st_mode)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A usage error where the system refuses to write the file that the command line names."""
    try:
        yield
    except OSError as error:
        raise click.UsageError(f"{path} can't be written: {error.strerror}") from None
