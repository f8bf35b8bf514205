"""Plans of context parallelism, simulated: `python -m benchmarks.context_parallel`. No GPU, no torch.

For 2 to 64 GPUs in nodes of 8, at 8192 tokens a GPU: the share of ideal time by the plan's own model of kernel and
links, rows received over the least that any transport must bring for the same owners, and how long planning took. The
least is computed from the masks' definitions, apart from the tile proof.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attncc
import attncc.distributed

TOKENS, HEADS, HEAD_DIM = 8192, (64, 8), 128
RANKS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Mask:
    """A spec and its consts; `window` keys before each row, of the row's own document, or all of the document's."""

    name: str
    spec: str
    window: int | None = None
    longest: int | None = None  # document; None: one sequence
    whole: bool = False  # rows see all of their document

    def lengths(self, rows: int) -> Any:
        """Documents of lognormal lengths, a median of 3000 tokens: most are shorter than what a GPU has."""
        if self.longest is None:
            return rows
        rng, found = np.random.default_rng(0), list[int]()
        while sum(found) < rows:
            drawn = int(np.clip(rng.lognormal(8, 1.2), 16, self.longest))
            found.append(min(drawn, rows - sum(found)))
        return found

    def least(self, plan: attncc.distributed.Plan, rank: int) -> int:
        """Rows of others that the rank's own rows look at."""
        rows, starts = plan.rows(rank), np.asarray(plan.lengths.q_starts)
        sequence = np.searchsorted(starts, rows, side="right") - 1
        first = starts[sequence]
        if self.window is not None:
            first = np.maximum(first, rows - self.window + 1)
        last = starts[sequence + 1] - 1 if self.whole else rows
        change = np.zeros(plan.lengths.kv_rows + 1, np.int64)
        np.add.at(change, first, 1)
        np.add.at(change, last + 1, -1)
        seen: NDArray[np.bool_] = np.cumsum(change)[:-1] > 0
        seen[rows] = False
        return int(seen.sum())


MASKS = (
    Mask("causal", "causal"),
    Mask("window 4096", "sliding_window", 4096),
    Mask("window 1024", "sliding_window", 1024),
    Mask("documents to 8k", "causal", longest=8192),
    Mask("documents to 64k", "causal", longest=65536),
    Mask("full documents to 8k", "full", longest=8192, whole=True),
)


@dataclass(frozen=True)
class Row:
    mask: Mask
    ranks: int
    plan: attncc.distributed.Plan
    milliseconds: float  # of planning, on one core

    @property
    def over_least(self) -> float:
        """Rows received over the least, all ranks together."""
        received = sum(self.plan.masks[0].rows_received(rank) for rank in range(self.ranks))
        least = sum(self.mask.least(self.plan, rank) for rank in range(self.ranks))
        return received / least if least else 1.0

    def __str__(self) -> str:
        (mask,), best = self.plan.masks, self.plan.tried[0]
        how = f"{best.name} + {best.swaps}" if best.swaps else best.name
        figures = "  ".join(f"{value:6.3f}" for value in (mask.share_of_ideal, mask.balance, self.over_least))
        return f"{self.mask.name:22}{self.ranks:4}  {figures}  {self.milliseconds:7.0f} ms  {how}"


def rows(ranks: tuple[int, ...] = RANKS, masks: tuple[Mask, ...] = MASKS) -> Iterator[Row]:
    for mask in masks:
        consts: dict[str, Any] = {"width": mask.window} if mask.window else {}
        variant = attncc.parse(mask.spec, **consts)
        for number, count in enumerate(ranks):
            sizes: dict[str, Any] = {"ranks": count, "nodes": max(count // 8, 1), "heads": HEADS, "head_dim": HEAD_DIM}
            lengths = mask.lengths(TOKENS * count)
            if number == 0:
                attncc.distributed.plan(variant, lengths, **sizes)  # the mask's rules are kept from here on
            start = time.process_time()
            plan = attncc.distributed.plan(variant, lengths, **sizes)
            yield Row(mask, count, plan, (time.process_time() - start) * 1e3)


def main() -> None:
    print(f"{'mask':22}{'GPUs':>4}  {'ideal':>6}  {'work':>6}  {'rows':>6}  {'plan':>10}  assignment")
    for row in rows():
        print(row, flush=True)


if __name__ == "__main__":
    main()
