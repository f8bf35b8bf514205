"""Random masks of rows and columns, and plans whose tiles are fixed 2-D tiles or windows, whether those pay or
not: what legality lets pass must be right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.tiles import analyse_tiles_2d, analyse_windows
from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.kernels import legality
from attncc.kernels.candidates import make_candidates
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.schedule import Schedule

WIDTHS = (8, 24)
WINDOW_ROWS = 4


def random_lines(random: Random, width: int) -> str:
    """Masks that take positions apart into rows and columns."""
    return "\n".join(f"    keep if {_condition(random, width)}" for _ in range(random.choice((1, 2, 2, 3))))


def _condition(random: Random, width: int) -> str:
    query = random.choice(("q_idx", "q_pos"))
    part = random.choice(("//", "//", "%"))
    q, kv = f"{query} {part} {width}", f"kv_idx {part} {width}"
    near, far = sorted(random.sample(range(-4, 6), 2))
    return random.choice(
        (
            f"{q} == {kv}",
            f"{near} <= {q} - {kv} <= {far}",
            f"abs({q} - {kv}) <= {random.randrange(4)}",
            f"{q} >= {kv}",
            f"{kv} < {random.randrange(1, 9)}",
            f"({q} - {kv}) % 3 != 1",
            f"{q} != {kv}",
            f"{q} == {kv} or {q} - {kv} == {random.randrange(1, 5)}",
            f"{query} >= kv_idx",
            f"abs({query} // {width} - kv_idx // {width}) + abs({query} % {width} - kv_idx % {width}) <= 3",
            f"{query} % 4 == kv_idx % 4",
            f"kv_idx % {width} != {random.randrange(width)}",
        )
    )


def plans(variant: Variant, random: Random, width: int, *, backward: bool = False) -> Iterator[KernelPlan]:
    """One in 2-D tiles for each family that has such kernels, and forward one in windows; only legal ones."""
    columns = random.choice((1, 2, 4, 8))
    fixed = Grid2D(width, columns, columns)
    if backward:
        yield from _legal(_in_tiles_2d(_plan(variant, "backward", "hopper", {}), fixed))
        return
    portable = {"block_q": 64, "block_kv": 32, "warps": random.choice((2, 4)), "stages": random.choice((1, 2))}
    yield from _legal(_in_tiles_2d(_plan(variant, "forward", "portable", portable), fixed))
    hopper = {"block_q": random.choice((64, 128)), "block_kv": random.choice((32, 64)), "stages": 2}
    yield from _legal(_in_tiles_2d(_plan(variant, "forward", "hopper", hopper), fixed))
    window = Grid2D(width, random.choice((4, 8)), random.choice([x for x in (4, 8, 12, 16, 20) if x <= width]), True)
    tiles = {**hopper, "block_kv": WINDOW_ROWS * window.kv_columns}
    yield from _legal(_in_windows(_plan(variant, "forward", "hopper", tiles), window))


def _plan(variant: Variant, pass_name: str, family: str, settings: dict[str, int]) -> KernelPlan:
    chosen: dict[str, int | str] = {"family": family, **settings}
    named = tuple((name, (value,)) for name, value in chosen.items())
    build = Build(pass_name, "sm_90a", "bf16", 16, 16)
    return make_candidates(variant, build, Schedule("asked", variant.name, pass_name, "sm_90a", named)).first


def _in_tiles_2d(plan: KernelPlan, grid_2d: Grid2D) -> KernelPlan:
    rules = analyse_tiles_2d(plan.variant, plan.block_q, plan.block_kv, grid_2d, "q" if plan.is_backward else "kv")
    return replace(plan, pass_name="backward_patches" if plan.is_backward else "patches", grid_2d=grid_2d, rules=rules)


def _in_windows(plan: KernelPlan, grid_2d: Grid2D) -> KernelPlan | None:
    rules = analyse_windows(plan.variant, plan.block_q, plan.block_kv, grid_2d)
    return None if rules is None else replace(plan, pass_name="patches", grid_2d=grid_2d, rules=rules)


def _legal(plan: KernelPlan | None) -> Iterator[KernelPlan]:
    if plan is None:
        return
    try:
        legality.check(plan, lambda *_: None)
    except AttnccError:
        return
    yield plan
