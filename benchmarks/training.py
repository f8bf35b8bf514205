"""Training the example's little transformer with attncc and with PyTorch's own attention: losses, and times of a step.

    python -m benchmarks.training [--steps 150] [--seeds 2] [--kinds uncapped,sdpa,attncc] [--out FOLDER]

`uncapped` and `sdpa` are the same formula; see `examples/train_characters.py`. Each pair of runs starts with the same
weights and sees the same batches. `apart` is the mean distance of two curves, each smoothed over ten steps: of a kind
from SDPA's at the same seed, and, what noise makes, of SDPA's own at two seeds.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch

from .forward import names
from .measure import RESULTS, table, write

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "train_characters.py"
PEER = "sdpa"
SMOOTHED = 10  # steps


def example() -> Any:
    spec = importlib.util.spec_from_file_location("train_characters", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_characters"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def curve(losses: list[float]) -> torch.Tensor:
    return torch.tensor(losses).unfold(0, SMOOTHED, 1).mean(-1)


def apart(one: list[float], other: list[float]) -> float:
    return float((curve(one) - curve(other)).abs().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--kinds", type=names, default=f"uncapped,{PEER},attncc")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    module = example()
    text = module.Text.of(module.make_text(200_000))
    kinds, seeds = dict.fromkeys([*options.kinds, PEER]), range(options.seeds)
    runs = {
        (kind, seed): module.train(kind, module.GPU, text, options.steps, "cuda", seed=seed, report=False)
        for seed, kind in product(seeds, kinds)
    }
    noise = [apart(runs[PEER, seed].losses, runs[PEER, 0].losses) for seed in seeds if seed]
    rows: list[dict[str, Any]] = [
        {
            "kind": kind,
            "seed": seed,
            "milliseconds": run.seconds * 1e3,
            "last_loss": statistics.fmean(run.losses[-2 * SMOOTHED :]),
            "apart": apart(run.losses, runs[PEER, seed].losses),
            "noise": statistics.fmean(noise) if noise else None,
            "losses": run.losses,
        }
        for (kind, seed), run in runs.items()
    ]
    shown = [(row["kind"], row["seed"], row["milliseconds"], row["last_loss"], row["apart"]) for row in rows]
    print(write("training", rows, options.out))
    print(table(("kind", "seed", "ms a step", "last losses", f"apart from {PEER}"), shown))
    print(f"{PEER} at another seed: {rows[0]['noise']}")


if __name__ == "__main__":
    main()
