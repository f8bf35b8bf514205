"""What `Plan.explain` prints."""

from __future__ import annotations

from collections.abc import Iterator

from .lengths import CHUNKS_A_RANK, LEAST_CHUNK
from .plan_data import MaskPlan, PlanData, Tried

_MOST_RANKS = 8  # that are listed one by one


def explained(plan: PlanData) -> str:
    return "\n".join(_lines(plan))


def _lines(plan: PlanData) -> Iterator[str]:
    lengths, machine, best = plan.lengths, plan.machine, plan.tried[0]
    what = f"{len(lengths.q)} packed sequences, " if lengths.packed else ""
    keys = "" if lengths.q_rows == lengths.kv_rows else f", {lengths.kv_rows} keys"
    nodes = f"{machine.nodes} node{'s' if machine.nodes > 1 else ''}"
    yield f"{what}{lengths.q_rows} rows{keys} on {machine.ranks} ranks of {nodes}"
    each = plan.chunks // plan.ranks
    chunks = f"{each} chunk{'s' if each > 1 else ''}"
    yield f"assignment: {_named(best)}; {chunks} of {lengths.q_rows // plan.chunks} rows a rank"
    yield from _few_chunks(plan)
    yield (
        f"speeds: {machine.flops / 1e12:g} TFLOP/s, {machine.nvlink / 1e9:g} GB/s inside a node, "
        f"{machine.network / 1e9:g} GB/s a GPU between nodes"
    )
    for mask in plan.masks:
        yield ""
        yield from _of_mask(plan, mask)
    lost = list(_lost(plan))
    if lost:
        yield ""
        yield from lost


def _few_chunks(plan: PlanData) -> Iterator[str]:
    """Where rows don't divide: few large chunks balance badly."""
    rows, kv_rows, chunks = (x // plan.ranks for x in (plan.lengths.q_rows, plan.lengths.kv_rows, plan.chunks))
    usual = min(CHUNKS_A_RANK, rows // LEAST_CHUNK)
    if 2 * chunks <= usual and (rows % usual or kv_rows % usual):
        yield f"  few chunks, which balance badly: pad rows of q and of k to a multiple of {plan.ranks * usual}"


def _named(tried: Tried) -> str:
    return f"{tried.name} and {tried.swaps} swaps" if tried.swaps else tried.name


def _of_mask(plan: PlanData, mask: MaskPlan) -> Iterator[str]:
    layers = f", {mask.layers} layers" if mask.layers > 1 else ""
    yield f"{mask.variant}{layers}: {mask.slowest * 1e3:.3g} ms forward, {mask.share_of_ideal:.1%} of ideal"
    yield f"  work of the largest rank over the mean: {mask.balance:.3f}"
    received = [mask.rows_received(rank) for rank in range(plan.ranks)]
    everything = plan.lengths.kv_rows - plan.lengths.kv_rows // plan.ranks
    if everything:
        share = sum(received) / (everything * plan.ranks)
        yield f"  rows received: {share:.1%} of an all-gather's; {1 - share:.1%} proven away"
    passed = sum(each.total for of_rank in mask.passed for each in of_rank)
    if passed:
        yield f"  {passed / sum(received):.1%} of them were sent to their node once, and handed on inside it"
    local = sum(mask.local) / plan.chunks
    yield f"  {local:.1%} of chunks need no others: they are computed while rows travel"
    yield f"  {_travel(mask)}"
    for rank, rows in enumerate(received[:_MOST_RANKS]):
        found = list(mask.rows_by_sender(rank).items())
        senders = ", ".join(f"{count} from {sender}" for sender, count in found[:_MOST_RANKS])
        more = ", …" if len(found) > _MOST_RANKS else ""
        size = rows * plan.row_bytes / 2**20
        yield f"  rank {rank}: computes {mask.compute[rank] * 1e3:.3g} ms, receives {size:.3g} MiB" + (
            f" ({senders}{more} rows)" if rows else ""
        )
    if plan.ranks > _MOST_RANKS:
        yield f"  … {plan.ranks - _MOST_RANKS} more ranks"


def _travel(mask: MaskPlan) -> str:
    if not any(mask.from_node) and not any(mask.from_others):
        return "nothing travels"
    exposed = f"{mask.exposed * 1e3:.3g} ms forward with what of travel isn't hidden"
    if len(mask.groups) == 1:
        return f"all heads of k travel together: {exposed}"
    groups = ", ".join(map(str, mask.groups))
    return f"{groups} heads of k travel one after the other: {exposed}; {mask.at_once * 1e3:.3g} ms all together"


def _lost(plan: PlanData) -> Iterator[str]:
    best, *others = plan.tried
    for tried in others:
        if tried.seconds > 1.01 * best.seconds:
            why = f"{tried.seconds / best.seconds:.2f} times the time"
        elif tried.bytes_sent > 1.005 * best.bytes_sent:
            why = f"the same time, {tried.bytes_sent / max(best.bytes_sent, 1):.2f} times the bytes"
        else:
            why = "no better"
        yield f"lost: {_named(tried)}: {why}"
