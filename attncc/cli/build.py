"""`attncc build`: specs become an importable package."""

from __future__ import annotations

import keyword
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..quoting import json_text, printable
from .console import as_json, duration, progress, rich_console, wrapped
from .options import SPEC_FILE, HeadDims, Listed, define_option, format_option, imports_option, joined

if TYPE_CHECKING:
    from rich.table import Table

    from ..package import BuiltVariant


@click.command("build", short_help="Compile specs into an importable package.")
@click.argument("files", nargs=-1, required=True, type=SPEC_FILE)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(file_okay=False, path_type=Path),
    default="generated",
    show_default=True,
    help="The folder of the package.",
)
@click.option(
    "--arch",
    "archs",
    type=Listed(click.STRING),
    default=("sm_80,sm_90a",),
    multiple=True,
    callback=joined,
    show_default=True,
    help="The targets; sm_80 serves all of 8.x, sm_90a Hopper GPUs.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=Listed(click.Choice(["fp16", "bf16", "fp32", "e4m3"])),
    default=("bf16",),
    multiple=True,
    callback=joined,
    show_default=True,
    help="Dtypes of q, k and v: fp16, bf16, fp32, or e4m3, which is for sm_90a and shares no package.",
)
@click.option(
    "--head-dim",
    "head_dims",
    type=Listed(HeadDims()),
    default=("64,128",),
    multiple=True,
    callback=joined,
    show_default=True,
    help="Head dims of q and k, after a colon that of v, as in 64,192:128.",
)
@click.option(
    "--package",
    "kind",
    type=click.Choice(["python", "hf-kernel"]),
    default="python",
    show_default=True,
    help="What is written: a Python package, or a repository for Hugging Face's kernels library.",
)
@click.option("--decode", is_flag=True, help="Kernels for few queries too; a schedule for decode also asks for them.")
@click.option(
    "--serving",
    is_flag=True,
    help="Kernels for few queries, for caches in pages (block_table), for shared prefixes (shared_prefix), and those "
    "that append new keys (k_new).",
)
@click.option(
    "--kv-dtype",
    "kv_dtypes",
    type=Listed(click.Choice(["e4m3", "int8"])),
    multiple=True,
    callback=joined,
    help="Adds kernels for caches of 8 bits beside q of 16: e4m3, int8; with --serving also in pages.",
)
@click.option("--backward", is_flag=True, help="The backward pass too; a schedule for it also asks for it.")
@click.option(
    "--jobs", type=click.IntRange(1), help="Kernels compiled at once; as many as there are cores, if not given."
)
@define_option
@imports_option
@format_option
def command(*, files: tuple[Path, ...], out: Path, kind: str, jobs: int | None, **given: Any) -> None:
    """Compile every variant of some .attn files for all the targets, dtypes and head dims asked for, and write them as
    a Python package that needs no compiler: CUDA text, machine code, plans, a resource report, an __init__.py to read.

    No GPU is needed. A folder appears whole or not at all; variants of earlier builds stay.

    \b
    attncc build causal
    attncc build causal --package hf-kernel -o my-attention
    attncc build mine/*.attn -o kernels --arch sm_80,sm_90a --head-dim 64,192:128
    python -c 'from generated import causal; help(causal)'
    """
    from ..package import prepare, write, write_hf_kernel

    if kind == "python":
        _check_importable(out)
    start = time.perf_counter()
    packages = [package for path in files for package in prepare(path, **given)]
    kernels = set[str]().union(*(package.kernel_names for package in packages))
    with progress("compiling", len(kernels)) as advance:
        written = write if kind == "python" else write_hf_kernel
        built = written(packages, out, jobs=jobs, advance=advance)
    if as_json():
        click.echo(json_text({"variants": {item.name: _result(item) for item in built}}, indent=2))
        return
    rich_console().print(_table(built))
    for line in _choices(built):
        click.echo(wrapped(line, 2))
    what = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    click.echo(f"{what} in {duration(time.perf_counter() - start)}, written to {printable(str(out))}")


def _check_importable(out: Path) -> None:
    """click.UsageError for a folder that programs can't import, or would instead of something else."""
    if not _importable(out.resolve().name):
        raise click.UsageError(f"-o {out}: Python can't import a package of this name; write one such as my_kernels")
    if _hides_another(out.resolve()):
        raise click.UsageError(
            f"-o {out}: programs would import it for Python's {out.resolve().name}; write my_kernels"
        )


def _importable(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _hides_another(out: Path) -> bool:
    """Whether programs beside the folder would get it where they, or attncc, import something else."""
    taken = out.name in sys.stdlib_module_names or out.name in ("attncc", "cupy", "ml_dtypes", "numpy", "torch")
    return taken and not (out.parent / "__init__.py").exists()


def _result(built: BuiltVariant) -> dict[str, Any]:
    """What `--format json` prints of a variant."""
    return {"folder": str(built.folder), "kernels": {name: asdict(found) for name, found in built.resources.items()}}


def _choices(built: tuple[BuiltVariant, ...]) -> Iterator[str]:
    """A line for each kernel that didn't get its first guess of tiles, or that spills."""
    for name, item in ((name, item) for variant in built for name, item in variant.settled.items()):
        if item.rejected or item.troubles:
            rejected = "".join(f"; not {tiles}: {why}" for tiles, why in item.rejected.items())
            yield f"{name}: {item.plan.tiles}: {item.why}{rejected}"


def _table(built: tuple[BuiltVariant, ...]) -> Table:
    """The resource report, a row for each kernel."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kernel", "registers", "spills B", "compiled s"):
        table.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=True)
    reports = {name: report for variant in built for name, report in variant.resources.items()}
    for name, report in reports.items():
        spills = report.spill_stores + report.spill_loads
        table.add_row(name, str(report.registers), str(spills), f"{report.compile_seconds:.2f}")
    return table
