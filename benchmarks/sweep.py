"""The kernels that a sweep over builds looks at: every spec, pass, dtype, head dim and target."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from attncc.kernels.kernel_names import kernel_name
from attncc.package import VariantPackage, prepare
from attncc.package.variant_package import launched
from attncc.resources import folder
from attncc.schedule.plan import BACKWARD_PASSES
from attncc.settle import Settled, settle
from attncc.source import SourceFile

PASSES = {"forward": ("forward", "patches"), "decode": ("decode",), "backward": BACKWARD_PASSES}
SPECS = tuple(sorted(path.stem for path in folder("specs").glob("*.attn") if path.stem != "masks"))


class Case(NamedTuple):
    spec: str
    dtype: str
    head_dims: tuple[int, int]
    target: str


def prepared(case: Case, passes: tuple[str, ...]) -> tuple[VariantPackage, ...]:
    """What a build with these passes, keys of `PASSES`, would compile."""
    text = (folder("specs") / f"{case.spec}.attn").read_text(encoding="utf-8")
    return prepare(
        SourceFile(f"specs/{case.spec}.attn", text),
        archs=[case.target],
        dtypes=[case.dtype],
        head_dims=[case.head_dims],
        decode="decode" in passes,
        backward="backward" in passes,
    )


def pass_names(passes: tuple[str, ...]) -> set[str]:
    return {name for item in passes for name in PASSES[item]}


def settled(case: Case, passes: tuple[str, ...]) -> list[Settled]:
    """The compiled plans of the kernels that calls may launch, and of no others."""
    wanted = pass_names(passes)
    kernels = (item for package in prepared(case, passes) for item in package.candidates)
    found = {kernel_name(item.first): settle(item) for item in kernels if item.build.pass_name in wanted}
    return [found[kernel_name(plan)] for plan in launched(item.plan for item in found.values())]


def passes_of(text: str) -> tuple[str, ...]:
    """Passes of a build as the command line has them."""
    found = names(text)
    if unknown := [name for name in found if name not in PASSES]:
        raise argparse.ArgumentTypeError(f"no pass is `{unknown[0]}`: {', '.join(PASSES)}")
    return found


def names(text: str) -> tuple[str, ...]:
    """A list of names as the command line has it."""
    return tuple(text.split(","))
