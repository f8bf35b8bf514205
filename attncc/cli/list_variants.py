"""`attncc list`: the variants that ship, which every command takes by name."""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

import click

from ..quoting import json_text
from .console import COLUMNS, as_json
from .options import format_option

if TYPE_CHECKING:
    from ..ir import Variant

_FEWEST_COLUMNS = 24
_SENTENCE_ENDS = re.compile(r"(?<!\bal)[.:] (?=[A-Z`])")  # but not behind "et al."


@click.command("list", short_help="The variants that ship: what each is, its consts and inputs.")
@format_option
def command() -> None:
    """Print the variants that ship with attncc. Commands take their names in place of a file, and so do
    attncc.compile and attncc.parse, with consts by name.

    \b
    attncc list
    attncc run sliding_window -D width=64
    attncc.compile("sliding_window", width=4096)
    """
    from .. import library
    from ..semantics.load import load
    from ..spec_text import read

    variants = [variant for name in library.names() for variant in load(read(name)).variants]
    if as_json():
        click.echo(json_text([_record(variant) for variant in variants], indent=2))
        return
    columns = max(_FEWEST_COLUMNS, min(shutil.get_terminal_size().columns, COLUMNS))
    click.echo("\n".join(_lines(variant, columns) for variant in variants))


def _record(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "documentation": variant.documentation,
        "consts": dict(variant.consts),
        "inputs": [item.show() for item in variant.inputs],
    }


def _lines(variant: Variant, columns: int) -> str:
    """The name, the first sentence of its documentation, and what a user may set or must bring."""
    first = _SENTENCE_ENDS.split(" ".join(variant.documentation.split()), maxsplit=1)[0].rstrip(".:")
    consts = ", ".join(f"{name} = {value}" for name, value in variant.consts)
    inputs = ", ".join(item.show() for item in variant.inputs)
    parts = [first, f"consts: {consts}" * bool(consts), f"inputs: {inputs}" * bool(inputs)]
    body = [line for part in parts for line in textwrap.wrap(part, columns - 4, break_long_words=False)]
    return "\n".join([click.style(variant.name, bold=True), *(f"    {line}" for line in body)])
