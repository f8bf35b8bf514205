"""How a launch shares out caches of different lengths among thread blocks: what `attncc explain --kv-lens` tells.

Decode kernels cut the tiles of all items into equal runs (Stream-K, Osama et al. 2023; LeanAttention, Sanovar et al.
2024); forward kernels give each item, a block of queries of a head, to one thread block. Nothing is compiled.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .analysis.cost.cost import Traffic
from .analysis.cost.roofline import Device, Roofline, roofline
from .analysis.mask.grid import rule_tables
from .evaluate import Array, Environment, evaluate
from .executor.run import skips
from .explain import capacity
from .kernels.decode.facts import Decode, LaidOut
from .kernels.registry import facts_of, forward_facts
from .kernels.splits import choose_splits
from .problem import Problem
from .problem import Sequence as Rows
from .problem.arrays import environment, sequence_inputs
from .runtime.call.decode_launch import decode_grid
from .runtime.store.crossings import chip_like
from .schedule.plan import DTYPE_BYTES, KernelPlan
from .statements import MASK_FLOAT

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Balance:
    """Of one launch. Tiles are those of keys, from the first that an item's mask may keep to the last."""

    blocks: int  # thread blocks that have work
    resident: int  # that the GPU holds at once, as far as is known without compiling
    least: int  # tiles that a thread block has
    most: int
    mean: float
    busiest: int  # tiles, one after the other, on the slowest of the places for resident blocks
    items: int
    cut: int  # items that several thread blocks share
    parts: int  # partial results of these
    part_bytes: int  # that these write, and that are read again
    kv_bytes: int
    v_in_k: bool  # its rows are the first columns of those of k, and counted once: the kernel can load them so
    roofline: Roofline
    one_count: int  # splits of each item, if all had one number of them, which the longest asks for
    one_count_busiest: int  # tiles, as `busiest`, then

    @property
    def imbalance(self) -> float:
        """How many times as long as equal shares for all places."""
        total = self.mean * self.blocks
        return self.busiest * min(self.resident, self.blocks) / total if total else 1.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": self.roofline.seconds, "imbalance": self.imbalance}


def balance(plan: KernelPlan, problem: Problem, inputs: Mapping[str, Array], device: Device) -> Balance:
    """`problem` knows the lengths of its caches (`kv_lens`). Inputs that bounds read must be there."""
    sequences = [list(_items(plan, problem, sequence, inputs)) for sequence in problem.sequences()]
    items = [item for own in sequences for item in own]
    tiles, resident = [item.tiles for item in items], capacity(plan, device)
    one_count = choose_splits(len(tiles), max(tiles, default=1), resident)
    if isinstance(facts_of(plan), Decode):
        shares = _decode_shares(plan, problem, sequences, device, resident)
    else:
        one_count = plan.split_kv or one_count
        shares = _splits(tiles, one_count)
    counts = _parts_of_items(len(items), shares)
    v_in_k = forward_facts(plan).latent_stages > 0
    kv_columns = plan.head_dim + (0 if v_in_k else plan.value_head_dim)
    kv_bytes = sum(item.keys for item in items) * kv_columns * plan.kv_bytes
    part_rows = sum(item.rows * count for item, count in zip(items, counts, strict=True) if count > 1)
    part_bytes = part_rows * (plan.stored_value_head_dim + 2) * _FLOAT_BYTES
    each = [share.tiles for share in shares]
    return Balance(
        blocks=len(each),
        resident=resident,
        least=min(each, default=0),
        most=max(each, default=0),
        mean=sum(each) / max(len(each), 1),
        busiest=_busiest(each, resident),
        items=len(items),
        cut=sum(count > 1 for count in counts),
        parts=sum(count for count in counts if count > 1),
        part_bytes=part_bytes,
        kv_bytes=kv_bytes,
        v_in_k=v_in_k,
        roofline=_roofline(plan, items, kv_bytes, part_bytes, device),
        one_count=one_count,
        one_count_busiest=_busiest([share.tiles for share in _splits(tiles, one_count)], resident),
    )


def _decode_shares(
    plan: KernelPlan, problem: Problem, sequences: Sequence[Sequence[_Item]], device: Device, resident: int
) -> list[_Share]:
    """Runs of tiles, or of splits where each item has as many."""
    facts = facts_of(plan)
    assert isinstance(facts, Decode)
    tiles = [item.tiles for own in sequences for item in own]
    shared = [_units(facts, own, problem.num_kv_heads) for own in sequences]
    units, alike = [count for own in shared for count in own], len({sum(own) for own in shared}) == 1
    grid = decode_grid(facts, problem, resident)
    laid = facts.laid_out(problem, units, chip_like(device), grid, alike=alike)
    return [share for own in laid for share in _runs(own, tiles, fixed=facts.splits > 0)]


def _parts_of_items(items: int, shares: Sequence[_Share]) -> list[int]:
    """Into how many parts each item is cut."""
    counts = [0] * items
    for share in shares:
        for item, parts in share.items:
            counts[item] += parts
    return counts


def _roofline(plan: KernelPlan, items: Sequence[_Item], kv_bytes: int, part_bytes: int, device: Device) -> Roofline:
    rows, element = sum(item.rows for item in items), DTYPE_BYTES[plan.dtype]
    q_bytes, out_bytes = rows * plan.head_dim * element, rows * plan.value_head_dim * DTYPE_BYTES[plan.out_dtype]
    traffic = Traffic({"q": q_bytes, "kv": kv_bytes, "parts": part_bytes}, {"out": out_bytes, "parts": part_bytes})
    flops = 2 * sum(item.keys * item.rows for item in items) * (plan.head_dim + plan.value_head_dim)
    return roofline(flops, traffic, device, element)


@dataclass(frozen=True)
class _Item:
    """A block of rows of a head: tiles of keys, at least one, and keys that are loaded for it."""

    tiles: int
    keys: int
    rows: int


@dataclass(frozen=True)
class _Share:
    """Of one thread block."""

    tiles: int
    items: tuple[tuple[int, int], ...]  # with how many parts of each


def _items(plan: KernelPlan, problem: Problem, rows: Rows, inputs: Mapping[str, Array]) -> Iterator[_Item]:
    """Head by head, blocks of rows in order. As items.cu.j2: all heads of a sequence have the same."""
    facts = facts_of(plan)
    each = facts.row_heads(problem)
    first = np.arange(0, rows.q_len * each, plan.block_q)
    last = np.minimum(first + plan.block_q, rows.q_len * each) - 1
    begin, end = np.zeros_like(first), np.full_like(first, rows.kv_len)
    knows = facts.knows_tiles if isinstance(facts, Decode) else plan.grid_2d is None
    if knows and skips(plan):
        own = sequence_inputs(plan.variant, problem, rows, inputs)
        bare = environment(plan.variant, problem, rows, own, MASK_FLOAT)
        tables = rule_tables(plan.rules, plan.variant, problem, inputs)
        known = Environment(bare.symbols, {**bare.inputs, **tables}, bare.lets, MASK_FLOAT)
        blocks = known.with_symbols(q_first=first // each, q_last=last // each)
        begin = _of_all_heads(evaluate(plan.rules.kv_begin, blocks), len(first)).min(axis=0)
        end = np.minimum(_of_all_heads(evaluate(plan.rules.kv_end, blocks), len(first)).max(axis=0), rows.kv_len)
    size = plan.block_kv
    begin = np.minimum(np.maximum(begin, 0) // size * size, np.maximum(end, 0))
    tiles = np.maximum(-(-end // size) - begin // size, 1)
    keys = np.maximum(end - begin, 0)
    for _ in range(problem.num_heads // each):
        yield from map(_Item, tiles.tolist(), keys.tolist(), (last - first + 1).tolist())


def _units(facts: Decode, items: Sequence[_Item], heads: int) -> list[int]:
    """What thread blocks share out of the items of a sequence: splits, or tiles about."""
    if facts.splits:
        return [facts.splits] * len(items)
    return facts.units([item.tiles for item in items[: len(items) // heads]]) * heads


def _of_all_heads(bound: Array, blocks: int) -> Array:
    """[heads or 1, blocks]"""
    return np.broadcast_to(bound, np.broadcast_shapes(np.shape(bound), (blocks,))).reshape(-1, blocks)


def _runs(laid: LaidOut, tiles: Sequence[int], *, fixed: bool) -> Iterator[_Share]:
    """Of all items there. A unit is a tile or less, or where splits are `fixed` a split, which is a part of its own."""
    ends = np.cumsum(laid.units)
    for begin, end in pairwise(laid.runs.begins()):
        first, last = (int(place) for place in np.searchsorted(ends, [begin, end - 1], side="right"))
        items, own = [], 0
        for place in range(first, last + 1):
            item, units = laid.items[place], laid.units[place]
            start = int(ends[place]) - units
            low, high = max(begin, start) - start, min(end, int(ends[place])) - start
            own += _upto(high, tiles[item], units, fixed) - _upto(low, tiles[item], units, fixed)
            items.append((item, high - low if fixed else 1))
        yield _Share(own, tuple(items))


def _upto(unit: int, tiles: int, units: int, fixed: bool) -> int:
    """The tiles of an item that come before one of its units."""
    return min(unit * -(-tiles // units), tiles) if fixed else unit * tiles // units


def _splits(tiles: Iterable[int], count: int) -> list[_Share]:
    """So many equal parts of each item, each a thread block's; none of what has fewer tiles than that."""
    shares = []
    for item, own in enumerate(tiles):
        size = -(-own // count)
        shares += [_Share(min(size, own - begin), ((item, 1),)) for begin in range(0, own, size)]
    return shares


def _busiest(tiles: Iterable[int], places: int) -> int:
    """Of thread blocks that begin in order, each where a place is free first: when the last one ends, in tiles."""
    ends = [0] * places
    for own in tiles:
        heapq.heapreplace(ends, ends[0] + own)
    return max(ends)
