"""How long planning takes: `python -m benchmarks.planning_time`. No GPU, no torch.

Milliseconds of processor time on one core, the least of several calls, for 64k tokens on 2 to 64 GPUs and 512k on 64,
in nodes of 8: of single masks, and of sets of masks that share rows. Run it where nothing else runs: processes beside
it empty the core's caches, and take up to twice as long.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import attncc
import attncc.distributed
from attncc.diagnostics import AttnccWarning
from benchmarks.context_parallel import HEAD_DIM, HEADS, MASKS, Mask

SHORT, LONG = 1 << 16, 1 << 19  # tokens
COLUMNS = *((SHORT, ranks) for ranks in (2, 4, 8, 16, 32, 64)), (LONG, 64)
MORE = Mask("full", "full"), Mask("prefix", "prefix_lm")
SETS: dict[str, tuple[tuple[str, int], ...]] = {  # masks of the same lengths, and how many layers have each
    "causal, window 1024": (("causal", 1), ("window 1024", 5)),
    "causal, two windows": (("causal", 1), ("window 4096", 2), ("window 1024", 5)),
    "documents to 8k, window 1024": (("documents to 8k", 1), ("window 1024", 5)),
    "documents to 64k, window 4096": (("documents to 64k", 1), ("window 4096", 1)),
}


@dataclass(frozen=True)
class Problem:
    """What `attncc.distributed.plan` is given."""

    kernels: Any
    lengths: Any
    inputs: dict[str, Any]

    def seconds(self, ranks: int) -> float:
        sizes: dict[str, Any] = {"ranks": ranks, "nodes": max(ranks // 8, 1), "heads": HEADS, "head_dim": HEAD_DIM}
        start = time.process_time()
        attncc.distributed.plan(self.kernels, self.lengths, **sizes, **self.inputs)
        return time.process_time() - start


def problems(rows: int) -> Iterator[tuple[str, Problem]]:
    """By name: single masks, then sets. A prefix is a third of the rows."""
    masks = {mask.name: mask for mask in (*MASKS, *MORE)}
    variants = {name: attncc.parse(mask.spec, **_consts(mask)) for name, mask in masks.items()}
    for name, mask in masks.items():
        inputs = {"prefix_len": np.array([rows // 3], np.int32)} if mask.spec == "prefix_lm" else {}
        yield name, Problem(variants[name], mask.lengths(rows), inputs)
    for name, layers in SETS.items():
        kernels = [(variants[mask], count) for mask, count in layers]
        yield name, Problem(kernels, masks[layers[0][0]].lengths(rows), {})


def _consts(mask: Mask) -> dict[str, Any]:
    return {"width": mask.window} if mask.window else {}


def milliseconds(repeats: int, columns: tuple[tuple[int, int], ...] = COLUMNS) -> dict[str, list[float]]:
    """The least of each problem, by column. Calls take turns, so that no problem has all of a quiet moment."""
    found: dict[str, list[float]] = {}
    for rows, ranks in columns:
        given = dict(problems(rows))
        times = [{name: problem.seconds(ranks) for name, problem in given.items()} for _ in range(repeats + 1)]
        for name in given:  # not the first time, when the mask's rules are made
            found.setdefault(name, []).append(1e3 * min(each[name] for each in times[1:]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore", AttnccWarning)  # A723, of full attention
    found = milliseconds(repeats)
    print(f"{'milliseconds':32}" + "".join(f"{f'{rows >> 10}k/{ranks}':>9}" for rows, ranks in COLUMNS))
    alone, sets = ([row for name, row in found.items() if (name in SETS) is is_set] for is_set in (False, True))
    for title, some in (("slowest of one mask", alone), ("slowest of a set", sets)):
        found[title] = np.max(some, axis=0).tolist()
    for name, row in found.items():
        print(f"{name:32}" + "".join(f"{value:9.1f}" for value in row))


if __name__ == "__main__":
    main()
