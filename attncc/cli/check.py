"""`attncc check`: everything that can be said of a file without building it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..diagnostics import AttnccError, Diagnostic
from .console import as_json, report
from .options import SPEC_FILE, define_option, format_option

if TYPE_CHECKING:
    from ..analysis.rules import TileRules
    from ..ir import Variant
    from ..semantics.load import Program

# Tiles that the mask is judged by, and the kernels that schedules are judged by: what `attncc build` does by default.
BLOCKS = (128, 128)
HEAD_DIMS = (64, 128)
DTYPE = "bf16"


@click.command("check", short_help="Check names, types, masks and schedules.")
@click.argument("files", nargs=-1, required=True, type=SPEC_FILE)
@define_option
@format_option
def command(files: tuple[Path, ...], defines: dict[str, int | float | bool]) -> None:
    """Check names, types, masks and schedules of .attn files, and say what is proven of each mask.

    \b
    attncc check specs/*.attn
    attncc check mine.attn -D width=512 --format json
    """
    from ..compiler import read
    from ..semantics.load import load

    found: list[Diagnostic] = []
    for path in files:
        try:
            program = load(read(path), defines)
            found += program.warnings
            lines = [describe(variant, _rules(variant)) for variant in program.variants]
            _judge_schedules(program)
        except AttnccError as error:
            found += error.diagnostics
        else:
            if not as_json():
                click.echo("\n".join([f"{path}: ok", *lines]))
    if any(item.severity == "error" for item in found):
        raise AttnccError(found)
    if found or as_json():
        report(found)


def _rules(variant: Variant) -> TileRules:
    from ..analysis.tiles import analyse

    return analyse(variant, *BLOCKS)


def _judge_schedules(program: Program) -> None:
    """AttnccError (A4) for the first kernel that a schedule makes impossible."""
    from ..compiler import specify
    from ..runtime.store import Configuration

    for variant in program.variants:
        specification = specify(program, variant.name)
        for target in dict.fromkeys(schedule.target for schedule in specification.schedules):
            for head_dim in HEAD_DIMS:
                specification.plans(Configuration(DTYPE, head_dim, head_dim), target)


def describe(variant: Variant, rules: TileRules) -> str:
    """What is proven of a mask, in a few lines."""
    lines = [f"  variant {variant.name}: {_skipping(variant, rules)}"]
    if rules.zone_maps:
        tables = ", ".join(zone_map.input for zone_map in rules.zone_maps)
        lines.append(f"    a pre-pass makes min/max tables of {tables}")
    if variant.keeps:
        lines.append(_EVERY_ROW if rules.rows_never_empty else _SOME_ROW)
    for index, reason in rules.undecided:
        lines.append(f"    line {_line(variant, index)} leaves tiles partial: {reason}")
    return "\n".join(lines)


_EVERY_ROW = "    every row keeps a key, whatever the lengths and inputs"
_SOME_ROW = "    for some lengths or inputs a row keeps nothing, or it isn't proven otherwise: it gives 0, and lse -inf"


def _skipping(variant: Variant, rules: TileRules) -> str:
    if not variant.keeps:
        return "keeps every pair; no mask code at all"
    if not rules.decides:
        return "no tile can be proven empty or full; every tile evaluates the mask"
    if rules.bounds_suffice:
        return "tiles are skipped by loop bounds alone"
    return "tiles are skipped by loop bounds and a test of each tile"


def _line(variant: Variant, keep: int) -> str:
    span = variant.keeps[keep].span
    return str(span.line) if span else "?"
