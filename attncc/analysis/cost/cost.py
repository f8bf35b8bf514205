"""What attention costs: FLOPs, and bytes between HBM and on-chip memory for each loop order.

The counts follow Dao et al., "FlashAttention" (NeurIPS 2022), section 3.2: every block that a loop order moves between
HBM and on-chip memory counts once for each time it moves, caches between them aside. K and V move for each query head,
unless a kernel has those that share them in one tile.
The variant's own inputs are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ...evaluate import Environment, evaluate
from ...ir import Apply, Expr, Load, Variant, needs, walk
from ...problem import Problem
from ...problem.arrays import at_positions
from ...statements import keep_condition
from ..mask.grid import Tally, TileGrid
from ..rules import TileKind

PAIRS = 1 << 17  # of a mask, that are evaluated at once: arrays that a core's cache holds

# -------------------------------------------------------------------- bytes


@dataclass(frozen=True)
class Traffic:
    """Bytes read from and written to HBM, by the names of the kernels' arrays."""

    reads: Mapping[str, int] = field(default_factory=dict)
    writes: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.reads.values()) + sum(self.writes.values())

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(added(self.reads, other.reads), added(self.writes, other.writes))


def added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *(n for n in other if n not in one))}


@dataclass(frozen=True)
class Workload:
    """A problem and the sizes of its elements: `element_bytes` of q, k, v, out and their gradients, `state_bytes` of
    lse, the softmax state and partial results (4: fp32; 8 for fp64). `softmax` is false for `normalize sigmoid` and
    `none`. `out_bytes`: of out, where that has another type than q. `statistics_bytes`: of what the backward pass
    keeps of a row, lse, delta and what else its kernels ask for. `kv_bytes`: of k and v, where q has another type.
    `v_in_k`: the rows of v are the first columns of those of k, and move with them."""

    problem: Problem
    element_bytes: int = 2
    state_bytes: int = 4
    softmax: bool = True
    out_bytes: int | None = None
    statistics_bytes: int = 8
    kv_bytes: int | None = None
    v_in_k: bool = False

    def row_bytes(self, name: str) -> int:
        """Bytes of one row of an array; 0 for those that don't move by themselves."""
        problem = self.problem
        if name == "v" and self.v_in_k:
            return 0
        if name in _ROW_STATE:
            return self.softmax * (self.statistics_bytes if name == "statistics" else self.state_bytes)
        width = self.state_bytes if name.startswith("partial_") else self.element_bytes
        width = self.out_bytes or width if name == "out" else width
        width = self.kv_bytes or width if name in ("k", "v") else width
        by_head_dim = name.removeprefix("partial_").removeprefix("d") in ("q", "k")
        return (problem.head_dim if by_head_dim else problem.value_head_dim) * width

    def moved(self, rows: Mapping[str, int]) -> dict[str, int]:
        """Bytes by array from rows by array, without arrays that don't exist here."""
        return {name: count * self.row_bytes(name) for name, count in rows.items() if self.row_bytes(name)}


_ROW_STATE = ("lse", "row_max", "row_sum", "statistics")
RESULTS = ("out", "lse")
STATE = ("partial_out", "row_max", "row_sum")  # what splits leave, and kv_outer keeps in HBM between its steps


def standard_traffic(work: Workload) -> Traffic:
    """Algorithm 0 of the paper: S = QK^T to HBM, P = softmax(S) to HBM, O = PV. Nothing is skipped."""
    heads = work.problem.num_heads
    q_rows = kv_rows = pairs = 0
    for sequence in work.problem.sequences():
        q_rows += heads * sequence.q_len
        kv_rows += heads * sequence.kv_len
        pairs += heads * sequence.q_len * sequence.kv_len
    matrices = {"score": pairs * work.element_bytes, "prob": pairs * work.element_bytes}
    reads = {**work.moved({"q": q_rows, "k": kv_rows, "v": kv_rows}), **matrices}
    return Traffic(reads, {**work.moved({"out": q_rows}), **matrices})


def q_outer_traffic(work: Workload, tallies: Iterable[Tally], splits: int = 1, heads_together: int = 1) -> Traffic:
    """FlashAttention-2's order: a q tile stays on chip while the live K and V tiles pass by. With more than one split,
    partial results go through HBM to the combine kernel. There is one tally for each sequence; so many heads load
    K and V together."""
    heads = work.problem.num_heads
    traffic = Traffic()
    for tally in tallies:
        keys, rows = tally.live_keys // heads_together, heads * tally.q_len
        reads, partial = {"q": rows * splits, "k": keys, "v": keys}, dict.fromkeys(STATE, rows * splits)
        results = dict.fromkeys(RESULTS, rows)
        if splits > 1:
            traffic += Traffic(work.moved({**reads, **partial}), work.moved({**partial, **results}))
        else:
            traffic += Traffic(work.moved(reads), work.moved(results))
    return traffic


def kv_outer_traffic(work: Workload, tallies: Iterable[Tally]) -> Traffic:
    """Algorithm 1 of the paper: a K and V tile stays on chip while q tiles and their O, l, m pass by. O is kept in HBM
    unnormalised, in the state's type, until a last pass over it writes out and lse."""
    heads = work.problem.num_heads
    traffic = Traffic()
    for tally in tallies:
        keys, visits, rows = tally.used_keys, tally.live_rows, heads * tally.q_len
        state = dict.fromkeys(STATE, visits + rows)
        traffic += Traffic(
            work.moved({"q": visits, "k": keys, "v": keys, **state}),
            work.moved({**state, **dict.fromkeys(RESULTS, rows)}),
        )
    return traffic


def paper_blocks(onchip_elements: int, head_dim: int) -> tuple[int, int]:
    """(block_q, block_kv) of Algorithm 1, line 1: B_c = ceil(M / 4d), B_r = min(B_c, d); M counts elements."""
    columns = -(-onchip_elements // (4 * head_dim))
    return min(columns, head_dim), columns


# -------------------------------------------------------------------- FLOPs


def kept_pairs(variant: Variant, grid: TileGrid, environment: Environment, num_heads: int) -> int:
    """Pairs that the variant keeps in some tiles of one sequence, over all heads. The mask is evaluated on PARTIAL
    tiles alone."""
    return round(sampled_pairs(variant, grid, environment, num_heads, math.inf)[0])


def sampled_pairs(
    variant: Variant, grid: TileGrid, environment: Environment, num_heads: int, work: float
) -> tuple[float, bool]:
    """The same, and whether it is exact. `work`: operations on pairs that a row of tiles may take. Where it would take
    more, some of its rows are counted, chosen at random: masks may have a period."""
    condition = keep_condition(variant)
    if condition is None or (grid.is_uniform and grid.kinds.flat[0] == TileKind.FULL):
        return num_heads * int(grid.q_sizes.sum() * grid.kv_sizes.sum()), True
    full = (grid.kinds == TileKind.FULL).sum(axis=0)
    pairs, exact = float(grid.over_heads(grid.q_sizes @ full @ grid.kv_sizes, num_heads)), True
    work_of_pair, random = operations(variant, condition), np.random.default_rng(0)
    for tile in range(grid.q_sizes.size):
        partial = np.repeat(grid.kinds[:, tile] == TileKind.PARTIAL, grid.kv_sizes, axis=-1)  # [heads, kv_len]
        columns = np.flatnonzero(partial.any(axis=0))
        keys, of_tile = columns + grid.kv_tile * grid.block_kv, grid.q_rows(tile)
        rows = np.arange(of_tile.start, of_tile.stop)
        if columns.size == 0:
            continue
        counted = int(min(rows.size, max(work / (columns.size * work_of_pair), 1)))
        if counted < rows.size:
            rows, exact = np.sort(random.choice(rows, counted, replace=False)), False
        weight = int(grid.q_sizes[tile]) / counted
        step = max(1, PAIRS // columns.size)
        for start in range(0, counted, step):
            q_idx = rows[start : start + step]
            kept = evaluate(condition, at_positions(environment, q_idx, keys)) & partial[:, None, columns]
            found = np.broadcast_to(kept, (kept.shape[0], q_idx.size, columns.size))
            pairs += weight * int(np.count_nonzero(found)) * (num_heads // kept.shape[0])
    return pairs, exact


@lru_cache(maxsize=64)
def operations(variant: Variant, condition: Expr) -> int:
    """Those that a condition takes for a pair at most, lets included."""
    nodes = walk(condition, *(let.value for let in needs(variant, condition)))
    return sum(isinstance(node, Apply | Load) for node in nodes)


def useful_flops(work: Workload, pairs: int) -> int:
    """2 FLOP for each multiply-add of q.k and of p.v, over the kept pairs: 4 * D each where both head dims are D."""
    return 2 * (work.problem.head_dim + work.problem.value_head_dim) * pairs


def executed_flops(work: Workload, tallies: Iterable[Tally]) -> int:
    """What the tensor cores do: whole tiles that aren't EMPTY, head dims padded to 16."""
    padded = sum(-(-dim // 16) * 16 for dim in (work.problem.head_dim, work.problem.value_head_dim))
    return sum(2 * padded * tally.block_q * tally.block_kv * tally.live for tally in tallies)
