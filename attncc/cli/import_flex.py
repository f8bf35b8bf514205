"""`attncc import-flex`: FlexAttention's mods become a `.attn` file."""

from __future__ import annotations

from pathlib import Path

import click

from ..quoting import printable
from .console import as_json, report
from .files import writing
from .options import format_option


@click.command("import-flex", short_help="Turn FlexAttention's mask_mod and score_mod into a .attn file.")
@click.argument("targets", nargs=-1, required=True, metavar="FILE.py:FUNCTION...")
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; the terminal, if not given.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME:DTYPE[AXES]",
    help="Declares an input instead of guessing it, as in 'doc:i32[batch, pos] nondecreasing'. May be repeated.",
)
@click.option("--force", is_flag=True, help="Replace the file that -o names, if there is one.")
@click.option("--name", help="The name of the variant; from the functions' names, if not given.")
@format_option
def command(
    *, targets: tuple[str, ...], out: Path | None, inputs: tuple[str, ...], force: bool, name: str | None
) -> None:
    """Turn mask_mod(b, h, q_idx, kv_idx) and score_mod(score, b, h, q_idx, kv_idx) of FlexAttention into a checked and
    formatted .attn file. Of several functions the masks are AND-ed, the scores applied in order. The Python text is
    read and never run; whatever can't be taken is named, with what to write instead.

    Captured tensors and unknown parameters become inputs, whose dtypes and axes are guessed; known numbers consts.

    \b
    attncc import-flex masks.py:causal
    attncc import-flex 'masks.py:sliding_window(1024)' mods.py:alibi -o mine.attn
    attncc import-flex masks.py:documents.inner --input 'doc:i32[batch, pos]'
    attncc import-flex 'masks.py:tiles(torch.empty(2, 4, 16, 8), 64)'
    """
    from ..import_flex import import_flex
    from ..import_flex.naming import variant_name

    if as_json() and out is None:
        raise click.UsageError("--format json prints diagnostics on stdout; name a file for the .attn text with -o")
    if out is not None and out.exists() and not force:
        raise click.UsageError(f"{out} is there already; name another file, or replace it with --force")
    if name is not None and variant_name(name) != name:
        raise click.UsageError(f"--name {name}: no variant can be called that; {variant_name(name)} would do")
    imported = import_flex(targets, inputs, name)
    if out is None:
        click.echo(imported.text, nl=False)
    else:
        with writing(out):
            out.write_text(imported.text, encoding="utf-8")
        if not as_json():
            click.echo(f"wrote {printable(str(out))}")
    if imported.warnings or as_json():
        report(imported.warnings)
