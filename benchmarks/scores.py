"""What a score line or dropout costs: the same mask with and without it.

    python -m benchmarks.scores [--families hopper,portable] [--cases full:16384,causal:8192] [--out FOLDER]

bf16 normal inputs, 16,384 tokens, 16 heads, head dim 128. All lines of a case and family are timed in one run. Every
kernel is first compared with fp64 attention on the last rows of the last head.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attncc
from attncc import philox
from attncc.schedule.schedule import Schedule

from .flex import Tensors
from .forward import Case, our_target
from .measure import RESULTS, Timing, check, compare, table, write

HEAD_DIM = 128
REACH = 128  # of the relative-position table: distances beyond share its ends
RATE = 0.1
SEED = 1234567
ROWS = 32  # compared with fp64
PLAIN = "plain"

Given = dict[str, Any]  # inputs of a call by name
# What a line makes of scores [rows, keys], given the rows' and the keys' positions and the head's inputs.
Meaning = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Given], torch.Tensor]


@dataclass(frozen=True)
class Line:
    """A line of a variant, the inputs it declares, and how much more time it may take than the same mask without it."""

    text: str
    declared: str
    meaning: Meaning
    allowed: float
    inputs: Callable[[int], Given] = field(default=lambda heads: {})


def _slopes(heads: int) -> Given:
    return {"slope": torch.exp2(-8 * torch.arange(1, heads + 1, device="cuda", dtype=torch.float32) / heads)}


def _bias(heads: int) -> Given:
    return {"bias": torch.randn(heads, device="cuda")}


def _table(heads: int) -> Given:
    return {"table": torch.randn(heads, 2 * REACH + 1, device="cuda")}


LINES = {
    PLAIN: Line("", "", lambda score, q, kv, given: score, 0),
    "softcap 30": Line(
        "score = 30 * tanh(score / 30)", "", lambda score, q, kv, given: 30 * torch.tanh(score / 30), 0.25
    ),
    "ALiBi": Line(
        "score = score - slope[h] * (q_pos - kv_idx)",
        "input slope: f32[head]",
        lambda score, q, kv, given: score - given["slope"] * (q - kv),
        0.08,
        _slopes,
    ),
    "head bias": Line(
        "score = score + bias[h]",
        "input bias: f32[head]",
        lambda score, q, kv, given: score + given["bias"],
        0.08,
        _bias,
    ),
    "relative table": Line(
        f"score = score + table[h, clamp(kv_idx - q_pos, -{REACH}, {REACH}) + {REACH}]",
        f"input table: f32[head, {2 * REACH + 1}]",
        lambda score, q, kv, given: score + given["table"][(kv - q).clamp(-REACH, REACH) + REACH],
        0.18,
        _table,
    ),
    "dropout 0.1": Line(f"dropout {RATE}", "", lambda score, q, kv, given: score, 0.35),
}


def source(line: Line, causal: bool) -> str:
    keep = "keep if q_pos >= kv_idx" if causal else ""
    return f"attn 1\nvariant measured {{\n{line.declared}\n{keep}\n{line.text}\n}}\n"


def launcher(line: Line, family: str, case: Case, qkv: Tensors, inputs: Given) -> Callable[[], Any]:
    target = "sm_90a" if family == "hopper" else our_target()
    schedule = Schedule(family, "measured", "forward", target, (("family", (family,)),))
    kernel = attncc.compile(source(line, case.causal), dtype="bf16", head_dim=HEAD_DIM, arch=target, schedule=schedule)
    keywords = inputs | ({"seed": SEED} if "dropout" in line.text else {})
    return lambda: kernel(*qkv, **keywords)


def relative_error(out: torch.Tensor, line: Line, case: Case, qkv: Tensors, inputs: Given) -> float:
    """||out - oracle|| / ||oracle|| over the last rows of the last head of the last sequence, the oracle in fp64."""
    q, k, v = (item[-1, -1].double() for item in qkv)
    rows, keys = (torch.arange(start, case.length, device="cuda") for start in (case.length - ROWS, 0))
    rows = rows[:, None]
    given = {name: array[-1].double() for name, array in inputs.items()}
    score = line.meaning(q[-ROWS:] @ k.T / math.sqrt(HEAD_DIM), rows, keys, given)
    if case.causal:
        score = score.masked_fill(keys > rows, -math.inf)
    prob = score.softmax(-1)
    if "dropout" in line.text:
        threshold = philox.threshold(RATE)
        place = (np.array(case.batch * case.heads - 1), rows[:, 0].cpu().numpy(), keys.cpu().numpy())
        prob = prob * torch.from_numpy(philox.keep_mask(SEED, threshold, *place)).cuda() * (philox.LEVELS / threshold)
    oracle = prob @ v
    return float((out[-1, -1, -ROWS:].double() - oracle).norm() / oracle.norm())


def measure(case: Case, family: str) -> list[dict[str, Any]]:
    """One row for each line."""
    qkv = case.tensors()
    inputs = {name: line.inputs(case.heads) for name, line in LINES.items()}
    launches = {name: launcher(line, family, case, qkv, inputs[name]) for name, line in LINES.items()}
    errors = {name: relative_error(launches[name](), line, case, qkv, inputs[name]) for name, line in LINES.items()}
    check(f"{case}, {family}", errors, 1e-2)
    timings = compare(launches, rounds=7, window_ms=50, sustained_s=0.5)
    return [_row(case, family, name, timings, errors[name]) for name in LINES]


def _row(case: Case, family: str, name: str, timings: Mapping[str, Timing], error: float) -> dict[str, Any]:
    timing, plain = timings[name], timings[PLAIN]
    return {
        "case": str(case),
        **asdict(case),
        "family": family,
        "line": name,
        "more_time": timing.milliseconds / plain.milliseconds - 1,
        "sustained_more_time": timing.sustained_milliseconds / plain.sustained_milliseconds - 1,
        "allowed": LINES[name].allowed,
        "tflops": case.useful_flops / timing.milliseconds * 1e-9,
        "relative_error": error,
        **asdict(timing),
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Percent of extra time, of the windows / sustained."""
    lines = [
        (
            *(row[key] for key in ("case", "family", "line", "tflops")),
            f"{row['more_time']:+.1%} / {row['sustained_more_time']:+.1%}",
            f"{row['allowed']:.0%}",
            f"{row['sm_clock_mhz']:.0f} MHz",
        )
        for row in rows
    ]
    return table(("case", "family", "line", "TFLOP/s", "more time", "allowed", "clock"), lines)


def cases(text: str) -> list[Case]:
    """`full:16384,causal:8192` as cases."""
    named = (item.split(":") for item in text.split(","))
    return [Case(HEAD_DIM, int(length), mask == "causal") for mask, length in named]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="hopper,portable")
    parser.add_argument("--cases", type=cases, default="full:16384,causal:8192")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [row for family in options.families.split(",") for case in options.cases for row in measure(case, family)]
    path = write("scores", rows, options.out)
    print(f"{path}\n{summary(rows)}")


if __name__ == "__main__":
    main()
