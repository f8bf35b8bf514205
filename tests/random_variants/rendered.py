"""The kernels of random variants as text, for every target and pass."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.kernels.candidates import Candidates, make_candidates, make_tiles_2d
from attncc.machine_code import kernel_sources
from attncc.schedule.plan import Build
from attncc.schedule.schedule import Schedule

TARGETS = ("sm_80", "sm_90", "sm_90a", "sm_120")
PASSES = ("forward", "decode", "backward", "backward_dq")


def rendered(
    variant: Variant, target: str, dtype: str, head_dims: tuple[int, int], tiles: int | None = None
) -> Iterator[int]:
    """For each plan that kernels may get, of each pass the first so many, how many kernels stand in its launches."""
    for candidates in _candidates(variant, target, dtype, head_dims):
        try:
            for plan in islice(candidates.plans(), tiles):
                yield len(kernel_sources(plan))
        except AttnccError:  # the family that was asked for has no such kernel
            if not candidates.schedule.settings:
                raise


def _candidates(variant: Variant, target: str, dtype: str, head_dims: tuple[int, int]) -> Iterator[Candidates]:
    """Those that builds have, and the family hopper's, where it isn't the first choice."""
    for pass_name in PASSES:
        build = Build(pass_name, target, dtype, *head_dims)
        candidates = make_candidates(variant, build)
        yield candidates
        tiles_2d = make_tiles_2d(candidates) if pass_name in ("forward", "backward") else None
        if tiles_2d is not None:
            yield tiles_2d
        if target == "sm_90a" and pass_name in ("forward", "backward"):
            asked = Schedule("asked", variant.name, pass_name, target, (("family", ("hopper",)),))
            yield make_candidates(variant, build, asked)
