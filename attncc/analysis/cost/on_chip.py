"""Bytes between the L2 cache and the multiprocessors, which is where a loop order's Θ(N²d²/M) is found on a GPU.

Dao et al., "FlashAttention" (2022), Theorem 2, has two levels: HBM, and a chip of M elements. A GPU has the L2 cache
between them. So the theorem's bytes leave the L2 cache, and HBM sees each array about once, as long as what runs at one
time fits that cache. Counted is what kernels load by `cp.async` and TMA, what they write, and what they add in fp32 to
memory (a reduction that the L2 cache does). Not counted: the variant's inputs, parameters, tensor maps, instructions.

What arrives at multiprocessors may be more than what leaves the L2 cache: a load may serve two of them, the blocks of a
cluster send each other dS, and what TMA fills with zeros counts as well (`in_boxes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..mask.grid import Tally
from .cost import RESULTS, STATE, Traffic, Workload, added, kv_outer_traffic

_SUM_BYTES = 4  # of an element of the sum of dQ


@dataclass(frozen=True)
class ChipTraffic:
    """Bytes by the names of the kernels' arrays. `l2_reads` leave the L2 cache, `sm_reads` reach multiprocessors.
    `reductions`: added in the L2 cache."""

    l2_reads: Mapping[str, int] = field(default_factory=dict)
    sm_reads: Mapping[str, int] = field(default_factory=dict)
    writes: Mapping[str, int] = field(default_factory=dict)
    reductions: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: ChipTraffic) -> ChipTraffic:
        return ChipTraffic(
            added(self.l2_reads, other.l2_reads),
            added(self.sm_reads, other.sm_reads),
            added(self.writes, other.writes),
            added(self.reductions, other.reductions),
        )

    @classmethod
    def of(cls, traffic: Traffic) -> ChipTraffic:
        """Where each load serves one thread block."""
        return cls(traffic.reads, traffic.reads, traffic.writes)

    def in_boxes(self, whole: Mapping[str, int]) -> ChipTraffic:
        """Where arrays come in boxes of TMA, of so many bytes in all: rows beyond the last and columns beyond the head
        dim arrive as zeros, and counters know no difference."""
        return replace(self, sm_reads={**self.sm_reads, **whole})


def q_outer(
    work: Workload,
    tallies: Iterable[Tally],
    splits: int = 1,
    heads_together: int = 1,
    cluster: int = 1,
    *,
    results: Iterable[str] = RESULTS,
) -> ChipTraffic:
    """FlashAttention-2's order, without the kernel that merges splits. In a `cluster` of two thread blocks each loads
    half of the keys and values for both. `results`: what calls ask for."""
    heads, found = work.problem.num_heads, ChipTraffic()
    for tally in tallies:
        rows, keys = heads * tally.q_len, tally.live_keys // heads_together
        own, shared = work.moved({"q": rows * splits}), work.moved(dict.fromkeys(("k", "v"), keys))
        written = dict.fromkeys(STATE, rows * splits) if splits > 1 else dict.fromkeys(results, rows)
        left = {name: size // cluster for name, size in shared.items()}
        found += ChipTraffic(own | left, own | shared, work.moved(written))
    return found


def kv_outer(work: Workload, tallies: Iterable[Tally]) -> ChipTraffic:
    """Algorithm 1 of the paper, whose O, l and m pass by too."""
    return ChipTraffic.of(kv_outer_traffic(work, tallies))


@dataclass(frozen=True)
class KeyBlocks:
    """How kernels of the backward pass whose blocks own keys go over rows. `parts` blocks share a tile of keys. Rows of
    the sum of dQ fill up a multiple of `row_alignment`, and where that is a tile, those of statistics too.
    `dq_columns`: of that sum, 0 where another kernel makes dQ. `paired`: two blocks of a cluster go over rows together;
    tallies are then those of pairs, and each block loads so many columns (`other_columns`) of the other's K.
    `stores_first`: the first to come to rows of the sum of dQ stores, the others add; else all add to zeros."""

    parts: int = 1
    row_alignment: int = 1
    dq_columns: int = 0
    paired: bool = False
    other_columns: int = 0
    stores_first: bool = False


def keys_own(work: Workload, tallies: Iterable[Tally], blocks: KeyBlocks) -> ChipTraffic:
    """FlashAttention-2's Algorithm 2: keys stay on chip, the rows that see them pass by."""
    problem, found = work.problem, ChipTraffic()
    for tally in tallies:
        keys, alignment = tally.used_keys // problem.group, blocks.row_alignment
        aligned = aligned_rows(tally, tally.live, tally.live_rows, alignment)
        kept = aligned if alignment == tally.block_q else tally.live_rows
        passing = work.moved(dict.fromkeys(("q", "dout"), tally.live_rows * blocks.parts))
        statistics = work.moved({"statistics": kept * blocks.parts * (1 + blocks.paired)})
        owned = work.moved({"k": keys * blocks.parts, "v": keys})
        if blocks.paired:
            owned["k"] += keys * blocks.other_columns * work.element_bytes
        arriving = {name: size * (1 + blocks.paired) for name, size in passing.items()}
        if blocks.paired:  # each block makes half of the columns of dQ, of the keys of both
            arriving["dscores"] = tally.live * tally.block_q * tally.block_kv * work.element_bytes
        every_key = problem.num_kv_heads * problem.kv_len
        first = aligned_rows(tally, tally.used_q_tiles, tally.used_rows, alignment) if blocks.stores_first else 0
        stored, summed = ({"partial_dq": rows * blocks.dq_columns * _SUM_BYTES} for rows in (first, aligned - first))
        found += ChipTraffic(
            {**owned, **passing, **statistics},
            {**owned, **arriving, **statistics},
            work.moved({"dk": every_key, "dv": every_key}) | (stored if first else {}),
            summed if blocks.dq_columns else {},
        )
    return found


def aligned_rows(tally: Tally, tiles: int, rows: int, alignment: int) -> int:
    """So many rows of so many tiles, where those of the last tile fill up a multiple of `alignment`."""
    short = -tally.q_len % tally.block_q
    if short == 0:
        return rows
    last = (tiles * tally.block_q - rows) // short  # tiles of the last rows
    return rows + last * (-tally.q_len % alignment)
