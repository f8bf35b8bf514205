"""Which of a variant's plans runs a call."""

from __future__ import annotations

from collections.abc import Sequence

from ..problem import Problem
from ..schedule.plan import KernelPlan
from .crossings import Chip, Crossings
from .decode.facts import Decode
from .live_tiles import block_tiles, reach, reach_is_guessed
from .registry import facts_of
from .shared_prefix import behind_prefix


def plan_for(plans: Sequence[KernelPlan], problem: Problem, chip: Chip | None = None) -> KernelPlan:
    """The plan that runs a call, of those made for its configuration and target, forward first.

    Decode where the rows fit one of its tiles, unless the forward kernel says that it is faster: a block then moves
    little more than keys and values, and their splits fill the GPU. Decode too where the forward kernel would leave
    most of a GPU idle. Else 2-D tiles where the lengths fit the grid. Decode, again, for pages that the forward kernel
    can't load. Of calls whose sequences share a prefix the plan of the launch behind it.
    Own kernels of some calls run what they are asked for (`Facts.own_kernels`).
    """
    if plans[0].prefixed:
        return behind_prefix(plans)
    if any(plans[0].own_kernel):
        return plans[0]
    plans = at_length(plans, problem)
    crossings = Crossings() if chip is None else chip.crossings
    others = [] if facts_of(plans[0]).takes_few_rows(problem, crossings) else plans[1:]
    served = next((plan for plan in others if facts_of(plan).serves(problem)), plans[0])
    decode = next((plan for plan in plans[1:] if plan.pass_name == "decode"), served)
    if not facts_of(served).fits_pages(problem):
        return decode
    return decode if chip and _decode_is_faster(decode, served, problem, chip) else served


def _decode_is_faster(decode: KernelPlan, plan: KernelPlan, problem: Problem, chip: Chip) -> bool:
    """Whether forward kernels leave so many multiprocessors idle, or take so long to split keys, that the decode kernel
    takes less time. Where inputs tell which keys a block of queries sees, it doesn't: some of its equal shares of the
    keys would have none to see.

    The decode kernel shares out the keys of all its blocks, whose rows are queries of all heads of a group.
    """
    facts = facts_of(decode)
    if plan.may_split or plan.loop == "kv_outer" or reach_is_guessed(plan) or not isinstance(facts, Decode):
        return False
    busy = chip.crossings.row_block_cost * facts.items(problem) / chip.multiprocessors
    tiles = block_tiles(decode, problem)
    even = not problem.packed and tiles is not None and len(set(facts.units(tiles))) <= 1
    start = chip.crossings.split_keys if even else chip.crossings.uneven_split_keys
    keys, time = reach(plan, problem), facts_of(plan).least_time(problem, chip)
    return start + keys * busy <= (keys if time is None else time)


def backward_plan_for(plans: Sequence[KernelPlan], problem: Problem) -> KernelPlan:
    """The plan whose blocks own keys that runs a call, of those of the backward passes, `backward` first."""
    plans = at_length(plans, problem)
    return next((plan for plan in plans[1:] if plan.grid_2d is not None and facts_of(plan).serves(problem)), plans[0])


def executed_backward_plans(plans: Sequence[KernelPlan], problem: Problem) -> tuple[KernelPlan, ...]:
    """The plans that the CPU executor walks for a backward call: never in 2-D tiles, that of `backward_dq` second. Of a
    package without a backward pass, whose forward plan comes twice, that."""
    keys = [plan for plan in plans if plan.grid_2d is None and plan.pass_name != "backward_dq"]
    rows = [plan for plan in plans[1:] if plan.pass_name == "backward_dq" or not plan.is_backward]
    return (at_length(keys, problem)[0], *rows)


def dq_plan(plans: Sequence[KernelPlan]) -> KernelPlan:
    """Of the plans of the backward passes that of `backward_dq`, for calls that need it."""
    return next(plan for plan in plans if plan.pass_name == "backward_dq")


def at_length(plans: Sequence[KernelPlan], problem: Problem) -> list[KernelPlan]:
    """One plan of each pass, in their order: that for a range which holds the call's number of keys, or else that for
    all. The host knows shapes alone: of caches the number counts all room that there is, of packed batches all keys."""
    found: dict[str, KernelPlan] = {}
    for plan in plans:
        if plan.lengths is None:
            found.setdefault(plan.pass_name, plan)
        elif plan.lengths[0] <= problem.kv_len <= plan.lengths[1]:
            found[plan.pass_name] = plan
    return list(found.values())


def executed_plan(plans: Sequence[KernelPlan], problem: Problem, chip: Chip | None = None) -> KernelPlan:
    """The plan that the CPU executor walks for a call: as `plan_for`, but never in 2-D tiles."""
    return plan_for([plan for plan in plans if plan.grid_2d is None], problem, chip)
