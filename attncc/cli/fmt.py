"""`attncc fmt`: the one layout of .attn files."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from ..diagnostics import AttnccError, Diagnostic
from ..quoting import json_text, printable
from .console import as_json
from .files import replace_text, source
from .options import OWN_FILE_OR_STDIN, STDIN, format_option, stdin_once


@click.command("fmt", short_help="Lay files out in the one standard way.")
@click.argument("files", nargs=-1, required=True, type=OWN_FILE_OR_STDIN, callback=stdin_once)
@click.option("--check", is_flag=True, help="Write nothing; show what would change, and exit with 1 if anything would.")
@format_option
@click.pass_context
def command(ctx: click.Context, files: tuple[Path, ...], check: bool) -> None:
    """Lay .attn files out in the one standard way. Comments stay, the meaning too.
    Of `-`, stdin, the result goes to stdout.

    \b
    attncc fmt specs/*.attn
    attncc fmt - < mine.attn               for editors
    attncc fmt --check specs/*.attn        for continuous integration
    """
    if as_json() and STDIN in files and not check:
        raise click.UsageError("--format json prints an object on stdout, where the text of `-` goes: add --check")
    changed: list[Path] = []
    found: list[Diagnostic] = []
    for path in files:
        try:
            if _changes(path, check):
                changed.append(path)
        except AttnccError as error:  # one of them, the others are laid out all the same
            found += error.diagnostics
    if found:
        raise AttnccError(found)
    if as_json():
        click.echo(json_text({"changed": list(map(str, changed))}))
    if check and changed:
        ctx.exit(1)


def _changes(path: Path, check: bool) -> bool:
    """Lays a file out, or says with `check` what would change. Whether something does."""
    from ..syntax.formatter import format_source

    read = source(path)
    formatted = format_source(read)
    if path == STDIN and not check:
        click.echo(formatted, nl=False)
        return False
    if formatted == read.text:
        return False
    name = printable(str(path))
    if not check:
        replace_text(path, formatted)
    if not as_json():
        click.echo(_difference(name, read.text, formatted) if check else f"formatted {name}\n", nl=False)
    return True


def _difference(name: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, f"{name} (formatted)")
    return "".join(lines)
