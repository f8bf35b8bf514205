"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .console import FORMAT

F = TypeVar("F", bound=Callable[..., Any])

SPEC_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def parse_value(text: str) -> int | float | bool:
    """A value as in a `.attn` file: true, false, an int, a float. ValueError on anything else."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


class Assignment(click.ParamType[Any]):
    """`name=value`, as a pair."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        try:
            if not (name.isidentifier() and equals):
                raise ValueError
            return name, parse_value(text)
        except ValueError:
            self.fail(f"{value!r}: write a name, `=` and a number, true or false, as in width=512", param, ctx)


class InputAssignment(Assignment):
    """`name=number` or `name=file.npy`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple) or not value.endswith(".npy"):
            return super().convert(value, param, ctx)
        import numpy as np

        name, _, path = value.partition("=")
        try:
            return name, np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Listed(click.ParamType[Any]):
    """Values between commas, each of one type or of a fixed set."""

    name = "list"

    def __init__(self, kind: Callable[[str], Any], choices: tuple[Any, ...] = ()) -> None:
        self.kind, self.choices = kind, choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        try:
            items = tuple(self.kind(item.strip()) for item in value.split(","))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)
        for item in items:
            if self.choices and item not in self.choices:
                self.fail(f"{item!r} is not one of {', '.join(map(str, self.choices))}", param, ctx)
        return items


def head_dims(text: str) -> tuple[int, int]:
    """`128`, or `192:128` where values have another head dim than q and k."""
    key, _, value = text.partition(":")
    return int(key), int(value or key)


def _remember_format(ctx: click.Context, _: click.Parameter, value: str) -> str:
    ctx.meta[FORMAT] = value
    return value


format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    callback=_remember_format,
    is_eager=True,
    expose_value=False,
    help="How diagnostics are printed: text with carets, or one JSON list on stdout.",
)

define_option = click.option(
    "-D",
    "defines",
    type=Assignment(),
    multiple=True,
    callback=lambda ctx, param, value: dict(value),
    help="Sets a const of the file, as in -D width=512. May be repeated.",
)

input_option = click.option(
    "-i",
    "--input",
    "given_inputs",
    type=InputAssignment(),
    multiple=True,
    callback=lambda ctx, param, value: dict(value),
    help="Gives an input: a number for a scalar, or a .npy file. The others are drawn at random.",
)

variant_option = click.option("--variant", metavar="NAME", help="Which variant, where a file has several.")


def problem_options(q_len: int, kv_len: int | None, batch: int, heads: int) -> Callable[[F], F]:
    """--q-len, --kv-len, --batch, --heads, --kv-heads with the given defaults (kv_len None: as q_len)."""

    def decorate(function: F) -> F:
        for option in reversed(
            (
                click.option("--q-len", type=click.IntRange(1), default=q_len, show_default=True, help="Query rows."),
                click.option("--kv-len", type=click.IntRange(1), default=kv_len, help="Keys; as --q-len if not given."),
                click.option("--batch", type=click.IntRange(1), default=batch, show_default=True, help="Sequences."),
                click.option("--heads", type=click.IntRange(1), default=heads, show_default=True, help="Query heads."),
                click.option("--kv-heads", type=click.IntRange(1), help="Key heads; as --heads if not given."),
            )
        ):
            function = option(function)
        return function

    return decorate
