"""`attncc new`: a file to begin with, made from a variant of the library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..diagnostics import AttnccError, Diagnostic
from ..quoting import printable
from .files import replace_text
from .options import SPEC_FILE

if TYPE_CHECKING:
    from ..source import SourceFile


@click.command("new", short_help="Write a file to begin with.")
@click.argument("name")
@click.option("--like", type=SPEC_FILE, default="causal", show_default=True, help="The variant to begin from.")
def command(name: str, like: Path) -> None:
    """Write NAME.attn into this folder: a copy of a variant of the library, or of your own file, under a new name.

    \b
    attncc new mine --like documents
    attncc run mine.attn
    """
    from .. import library
    from ..semantics.load import load
    from ..source import SourceFile
    from ..spec_text import read

    name = name.removesuffix(library.SUFFIX)
    path = Path(f"{name}{library.SUFFIX}")
    if not library.is_name(name):
        meant = name.replace("-", "_")
        advice = f": did you mean `{meant}`?" if library.is_name(meant) else ""
        raise click.BadParameter(f"`{printable(name)}` is no name: letters, digits and _, no digit first{advice}")
    if path.exists():
        raise click.UsageError(f"{path} is there already: choose another name, or remove it")
    source = SourceFile(str(path), _renamed(read(like), name))
    load(source)  # says what is wrong before anything is written
    replace_text(path, source.text)
    click.echo(f"wrote {path}: try `attncc run {path}`, `attncc show {path}`")


def _renamed(source: SourceFile, name: str) -> str:
    """The text with its one variant under another name, in schedules too."""
    from ..syntax import ast
    from ..syntax.parser import parse

    items = parse(source).items
    variants = [item.name for item in items if isinstance(item, ast.Variant)]
    if len(variants) != 1:
        what = f"{source.path} has {len(variants)} variants"
        raise AttnccError(Diagnostic("A512", what, help="give --like a file with one variant"))
    spans = [*variants, *(item.variant for item in items if isinstance(item, ast.Schedule))]
    text = source.text
    for place in sorted((item.span for item in spans), key=lambda span: span.start, reverse=True):
        text = text[: place.start] + name + text[place.end :]
    return text
