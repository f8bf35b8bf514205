"""`attncc fmt`: the one layout of .attn files."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from ..quoting import printable
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
    from ..syntax.formatter import format_source

    changed = 0
    for path in files:
        read = source(path)
        formatted = format_source(read)
        if path == STDIN and not check:
            click.echo(formatted, nl=False)
            continue
        if formatted == read.text:
            continue
        changed += 1
        name = printable(str(path))
        if check:
            click.echo(_difference(name, read.text, formatted), nl=False)
        else:
            replace_text(path, formatted)
            click.echo(f"formatted {name}", err=as_json())
    if check and changed:
        ctx.exit(1)


def _difference(name: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), name, f"{name} (formatted)")
    return "".join(lines)
