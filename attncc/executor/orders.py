"""The loop orders, over one sequence. What a step moves between HBM and on-chip memory is counted where it happens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.cost.cost import RESULTS, STATE
from ..analysis.rules import TileKind
from .work import RowState, SequenceWork

Array = NDArray[Any]


def q_outer(work: SequenceWork, splits: int) -> tuple[Array, Array]:
    """FlashAttention-2's order: each q tile stays on chip while its live K and V tiles pass by.

    With more than one split the keys of a q tile are shared between blocks (Flash-Decoding), whose normalised partial
    results `combine` merges.
    """
    if splits == 1:
        state = _sweep(work, 0)
        work.meter.write(work.num_heads * work.sequence.q_len, RESULTS)
        return work.finish(state)
    partial = [work.finish(_sweep(own, split)) for split, own in enumerate(split_work(work, splits))]
    rows = work.num_heads * work.sequence.q_len
    work.meter.write(rows * splits, STATE)
    work.meter.read(rows * splits, STATE)
    work.meter.write(rows, RESULTS)
    return combine(work, np.stack([out for out, _ in partial]), np.stack([lse for _, lse in partial]))


def _sweep(work: SequenceWork, split: int) -> RowState:
    state, grid, meter = work.begin(split), work.grid, work.meter
    for q_tile in range(grid.q_sizes.size):
        meter.read(int(grid.q_sizes[q_tile]) * work.num_heads, ("q",))
        for kv_tile in range(grid.kv_sizes.size):
            meter.read(int(grid.kv_sizes[kv_tile]) * work.loads_of_keys(q_tile, kv_tile), ("k", "v"))
            for kind, heads, _ in work.live_heads(q_tile, kv_tile):
                work.attend(state, q_tile, kv_tile, kind, heads)
    return state


def split_work(work: SequenceWork, splits: int) -> list[SequenceWork]:
    """The work of each split: an equal run of tiles, from the first live one of each q tile to its last."""
    kinds = work.grid.kinds
    live = kinds != TileKind.EMPTY
    tiles = np.arange(kinds.shape[-1])
    first = np.where(live, tiles, kinds.shape[-1]).min(axis=-1, initial=kinds.shape[-1], keepdims=True)
    end = np.where(live, tiles + 1, 0).max(axis=-1, initial=0, keepdims=True)
    run = np.maximum(-(-(end - first) // splits), 1)
    owner = (tiles - first) // run
    masked = [np.where(owner == split, kinds, TileKind.EMPTY).astype(np.uint8) for split in range(splits)]
    return [replace(work, grid=replace(work.grid, kinds=own)) for own in masked]


def combine(work: SequenceWork, outs: Array, lses: Array) -> tuple[Array, Array]:
    """Merges the splits' results: outs [splits, heads, q_len, value head dim], lses [splits, heads, q_len].

    Sums where there is no softmax to weigh them by.
    """
    if work.plan.variant.normalize != "softmax":
        return outs.sum(axis=0), lses[0]
    highest = lses.max(axis=0)
    base = np.where(np.isneginf(highest), 0, highest)
    weights = np.exp(lses - base)
    total = weights.sum(axis=0)
    out = (outs * weights[..., None]).sum(axis=0) / np.where(total == 0, 1, total)[..., None]
    with np.errstate(divide="ignore"):
        return out, base + np.log(total)


def kv_outer(work: SequenceWork) -> tuple[Array, Array]:
    """FlashAttention-1's order (Algorithm 1): each K and V tile stays on chip while q tiles pass by, whose O, l and m
    live in HBM. O is normalised in a last pass, and not at each step: the same value with fewer divisions."""
    grid, meter, every_row = work.grid, work.meter, work.num_heads * work.sequence.q_len
    state = work.begin()
    meter.write(every_row, STATE)
    for kv_tile in range(grid.kv_sizes.size):
        live = (grid.kinds[:, :, kv_tile] != TileKind.EMPTY).any(axis=1)
        meter.read(grid.over_heads(np.count_nonzero(live), work.num_heads) * int(grid.kv_sizes[kv_tile]), ("k", "v"))
        for q_tile in range(grid.q_sizes.size):
            for kind, heads, count in work.live_heads(q_tile, kv_tile):
                rows = int(grid.q_sizes[q_tile]) * count
                meter.read(rows, ("q", *STATE))
                work.attend(state, q_tile, kv_tile, kind, heads)
                meter.write(rows, STATE)
    meter.read(every_row, STATE)
    meter.write(every_row, RESULTS)
    return work.finish(state)
