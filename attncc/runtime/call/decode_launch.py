"""The launch of a decode kernel: persistent thread blocks, which find on the device what each of them works on."""

from __future__ import annotations

from collections.abc import Mapping

from ...kernels.crossings import Chip
from ...kernels.decode.facts import MOST_BLOCKS, Decode
from ...kernels.live_tiles import most_tiles
from ...kernels.shared_prefix import PREFIX_FIELDS
from ...problem import Problem
from ...schedule.plan import KernelPlan
from .operands import COUNTER
from .steps import StepBuilder, Value
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


def set_decode(main: StepBuilder, facts: Decode, problem: Problem, slots: Mapping[str, int], chip: Chip) -> None:
    """The fields that a decode kernel alone has: where the slots of partial results are (`take_slots`), and what counts
    those that have come."""
    main.set(facts.shared_out(problem, chip))
    main.operand("arrivals", COUNTER)
    for name, offset in slots.items():
        main.workspace(name, offset)


def take_slots(workspace: Workspace, plan: KernelPlan, rows: int) -> dict[str, int]:
    """Room for so many rows of partial results: offsets by field."""
    sizes = partial_widths(plan) if rows else {}
    return {name: workspace.take(_FLOAT_BYTES * rows * width) for name, width in sizes.items()}


def partial_widths(plan: KernelPlan) -> dict[str, int]:
    """The fields of partial results, and how many floats each has of a row."""
    sizes = {"partial_out": plan.stored_value_head_dim}
    return sizes | ({"row_max": 1, "row_sum": 1} if plan.variant.normalize == "softmax" else {})


def prefix_fields(problem: Problem, keys: int, parts: int) -> dict[str, Value]:
    """What a decode kernel is told of a launch over the first `keys` keys of all sequences, which leaves `parts`."""
    rows = problem.batch * problem.q_len * problem.group
    values = (problem.shared_prefix, keys, parts, rows)
    return dict(zip(PREFIX_FIELDS, values, strict=True))
