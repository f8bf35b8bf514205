"""What a call of a variant costs, in a line for a code lens and in some for those who ask: the figures of
`attncc explain`, for one stated call."""

from __future__ import annotations

from functools import lru_cache

from ..analysis.cost.roofline import DEVICES
from ..compiler import Specification
from ..diagnostics import AttnccError
from ..explain import Explanation, Order, explain
from ..kernels.registry import targets_of
from ..plausible import drawn
from ..problem import Problem
from ..runtime.cuda.device import best_target
from ..runtime.store.crossings import chip_like
from ..runtime.store.store import Configuration
from ..schedule.schedule import from_asts
from ..semantics.load import Program

BATCH, HEADS, LENGTH, HEAD_DIM = 1, 8, 4096, 128
DTYPE, DEVICE = "bf16", "h100"
CALL = f"B{BATCH} H{HEADS} S{LENGTH} D{HEAD_DIM} {DTYPE}, {DEVICE.upper()}"


def of_variant(program: Program, name: str) -> list[str]:
    """The title of the lens, then a line for each loop order. Nothing is compiled; inputs are drawn."""
    try:
        variant = next(item for item in program.variants if item.name == name)
        schedules = from_asts(node for node in program.schedules if node.variant.name == name)
        return list(_lines(Specification(variant, schedules)))
    except AttnccError as error:
        return [f"{CALL}: {error.diagnostics[0].message}"]


@lru_cache(maxsize=64)
def _lines(specification: Specification) -> tuple[str, ...]:
    device = DEVICES[DEVICE]
    target = best_target(targets_of(DTYPE), device.capability)
    assert target is not None
    problem = Problem(BATCH, HEADS, HEADS, LENGTH, LENGTH, HEAD_DIM, HEAD_DIM)
    plan = specification.runs(Configuration(DTYPE, HEAD_DIM, HEAD_DIM), target, problem, chip_like(device))
    inputs = {name: item.array for name, item in drawn(specification.variant, problem, 0, {}).items()}
    explained = explain(plan, problem, inputs, device)
    return _title(explained), *(_order(order) for order in explained.orders), f"tiles: {explained.way_out}"


def _title(explained: Explanation) -> str:
    own = next(order for order in explained.orders if order.name == explained.plan.loop)
    empty = own.tiles["empty"] / max(sum(own.tiles.values()), 1)
    kept = explained.kept_pairs / explained.pairs
    return f"{CALL}: {kept:.1%} of pairs kept, {empty:.1%} of tiles skipped, {_cost(own)}"


def _order(order: Order) -> str:
    blocks = "" if order.blocks is None else " ({} x {})".format(*order.blocks)
    total = max(sum(order.tiles.values()), 1)
    tiles = "".join(f", {count / total:.1%} {kind}" for kind, count in order.tiles.items())
    return f"{order.name}{blocks}: {_cost(order)}{tiles}"


def _cost(order: Order) -> str:
    roof = order.roofline
    return (
        f"{order.flops / 1e9:,.4g} GFLOP, {order.bytes_moved / 1e6:,.4g} MB, "
        f"at least {roof.seconds * 1e3:,.3g} ms ({roof.bound_by})"
    )
