"""The launch of a decode kernel: persistent thread blocks, which find on the device what each of them works on."""

from __future__ import annotations

from ...kernels.decode.facts import MOST_BLOCKS, Decode
from ...kernels.live_tiles import most_tiles
from ...problem import Problem
from .operands import COUNTER
from .steps import StepBuilder
from .workspace import Workspace

_FLOAT_BYTES = 4


def decode_grid(facts: Decode, problem: Problem, resident: int) -> int:
    """Thread blocks: what the GPU holds at once, or fewer, if lengths tell that there isn't so much work.

    Where keys are packed, whose lengths are on the device, each sequence may end with a tile that isn't full.
    """
    plan = facts.plan
    if facts.splits:
        units = facts.items(problem) * facts.splits
    elif problem.packs_keys:
        units = facts.items(problem) + problem.num_kv_heads * (problem.kv_len // plan.block_kv)
    else:
        units = facts.items(problem) * max(most_tiles(plan, problem), 1)
    return max(min(resident, units, MOST_BLOCKS), 1)


def set_decode(  # noqa: PLR0917
    main: StepBuilder, facts: Decode, problem: Problem, workspace: Workspace, grid: int, multiprocessors: int
) -> None:
    """The fields that a decode kernel alone has: where partial results go, and what counts those that have come."""
    plan, slots, rows = facts.plan, facts.slots(problem, grid), facts.slot_rows(problem)
    main.set(facts.shared_out(problem, multiprocessors))
    main.operand("arrivals", COUNTER)
    sizes = {"partial_out": plan.stored_value_head_dim}
    if plan.variant.normalize == "softmax":
        sizes |= {"row_max": 1, "row_sum": 1}
    for name, width in sizes.items() if slots else ():
        main.workspace(name, workspace.take(_FLOAT_BYTES * slots * rows * width))
