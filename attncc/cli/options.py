"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from .console import FORMAT

if TYPE_CHECKING:
    from ..problem import Problem

F = TypeVar("F", bound=Callable[..., Any])


class OwnFile(click.Path):
    """A .attn file of the user's: a command that writes it, or builds from it, names it."""

    def __init__(self, stdin: bool = False) -> None:
        super().__init__(exists=True, dir_okay=False, allow_dash=stdin, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from .. import library

        if str(value) == "-" and not self.allow_dash:
            self.fail("this command wants a file: `-` is taken by check, explain, fmt and show", param, ctx)
        if library.find(value) is not None and not Path(value).exists():
            instead = f"for one of your own, `attncc new mine --like {value}`"
            self.fail(f"`{value}` ships with attncc, and this command writes its file: {instead}", param, ctx)
        return super().convert(value, param, ctx)


STDIN = Path("-")
OWN_FILE = OwnFile()
OWN_FILE_OR_STDIN = OwnFile(stdin=True)


class SpecFile(click.ParamType[Path]):
    """A .attn file, or a variant of the library by its name; with `stdin` also `-`."""

    name = "file"

    def __init__(self, stdin: bool = False) -> None:
        self._files = OWN_FILE_OR_STDIN if stdin else OWN_FILE

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from .. import library

        shipped = library.find(value)
        if shipped is not None:
            return shipped
        try:
            return Path(self._files.convert(value, param, ctx))
        except click.BadParameter as error:
            self.fail("\n".join(filter(None, (error.message, library.advice(value)))), param, ctx)


SPEC_FILE = SpecFile()
SPEC_FILE_OR_STDIN = SpecFile(stdin=True)


def stdin_once(ctx: click.Context, param: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files of a command that takes several. A usage error for a second `-`: it would read nothing."""
    if files.count(STDIN) > 1:
        raise click.BadParameter("`-` is there twice, and stdin can be read once", ctx, param)
    return files


def parse_value(text: str) -> int | float | bool:
    """A value as in a `.attn` file: true, false, an int (also as in 0xff), a float. ValueError on anything else."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text, 16 if "0x" in text.lower() else 10)
    except ValueError:
        return float(text)


class Assignment(click.ParamType[Any]):
    """`name=value`, as a pair."""

    name = "name=value"
    advice = "write a name, `=` and a number, true or false, as in -D width=512"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        try:
            if not (name.isidentifier() and equals):
                raise ValueError
            return name, parse_value(text)
        except ValueError:
            self.fail(f"{value!r}: {self.advice}", param, ctx)


class Define(Assignment):
    """`name=value`, or `name=[value, ...]` for a const array."""

    advice = "write the name of a const, `=` and a number, true or false, or a list, as in -D width=512 or -D far=[2,4]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, _, text = ("", "", "") if isinstance(value, tuple) else value.partition("=")
        if not (name.isidentifier() and text.startswith("[") and text.endswith("]")):
            return super().convert(value, param, ctx)
        try:
            return name, tuple(parse_value(item.strip()) for item in text[1:-1].split(","))
        except ValueError:
            self.fail(f"{value!r}: {self.advice}", param, ctx)


class InputAssignment(Assignment):
    """`name=number` or `name=file.npy`."""

    name = "name=value"
    advice = "write the name of an input, `=` and a number, true, false or a file, as in -i cap=30 or -i doc=doc.npy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple) or not value.endswith(".npy"):
            return super().convert(value, param, ctx)
        import numpy as np

        name, _, path = value.partition("=")
        try:
            return name, np.lib.format.open_memmap(path, mode="r").copy()
        except OSError as error:
            self.fail(f"{path} can't be read: {error.strerror or error}", param, ctx)
        except (ValueError, EOFError):
            self.fail(f"{path} is not a .npy file of numbers or bools, as numpy.save writes them", param, ctx)


HEAD_DIM_HELP = "The head dim of q and k, after a colon that of v, as in 192:128."


class HeadDims(click.ParamType[Any]):
    """`128`, or `192:128` where values have another head dim than q and k, as a pair."""

    name = "dim[:dim]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..schedule.plan import LEAST_HEAD_DIM, MOST_HEAD_DIM, MOST_VALUE_HEAD_DIM

        if isinstance(value, tuple):
            return value
        key, _, own = value.partition(":")
        try:
            dims = int(key), int(own or key)
        except ValueError:
            self.fail(f"{value!r}: write a head dim as in 128, or 192:128 for q, k and for v", param, ctx)
        most = MOST_HEAD_DIM, MOST_VALUE_HEAD_DIM
        if any(not LEAST_HEAD_DIM <= dim <= limit for dim, limit in zip(dims, most, strict=True)):
            self.fail(f"{value!r}: head dims are from 1 to {most[0]}, those of values to {most[1]}", param, ctx)
        return dims


class Listed(click.ParamType[Any]):
    """Values between commas, each of one type."""

    name = "list"

    def __init__(self, item: click.ParamType[Any]) -> None:
        self.item = item

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        return tuple(self.item.convert(part.strip(), param, ctx) for part in value.split(","))


def joined(ctx: click.Context, param: click.Parameter, value: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    """The values of a `Listed` option that may be repeated."""
    return tuple(item for listed in value for item in listed)


def _remember_format(ctx: click.Context, _: click.Parameter, value: str) -> str:
    ctx.meta[FORMAT] = value
    return value


class _Format(click.Choice[str]):
    """How results are printed, which users take for what `build` writes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "hf-kernel":
            self.fail("hf-kernel is what `attncc build --package hf-kernel` writes", param, ctx)
        return super().convert(value, param, ctx)


format_option = click.option(
    "--format",
    "output_format",
    type=_Format(["text", "json"]),
    default="text",
    callback=_remember_format,
    is_eager=True,
    expose_value=False,
    help="Text, or JSON on stdout: diagnostics as a list; the result as an object, where a command has one.",
)

define_option = click.option(
    "-D",
    "defines",
    type=Define(),
    multiple=True,
    callback=lambda ctx, param, value: dict(value),
    help="Sets a const of the file, as in -D width=512 or -D far=[2,4]. May be repeated.",
)

imports_option = click.option(
    "--allow-imports",
    "allow_imports",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="DIR",
    help="A folder besides the file's own whose files it may import. May be repeated.",
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


dtype_option = click.option(
    "--dtype",
    type=click.Choice(["fp16", "bf16", "fp32", "e4m3"]),
    default="bf16",
    show_default=True,
    help="The dtype of q, k and v; e4m3 is for sm_90a.",
)


def check_for_gpu(dtype: str) -> None:
    """A usage error where the random arrays of a command can't be put on a GPU."""
    from ..runtime.frameworks.transfer import ABSENT

    if dtype == ABSENT:
        raise click.UsageError(
            f"CuPy, which puts the arrays on the GPU, has none of {dtype}: build the kernel with attncc build --dtype "
            f"{dtype} --arch sm_90a and call it with torch tensors; attncc run --device cpu checks it here"
        )


class PictureFile(click.Path):
    """Where a picture is written, with the ending of its format."""

    def __init__(self, ending: str) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self.ending = ending

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(str(super().convert(value, param, ctx)))
        if path.suffix.lower() != self.ending:
            self.fail(f"{value!r} doesn't end in {self.ending}; there are --png x.png and --svg x.svg", param, ctx)
        return path


def seed_option(help: str) -> Callable[[F], F]:
    """Which random numbers a command draws; NumPy takes no seed below 0."""
    return click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help=help)


variant_option = click.option("--variant", metavar="NAME", help="Which variant, where a file has several.")


def problem_options(q_len: int, heads: int, batch: int = 1) -> Callable[[F], F]:
    """The sizes of a call as options, with the given defaults; the command gets one `problem`."""

    def decorate(function: F) -> F:
        @wraps(function)
        def with_problem(**given: Any) -> Any:
            return function(problem=_problem({name: given.pop(name) for name in _SIZES}), **given)

        for option in reversed(_size_options(q_len, heads, batch)):
            with_problem = option(with_problem)
        return cast(F, with_problem)

    return decorate


_SIZES = ("q_len", "kv_len", "batch", "heads", "kv_heads", "head_dim")


def _size_options(q_len: int, heads: int, batch: int) -> list[Callable[[Any], Any]]:
    positive = click.IntRange(1)
    return [
        click.option("--q-len", type=positive, default=q_len, show_default=True, help="Query rows."),
        click.option("--kv-len", type=positive, help="Keys; as --q-len if not given."),
        click.option("--batch", type=positive, default=batch, show_default=True, help="Sequences."),
        click.option("--heads", type=positive, default=heads, show_default=True, help="Query heads."),
        click.option("--kv-heads", type=positive, help="Key heads; as --heads if not given."),
        click.option("--head-dim", type=HeadDims(), default="64", show_default=True, help=HEAD_DIM_HELP),
    ]


def _problem(given: dict[str, Any]) -> Problem:
    from ..problem import Problem

    heads, kv_heads = given["heads"], given["kv_heads"] or given["heads"]
    if heads % kv_heads:
        raise click.UsageError(f"--heads {heads} is not a multiple of --kv-heads {kv_heads}")
    q_len = given["q_len"]
    return Problem(given["batch"], heads, kv_heads, q_len, given["kv_len"] or q_len, *given["head_dim"])
