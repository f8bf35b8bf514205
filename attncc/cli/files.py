"""The .attn files that commands are given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import report

if TYPE_CHECKING:
    from ..compiler import Specification


def load_specification(path: Path, given: dict[str, Any]) -> Specification:
    """The variant that `--variant` names, or the only one, with its schedules; prints the file's warnings.

    AttnccError with everything that is wrong with it.
    """
    from .. import compiler

    specification, program = compiler.load_specification(path, given["variant"], given["defines"])
    if program.warnings:
        report(program.warnings)
    return specification
