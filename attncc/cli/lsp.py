"""`attncc lsp`: the language server that editors start."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .options import imports_option

INSTALL = "pip install 'attncc[lsp]'"


@click.command("lsp", short_help="The language server, for editors.")
@imports_option
@click.option("--stdio", is_flag=True, hidden=True, help="What many editors add; there is no other way.")
def command(allow_imports: tuple[Path, ...], stdio: bool) -> None:
    """Answer an editor on stdin and stdout, by the Language Server Protocol: diagnostics while typing, what is proven
    of a mask, types, completion, definitions, formatting, figures of a call above each variant.

    \b
    attncc lsp                            what an editor starts: docs/editors.md
    attncc lsp --allow-imports ../shared  a folder that specs may import from
    """
    try:
        from ..lsp.server import make_server
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise click.UsageError(f"the language server needs pygls 2: {INSTALL}") from None
    if sys.stdin.isatty():
        click.echo("attncc lsp: waits for an editor on stdin; Ctrl-C ends it", err=True)
    make_server(allow_imports).start_io()
