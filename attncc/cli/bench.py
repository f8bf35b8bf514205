"""`attncc bench`: a variant beside what its user would run instead, on this GPU."""

from __future__ import annotations

import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..diagnostics import AttnccError, AttnccWarning, Diagnostic
from ..quoting import json_text, printable
from .console import as_json, progress
from .explain import drawn_inputs
from .files import check_element_types, load_specification, writing
from .options import (
    HEAD_DIM_HELP,
    SPEC_FILE,
    HeadDims,
    Listed,
    define_option,
    format_option,
    imports_option,
    input_option,
    joined,
    seed_option,
    variant_option,
)

if TYPE_CHECKING:
    from ..bench.measure import Bench, Measured
    from ..compiler import Specification
    from ..problem import Problem

TOKENS = 16384  # of all sequences, where no --batch is given
INSTALL = "pip install 'attncc[bench]'"


class Lengths(click.ParamType[Any]):
    """`4096`, or `1:8192` for so many queries over so many keys, as a pair."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = re.fullmatch(r"([1-9]\d*)(?::([1-9]\d*))?", str(value))
        if found is None:
            self.fail(f"{value!r}: write a length as in 4096, or 1:8192 for queries and keys", param, ctx)
        return int(found[1]), int(found[2] or found[1])


class Heads(click.ParamType[Any]):
    """`16`, or `32/8` for query heads and key heads, as a pair."""

    name = "heads"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"([1-9]\d*)(?:/([1-9]\d*))?", str(value))
        if found is None or int(found[1]) % int(found[2] or found[1]):
            self.fail(f"{value!r}: write heads as in 16, or 32/8 for 32 query heads over 8 key heads", param, ctx)
        return int(found[1]), int(found[2] or found[1])


@click.command("bench", short_help="Time a variant beside SDPA, FlexAttention and FlashAttention-4.")
@click.argument("file", type=SPEC_FILE)
@variant_option
@click.option(
    "--against",
    type=Listed(click.Choice(["sdpa", "flex", "fa4"])),
    default=("sdpa,flex,fa4",),
    multiple=True,
    callback=joined,
    show_default=True,
    help="Peers.",
)
@click.option(
    "--lengths",
    type=Listed(Lengths()),
    default=("4096,16384",),
    multiple=True,
    callback=joined,
    show_default=True,
    help="Lengths of q, k and v, as in 4096; 1:8192 is 1 query over 8192 keys.",
)
@click.option("--heads", type=Heads(), default="32/8", show_default=True, help="Query heads, and key heads.")
@click.option("--batch", type=click.IntRange(1), help=f"Sequences; those of {TOKENS} tokens, if not given.")
@click.option("--head-dim", type=HeadDims(), default="128", show_default=True, help=HEAD_DIM_HELP)
@click.option(
    "--dtype",
    type=click.Choice(["fp16", "bf16", "fp32"]),
    default="bf16",
    show_default=True,
    help="The dtype of all arrays.",
)
@click.option(
    "--pass",
    "pass_name",
    type=click.Choice(["forward", "backward", "both"]),
    default="forward",
    show_default=True,
    help="What is timed.",
)
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Windows of each candidate.")
@seed_option("Seed of random arrays and of dropout.")
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for the numbers (.json), the table (.txt) and a plot (.png).",
)
@input_option
@define_option
@imports_option
@format_option
def command(*, file: Path, out: Path | None, **given: Any) -> None:
    """Time a variant on this GPU beside what you would run instead: scaled_dot_product_attention (its fastest back
    end), FlexAttention (compiled, its fastest setting, with functions made from the file), FlashAttention-4.

    Each candidate is first compared with attention in fp64, and one that is wrong isn't timed. Where a peer can't
    express the variant, or isn't installed, the table says so.

    \b
    attncc bench sliding_window -D width=1024
    attncc bench mine.attn --pass both --lengths 2048,8192 --heads 16 -o results
    attncc bench documents -i doc=doc.npy --lengths 4096 --batch 2 --against flex
    """
    check_installed(plots=out is not None)
    device = gpu_name()
    specification = load_specification(file, given)
    check_element_types(specification.variant, given["given_inputs"])
    measured = _measured(specification, file, given)
    _print(measured, device, given["rounds"], out)
    wrong = [row for item in measured for row in item.rows if row.name == "attncc" and row.wrong]
    if wrong:
        raise AttnccError(
            Diagnostic("A904", f"{specification.variant.name}: {wrong[0].trouble}", help="please report this")
        )


def check_installed(*, plots: bool) -> None:
    """A usage error for what this command needs and isn't installed."""
    if find_spec("torch") is None:
        raise click.UsageError(f"bench compares with what torch has, and torch isn't installed: {INSTALL}")
    if plots and find_spec("matplotlib") is None:
        raise click.UsageError(f"-o also writes a plot, which needs matplotlib: {INSTALL}")


def gpu_name() -> str:
    """AttnccError A503 where there is no GPU; a usage error where torch can't use it."""
    import torch

    from ..runtime.cuda.driver import driver

    driver().device(0)
    if not torch.cuda.is_available():
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        raise click.UsageError(
            f"torch {torch.__version__} is built {built} and can't use the GPU here: install a torch for this driver, "
            "as https://pytorch.org/get-started shows"
        )
    return str(torch.cuda.get_device_properties().name)


def _measured(specification: Specification, file: Path, given: dict[str, Any]) -> list[Measured]:
    import numpy as np

    from ..bench.case import Case
    from ..bench.measure import Measured
    from ..plausible import drawn

    bench, found = _bench(file, given), list[Measured]()
    for q_len, kv_len in given["lengths"]:
        problem = _problem(q_len, kv_len, given)
        made = drawn(specification.variant, problem, given["seed"], given["given_inputs"])
        inputs = {name: np.asarray(value) for name, value in given["given_inputs"].items()}
        inputs |= {name: item.array for name, item in made.items()}
        if made and not found and not as_json():
            click.echo(drawn_inputs(made))
        _check_inputs(specification, problem, inputs)
        case = Case(specification.variant, problem, given["dtype"], given["pass_name"], inputs, given["seed"])
        with progress(f"timing {q_len} x {kv_len}"):
            found.append(bench.measure(case))
    return found


def _bench(file: Path, given: dict[str, Any]) -> Bench:
    from ..api import compile
    from ..bench.measure import Bench
    from ..bench.stopwatch import TorchStopwatch

    keys, values = given["head_dim"]
    with progress("compiling"), warnings.catch_warnings():
        warnings.simplefilter("ignore", AttnccWarning)  # printed when the file was loaded
        kernel = compile(
            file,
            dtype=given["dtype"],
            head_dim=keys,
            value_head_dim=values,
            variant=given["variant"],
            defines=given["defines"],
            allow_imports=given["allow_imports"],
        )
    return Bench(kernel, tuple(dict.fromkeys(given["against"])), TorchStopwatch(), given["rounds"])


def _problem(q_len: int, kv_len: int, given: dict[str, Any]) -> Problem:
    from ..problem import Problem

    batch = given["batch"] or max(1, TOKENS // max(q_len, kv_len))
    (heads, kv_heads), (keys, values) = given["heads"], given["head_dim"]
    return Problem(batch, heads, kv_heads, q_len, kv_len, keys, values)


def _check_inputs(specification: Specification, problem: Problem, inputs: dict[str, Any]) -> None:
    """AttnccError A6xx for inputs that don't suit the length."""
    from ..problem.masks import bind_mask

    sizes = {name: getattr(problem, name) for name in ("batch", "num_heads", "num_kv_heads", "head_dim")}
    bind_mask(specification.variant, problem.q_len, problem.kv_len, inputs, sizes)


def _print(measured: list[Measured], device: str, rounds: int, out: Path | None) -> None:
    from ..bench.environment import environment
    from ..bench.table import text

    table = text(measured, device, rounds)
    if as_json() or out is not None:
        record = json_text({"environment": environment(), "cases": [item.to_json() for item in measured]}, indent=2)
    click.echo(record if as_json() else table)
    if out is None:
        return
    from ..bench.plot import save

    case = measured[0].case
    name = f"{case.variant.name}_{case.pass_name}_{case.dtype}"
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(record + "\n", encoding="utf-8")
        (out / f"{name}.txt").write_text(table + "\n", encoding="utf-8")
        save(measured, device, out / f"{name}.png")
    click.echo(f"\nwrote {printable(str(out / name))}.json, .txt and .png", err=as_json())
