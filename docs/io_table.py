"""The table of `docs/io-analysis.md`: bytes of one head as N, d and M vary, from the cost model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attncc.analysis.cost.cost import (
    Traffic,
    Workload,
    kv_outer_traffic,
    paper_blocks,
    q_outer_traffic,
    standard_traffic,
)
from attncc.analysis.mask.grid import tally, uniform_grid
from attncc.analysis.rules import TileKind
from attncc.problem import Problem

KIB = 1024
ELEMENT_BYTES = 2

# (N, d, on-chip KiB): N alone, then d, then M, from the middle row.
SWEEP = (
    (1024, 64, 99), (4096, 64, 99), (16384, 64, 99), (65536, 64, 99),
    (16384, 32, 99), (16384, 128, 99), (16384, 256, 99),
    (16384, 64, 48), (16384, 64, 163), (16384, 64, 227),
)  # fmt: skip


@dataclass(frozen=True)
class IoRow:
    """One head with q_len = kv_len = N, fp16, full attention. Blocks are (block_q, block_kv)."""

    length: int
    head_dim: int
    onchip_kib: int
    standard: Traffic
    kv_blocks: tuple[int, int]
    kv_outer: Traffic
    q_blocks: tuple[int, int]
    q_outer: Traffic

    @property
    def onchip_elements(self) -> int:
        """M of the paper."""
        return self.onchip_kib * KIB // ELEMENT_BYTES

    @property
    def kv_outer_constant(self) -> float:
        """Bytes over N^2 d^2 / M."""
        return self.kv_outer.total * self.onchip_elements / (self.length * self.head_dim) ** 2


def io_row(length: int, head_dim: int, onchip_kib: int) -> IoRow:
    """Counts for blocks by the paper's rule; q_outer takes the same rule with q and kv exchanged."""
    work = Workload(Problem(1, 1, 1, length, length, head_dim, head_dim), ELEMENT_BYTES)
    kv_blocks = paper_blocks(onchip_kib * KIB // ELEMENT_BYTES, head_dim)
    q_blocks = (kv_blocks[1], kv_blocks[0])
    by_kv, by_q = (tally([uniform_grid(TileKind.FULL, length, length, *blocks)], 1) for blocks in (kv_blocks, q_blocks))
    return IoRow(
        length, head_dim, onchip_kib, standard_traffic(work),
        kv_blocks, kv_outer_traffic(work, [by_kv]), q_blocks, q_outer_traffic(work, [by_q]),
    )  # fmt: skip


def markdown() -> str:
    """The table, as it stands in the page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| N | d | on chip | standard | `kv_outer` (tile) | `q_outer` (tile) | `kv_outer`, in N²d²/M |"
    yield "|--:|--:|--:|--:|--:|--:|--:|"
    for row in (io_row(*sizes) for sizes in SWEEP):
        kv_outer, q_outer = (
            f"{_megabytes(traffic)} ({blocks[0]} x {blocks[1]})"
            for traffic, blocks in ((row.kv_outer, row.kv_blocks), (row.q_outer, row.q_blocks))
        )
        yield (
            f"| {row.length} | {row.head_dim} | {row.onchip_kib} KiB | {_megabytes(row.standard)} "
            f"| {kv_outer} | {q_outer} | {row.kv_outer_constant:.1f} |"
        )


def _megabytes(traffic: Traffic) -> str:
    return f"{traffic.total / 1e6:,.1f} MB"
