"""`attncc show`: the mask and what the compiler makes of it, as a picture; or one stage of compiling as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..quoting import json_text, printable
from . import stages
from .console import as_json, progress, report
from .files import check_element_types, load_specification, writing
from .options import (
    SPEC_FILE_OR_STDIN,
    PictureFile,
    define_option,
    dtype_option,
    format_option,
    imports_option,
    input_option,
    problem_options,
    seed_option,
    variant_option,
)

if TYPE_CHECKING:
    from ..ir import Variant
    from ..problem import Problem
    from ..show.picture import Picture


@click.command("show", short_help="Draw the mask and its tiles; or print a stage, such as the CUDA text.")
@click.argument("file", type=SPEC_FILE_OR_STDIN)
@variant_option
@problem_options(q_len=1024, heads=1)
@click.option("--b", type=click.IntRange(0), default=0, help="Which of the sequences to draw, from 0.")
@click.option("--h", type=click.IntRange(0), default=0, help="Which of the query heads to draw, from 0.")
@click.option("--block-q", type=click.IntRange(1), default=64, show_default=True, help="Rows of a tile.")
@click.option("--block-kv", type=click.IntRange(1), default=64, show_default=True, help="Keys of a tile.")
@click.option("--png", type=PictureFile(".png"), help="Also write a picture here.")
@click.option("--svg", type=PictureFile(".svg"), help="Also write a picture here.")
@seed_option("Seed of the inputs that are drawn at random.")
@click.option(
    "--stage",
    type=click.Choice(list(stages.OPTIONS)),
    help="Instead of a picture, print one stage: the syntax tree, the typed IR, the proven tile rules, the plan as "
    "packages hold it, the CUDA text, PTX, or machine code as nvdisasm lists it.",
)
@click.option(
    "-o", "--output", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the stage to a file."
)
@dtype_option
@click.option("--arch", "target", default="sm_90a", show_default=True, help="The target of the stage's kernel.")
@click.option(
    "--pass",
    "pass_name",
    default="forward",
    show_default=True,
    help="The pass of the stage's kernel, as in decode or backward.",
)
@input_option
@define_option
@imports_option
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    file: Path,
    stage: str | None,
    out: Path | None,
    png: Path | None,
    svg: Path | None,
    **given: Any,
) -> None:
    """Draw the mask of a variant, the tiles that a kernel skips (empty), computes with mask code (partial) or without
    (full), and the work of each row. Inputs that aren't given are drawn at random.

    \b
    attncc show specs/sliding_window.attn -D width=200
    attncc show specs/prefix_lm.attn -i prefix_len=lengths.npy --png mask.png
    attncc show specs/documents.attn --q-len 4096 --svg documents.svg
    attncc show specs/causal.attn --stage rules
    attncc show causal --stage cuda --arch sm_90a --head-dim 128 -o causal.cu
    """
    stages.check_options(ctx, stage)
    if stage is not None:
        stages.print_stage(file, stage, out, given)
    else:
        _draw(file, png, svg, given)


def _draw(file: Path, png: Path | None, svg: Path | None, given: dict[str, Any]) -> None:
    from .. import plausible
    from ..show.variants import variant_picture
    from .explain import drawn_inputs

    problem: Problem = given["problem"]
    b, h = given["b"], given["h"]
    for letter, wanted, option, count in (("b", b, "batch", problem.batch), ("h", h, "heads", problem.num_heads)):
        if wanted >= count:
            needs = f"--{letter} {wanted} needs --{option} {wanted + 1} at least"
            raise click.UsageError(f"{needs}: --{option} is {count}, and they are counted from 0")
    variant = load_specification(file, given).variant
    check_element_types(variant, given["given_inputs"])
    with progress("drawing"):
        inputs = plausible.of_mask(variant, problem, given["seed"], given["given_inputs"])
        arrays = {name: item.array for name, item in inputs.items()} | given["given_inputs"]
        blocks = {"block_q": given["block_q"], "block_kv": given["block_kv"]}
        drawn = variant_picture(variant, problem, arrays, **blocks, b=b, h=h)
    told = {name: item.how for name, item in inputs.items()}
    click.echo(json_text({**drawn.to_json(), "drawn": told}) if as_json() else str(drawn))
    if inputs and not as_json():
        click.echo(f"\n{drawn_inputs(inputs).rstrip()}")
    _warn(variant, drawn)
    for path in filter(None, (png, svg)):
        _save(drawn, path)
        click.echo(f"wrote {printable(str(path))}", err=as_json())


def _warn(variant: Variant, drawn: Picture) -> None:
    from ..advice import little_kept
    from ..analysis.mask.tiles import analyse

    found = little_kept(variant, analyse(variant, drawn.block_q, drawn.block_kv), drawn.kept, drawn.computed)
    if found is not None:
        report([found], err=as_json())


def _save(drawn: Picture, path: Path) -> None:
    from ..show.plot import save_png

    try:
        with writing(path):
            if path.suffix.lower() == ".svg":
                path.write_text(drawn._repr_svg_(), encoding="utf-8")
            else:
                save_png(drawn, path)
    except ImportError:
        raise click.UsageError("--png needs matplotlib: pip install 'attncc[plot]'; --svg doesn't") from None
