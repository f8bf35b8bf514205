"""What a kernel takes of a multiprocessor, and whether its target grants it. Register counts are estimates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from ..analysis.grid_2d import Grid2D
from ..analysis.mask.skipping import finds_empty
from ..analysis.tiles_2d import windows
from ..diagnostics import AttnccError, Diagnostic, did_you_mean
from ..ir import const
from ..schedule.plan import (
    BACKWARD_PASSES,
    DTYPE_BYTES,
    KEY_PASSES,
    LEAST_HEAD_DIM,
    MOST_HEAD_DIM,
    MOST_VALUE_HEAD_DIM,
    NARROW,
    PASSES,
    WIDE_DTYPES,
    Build,
    KernelPlan,
)
from ..schedule.target import TARGETS, target_help
from ..source import Span
from .facts import Facts, ForwardFacts
from .family import Where
from .registry import facts_of, family_of, kinds
from .settings import loop_of
from .shared import shared_bytes

FRAGMENT_COLUMNS = 8  # of scores
DROPOUT_KEYS = 32  # that share a counter of the random generator
_ORDERS = {
    **dict.fromkeys(KEY_PASSES, "a block owns keys, whose dK and dV its warps hold, and goes over the rows"),
    "backward_dq": "a block owns rows, whose dQ its warps hold, and goes over the keys",
}
KEEPS_ALL = "the mask keeps every pair"
_WIDE = f"above {NARROW} there are forward passes alone, in {' and '.join(WIDE_DTYPES)}"
TOO_FINE = "it is decided on tiles much smaller than the kernel's alone"


def shared_memory(plan: KernelPlan) -> dict[str, int]:
    """Bytes of dynamic shared memory by part."""
    return {name: prod(factors.values()) for name, factors in facts_of(plan).shared_parts().items()}


def check_build(build: Build, span: Span | None = None) -> None:
    """AttnccError A403, A410 or A411 where no schedule could help."""
    found = [*_bad_names(build, span), *_bad_head_dims(build, span)]
    if found:
        raise AttnccError(found)


def check(plan: KernelPlan, where: Where) -> None:
    """AttnccError A405 to A409 or A412 with all that forbids the plan; `where(knobs…)` is the place to point at.

    A plan in fp64 runs on the CPU executor alone: there is no shared memory to fit.
    """
    family, facts = family_of(plan), facts_of(plan)
    found = [*_combinations(plan, where), *family.misfits(plan, where), *_skipping(facts, where)]
    found += _grid_2d(plan, where)
    if plan.dtype != "fp64" and not found:
        found = [*_memory(facts, where), *_registers(facts, where)]
    if found:
        raise AttnccError(found)


def _grid_2d(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    """2-D tiles, fixed ones and windows."""
    reason = None if plan.grid_2d is None else _grid_lacks(plan, plan.grid_2d)
    if reason is not None:
        yield Diagnostic(
            "A409",
            f"{'windows of a 2-D grid' if plan.rules.columns else '2-D tiles'} don't serve {plan.variant.name}",
            where("block_kv", "block_q"),
            notes=(reason,),
            help="choose other tiles, or remove the schedule",
        )


def _grid_lacks(plan: KernelPlan, grid_2d: Grid2D) -> str | None:
    if plan.variant.dropout is not None:
        return "dropout asks for keys that stand beside each other"
    if grid_2d.width % grid_2d.q_columns or FRAGMENT_COLUMNS % grid_2d.q_columns:
        return f"the columns of a tile of queries must divide {FRAGMENT_COLUMNS}, and the {grid_2d.width} of the grid"
    if plan.rules.columns is not None:
        return windows.refusal(plan.variant, grid_2d) if family_of(plan).has_windows else "they need the family hopper"
    if grid_2d.width % grid_2d.kv_columns or FRAGMENT_COLUMNS % grid_2d.kv_columns:
        return f"the columns of a tile of keys must divide {FRAGMENT_COLUMNS}, and the {grid_2d.width} of the grid"
    return None


def no_kernel(kind: str, lacked: str, build: Build, loop: str, where: Where) -> Diagnostic:
    """A412: `kind` is a value of the knob `family`."""
    able = kinds(build, loop)
    if able:
        instead = f"write `family = {able[0]}`"
    elif kinds(build, "q_outer"):
        instead = f"remove `loop = {loop}`: no family has that here"
    elif build.dtype == "e4m3":
        instead = "e4m3 is for forward passes on sm_90a alone; choose that (--arch sm_90a), or another dtype"
    else:
        instead = f"write the schedule for sm_90a, without `family = {kind}`"
    return Diagnostic(
        "A412",
        f"the family {kind} has no such kernel",
        where("family"),
        notes=(f"it lacks {lacked}",),
        help=instead,
    )


def bad_keys(plan: KernelPlan, where: Where, step: int) -> Iterator[Diagnostic]:
    """A405 for a block_kv that is no multiple of `step`, or of what dropout asks for."""
    dropout = plan.variant.dropout is not None and not plan.is_backward
    step = DROPOUT_KEYS if dropout else step
    if plan.block_kv % step:
        yield Diagnostic(
            "A405",
            f"block_kv can't be {plan.block_kv}",
            where("block_kv"),
            notes=(f"with dropout, {DROPOUT_KEYS} keys share one random word",) if dropout else (),
            help=f"choose a multiple of {step}",
        )


# -------------------------------------------------------------------- builds


def _bad_names(build: Build, span: Span | None) -> Iterator[Diagnostic]:
    if build.target not in TARGETS:
        yield _unknown("A403", "target", build.target, span, known=TARGETS, help=target_help(build.target))
    if build.dtype not in DTYPE_BYTES:
        help = did_you_mean(build.dtype, DTYPE_BYTES)
        yield _unknown("A410", "dtype", build.dtype, span, known=DTYPE_BYTES, help=help)
    if build.pass_name not in PASSES:
        yield Diagnostic(
            "A411",
            f"there is no kernel for the {build.pass_name} pass",
            span,
            notes=(f"this version has {' and '.join(PASSES)}",),
            help="remove the schedule",
        )


def _unknown(code: str, what: str, name: str, span: Span | None, *, known: Iterable[str], help: str) -> Diagnostic:
    notes = (f"there are {', '.join(known)}",)
    return Diagnostic(code, f"there is no {what} `{name}`", span, notes=notes, help=help or f"choose another {what}")


def _bad_head_dims(build: Build, span: Span | None) -> Iterator[Diagnostic]:
    if build.is_wide and build.kv_dtype is not None:
        what = f"kernels of head dims above {NARROW} have no caches of {build.kv_dtype}"
        yield Diagnostic("A410", what, span, help=f"keep the cache in {build.dtype}")
    most, most_of_values, where = MOST_HEAD_DIM, MOST_VALUE_HEAD_DIM, ""
    if build.pass_name in BACKWARD_PASSES:
        most = most_of_values = NARROW
        where = " in the backward pass"
    elif build.dtype not in WIDE_DTYPES:
        most = most_of_values = NARROW
        where = f" in {build.dtype}"
    dims = {("head dim", build.head_dim, most), ("value head dim", build.value_head_dim, most_of_values)}
    for name, value, limit in sorted(dims):
        if not LEAST_HEAD_DIM <= value <= limit:
            yield Diagnostic(
                "A410",
                f"a {name} can't be {value}{where}",
                span,
                notes=(_WIDE,) if where and value >= LEAST_HEAD_DIM else (),
                help=f"{name}s{where} are from {LEAST_HEAD_DIM} to {limit}",
            )


# -------------------------------------------------------------------- plans


def _combinations(plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
    lacked = family_of(plan).lacks(plan.build, plan.loop)
    if lacked is not None:
        yield no_kernel(plan.family, lacked, plan.build, plan.loop, where)
    if plan.is_backward and plan.loop != loop_of(plan.pass_name):
        yield Diagnostic(
            "A409",
            f"`loop = {plan.loop}` is no order of the {plan.pass_name} pass",
            where("loop"),
            notes=(_ORDERS[plan.pass_name],),
            help="remove `loop`",
        )
    elif plan.is_backward and plan.split_kv != 1:
        yield Diagnostic(
            "A409", "the backward passes don't split the keys of a row", where("split_kv"), help="remove `split_kv`"
        )
    if plan.loop != "kv_outer" or plan.is_backward:
        return
    if plan.split_kv != 1:
        yield Diagnostic(
            "A409",
            f"`loop = kv_outer` can't split the keys over {plan.split_kv} blocks",
            where("split_kv", "loop"),
            notes=("its outer loop over the keys carries O and the row sums from tile to tile",),
            help="write `split_kv = 1`, or `loop = q_outer`",
        )
    if plan.pass_name != "forward":
        yield Diagnostic(
            "A409",
            f"`loop = kv_outer` is an order of the forward pass, not of the {plan.pass_name} pass",
            where("loop"),
            help="remove `loop`, or write the schedule for the forward pass",
        )


def _skipping(facts: Facts, where: Where) -> Iterator[Diagnostic]:
    plan = facts.plan
    if plan.skip == "lists" and not facts.may_list_tiles:
        yield Diagnostic(
            "A408",
            "`skip = lists`, but there is nothing to list",
            where("skip"),
            notes=(_nothing_to_list(plan),),
            help="write `skip = auto`",
        )
    if plan.skip == "always" and not finds_empty(plan.variant, plan.rules, plan.block_q, plan.block_kv):
        keeps = plan.variant.keeps
        lines = [(keeps[index].span, reason) for index, reason in plan.rules.undecided]
        otherwise = KEEPS_ALL if plan.rules.any_kept == const(True) else TOO_FINE
        yield Diagnostic(
            "A408",
            "`skip = always`, but no tile can be proven empty",
            where("skip"),
            notes=tuple(f"{span}: {reason}" if span else reason for span, reason in lines) or (otherwise,),
            help="write `skip = auto`: tiles are skipped where that is proven, and the mask decides the rest",
        )


def _nothing_to_list(plan: KernelPlan) -> str:
    if not plan.variant.keeps:
        return "the variant has no `keep` line"
    if plan.rules.bounds_suffice:
        return "loop bounds decide all that can be told of its tiles"
    return f"the pass {plan.pass_name} in the order {plan.loop} goes over tiles without lists"


def _memory(facts: Facts, where: Where) -> Iterator[Diagnostic]:
    limit, parts = TARGETS[facts.plan.target].shared_bytes, facts.shared_parts()
    needed = shared_bytes(parts)
    if needed > limit:
        yield Diagnostic(
            "A406",
            f"the tiles take {needed} bytes of shared memory; {facts.plan.target} lends a block {limit}",
            where("block_q", "block_kv", "stages"),
            notes=tuple(_shown_product(name, factors) for name, factors in parts.items()),
            help="choose a smaller block_q or block_kv, or fewer stages",
        )


def _registers(facts: Facts, where: Where) -> Iterator[Diagnostic]:
    (limit, most), parts = facts.register_limit, facts.accumulators()
    needed = sum(parts.values()) + facts.other_registers
    if needed > limit:
        yield Diagnostic(
            "A407",
            f"the tiles take about {needed} registers a thread; {facts.plan.target} lends it {limit}",
            where("block_q", "block_kv", "warps"),
            notes=(
                *_shown_accumulators(facts, parts),
                f"the rest, an estimate: {facts.other_registers}",
                f"limit: {most}",
            ),
            help="choose a smaller block_kv, or fewer rows a warp (block_q / warps)",
        )


def _shown_accumulators(facts: Facts, parts: dict[str, int]) -> Iterator[str]:
    plan = facts.plan
    rows = plan.warp_rows
    if isinstance(facts, ForwardFacts) and facts.shares_rows:
        yield from (f"{name}: {count}" for name, count in parts.items())
        return
    if plan.is_backward:
        yield from (f"{name}, of {rows} rows a warp: {count}" for name, count in parts.items())
        return
    yield f"score: {rows} rows a warp x block_kv {plan.block_kv} / 32 lanes = {parts['score']}"
    yield f"out: {rows} rows a warp x head dim {plan.padded_value_head_dim} / 32 lanes = {parts['out']}"
    if "prob" in parts:
        yield f"prob, {8 * plan.element_bytes} bits each: {parts['prob']}"


def _shown_product(name: str, factors: dict[str, int]) -> str:
    """`q: block_q 128 x head dim 64 x bytes 2 = 16384`."""
    shown = " x ".join(f"{factor} {value}" for factor, value in factors.items())
    return f"{name}: {shown} = {prod(factors.values())}"
