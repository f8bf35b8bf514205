"""`attncc check`: everything that can be said of a file without building it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..checks import checked, proof, what_is_proven
from ..diagnostics import AttnccError, Diagnostic
from ..quoting import json_text, printable
from .console import as_json, report, wrapped
from .files import source
from .options import SPEC_FILE_OR_STDIN, define_option, format_option, imports_option, stdin_once

if TYPE_CHECKING:
    from ..analysis.rules import TileRules
    from ..ir import Variant


@click.command("check", short_help="Check names, types, masks and schedules.")
@click.argument("files", nargs=-1, required=True, type=SPEC_FILE_OR_STDIN, callback=stdin_once)
@define_option
@imports_option
@format_option
def command(files: tuple[Path, ...], defines: dict[str, int | float | bool], allow_imports: tuple[Path, ...]) -> None:
    """Check names, types, masks and schedules of .attn files, and say what is proven of each mask.

    \b
    attncc check specs/*.attn
    attncc check mine.attn --format json   what is proven, as an object
    git show HEAD:mine.attn | attncc check -
    """
    found: list[Diagnostic] = []
    proven: list[dict[str, Any]] = []
    for path in files:
        try:
            result = checked(source(path), defines, allow_imports)
        except AttnccError as error:  # the file can't be read
            found += error.diagnostics
            continue
        found += result.diagnostics
        if as_json():
            proven.append({"file": str(path), "variants": [proof(*pair) for pair in result.rules]})
        elif not result.has_errors:
            click.echo("\n".join([f"{printable(str(path))}: ok", *(describe(*pair) for pair in result.rules)]))
    if any(item.severity == "error" for item in found):
        raise AttnccError(found)
    if as_json():
        click.echo(json_text({"files": proven, "diagnostics": [item.to_json() for item in found]}, indent=2))
    elif found:
        report(found)


def describe(variant: Variant, rules: TileRules) -> str:
    """What is proven of a mask, in a few lines."""
    first, *more = what_is_proven(variant, rules)
    return "\n".join(
        wrapped(line, 2) for line in (f"  variant {variant.name}: {first}", *(f"    {line}" for line in more))
    )
