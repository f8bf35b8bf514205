"""The .attn files that commands are given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..ir import Variant
    from ..semantics.load import Program
    from ..source import SourceFile


def read_source(path: Path) -> SourceFile:
    """A file's text; a usage error if it can't be read."""
    from ..source import SourceFile

    try:
        return SourceFile.read(path)
    except OSError as error:
        raise click.UsageError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is not a UTF-8 text file") from None


def load_program(path: Path, defines: dict[str, int | float | bool]) -> Program:
    """Reads and checks a file; prints its warnings. AttnccError with what is wrong with it."""
    from ..semantics.load import load
    from .console import report

    program = load(read_source(path), defines)
    if program.warnings:
        report(program.warnings)
    return program


def pick_variant(program: Program, name: str | None) -> Variant:
    """The variant named, or the only one; a usage error that lists the names otherwise."""
    variants = {variant.name: variant for variant in program.variants}
    if name is None and len(variants) == 1:
        return program.variants[0]
    if name not in variants:
        given = f"there is no variant {name}" if name else f"the file has {len(variants)} variants"
        raise click.UsageError(f"{given}; give --variant with one of: {', '.join(variants) or '(none)'}")
    return variants[name]
