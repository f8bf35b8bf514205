"""Variants as FlexAttention's users write them, beside FlexAttention with its default settings.

    python -m benchmarks.mods [--only dense_bias,…] [--head-dims 64,128] [--passes forward,backward] [--processes 12]
                              [--rounds 5] [--seconds 300] [--out FOLDER]

bf16 normal q, k, v, two sequences, 16 heads, 4,096 rows; inputs as `attncc bench` draws them. Each kernel is what
`attncc.compile` gives by default, and called as users call it: backward through autograd. `times` is FlexAttention's
time over ours: above 1, attncc is faster.

Processes compile beside each other: what one case takes of Inductor is longer than its windows. When all have made
their launches, they are timed, one after the other: nothing else is on the GPU then. With --seconds no case begins to
compile when so many are gone. A case takes about 6 s of a core.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attncc.runtime.cuda.timing import in_turns

ROWS, HEADS, BATCH = 4096, 16, 2
WINDOW_MS = 12
POLL_S = 0.1
PASSES = "forward", "backward"

_CAUSAL = "keep if q_pos >= kv_idx\n"
MODS = {
    "alibi": "input slope: f32[head]\n" + _CAUSAL + "score = score - slope[h] * (q_pos - kv_idx)",
    "alibi_symmetric": "input slope: f32[head]\nscore = score - slope[h] * abs(q_pos - kv_idx)",
    "causal_key_bias": "input bias: f32[batch, kv]\n" + _CAUSAL + "score = score + bias[b, kv_idx]",
    "clipped": "input slope: f32[head]\nscore = score - slope[h] * min(abs(q_pos - kv_idx), 512)",
    "dense_bias": "input bias: bf16[head, q, kv]\nscore = score + bias[h, q_idx, kv_idx]",
    "dense_bias_causal": "input bias: bf16[head, q, kv]\n" + _CAUSAL + "score = score + bias[h, q_idx, kv_idx]",
    "dense_mask": "input shown: bool[q, kv]\nkeep if shown[q_idx, kv_idx]",
    "gaussian": "score = score - 0.001 * (q_pos - kv_idx) * (q_pos - kv_idx)",
    "key_bias": "input bias: f32[batch, kv]\nscore = score + bias[b, kv_idx]",
    "key_padding": "input shown: bool[batch, kv]\nkeep if shown[b, kv_idx]",
    "log_distance": _CAUSAL + "score = score - log(1 + q_pos - kv_idx)",
    "relative": "score = score + (q_pos - kv_idx)",
    "relative_causal": _CAUSAL + "score = score + (q_pos - kv_idx)",
    "row_factor": "input factor: f32[q]\n" + _CAUSAL + "score = score * factor[q_idx]",
    "same_group": "input group: i32[batch, pos]\nkeep if group[b, q_pos] == group[b, kv_idx]",
    "softcap_window": _CAUSAL + "keep if q_pos - kv_idx < 1024\nscore = 50 * tanh(score / 50)",
    "temperature": "input factor: f32[head]\n" + _CAUSAL + "score = score * factor[h]",
    "two_slopes": "input left: f32[head]\ninput right: f32[head]\n"
    "score = score - (left[h] if q_pos >= kv_idx else right[h]) * abs(q_pos - kv_idx)",
}


@dataclass(frozen=True)
class Mod:
    name: str
    head_dim: int
    pass_name: str


# -------------------------------------------------------------------- a process


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def work(folder: Path, number: int, given: argparse.Namespace) -> None:
    """Makes launches of a process's share, waits for the others, and times them."""
    made = []
    for mod in chosen(given)[number :: given.processes]:
        if time.time() > given.seconds:
            print(f"no time for {mod}", flush=True)
            continue
        try:
            made.append((mod, *launches(mod)))
        except Exception as raised:  # whatever Inductor raises for what it can't compile
            print(f"{mod}: {type(raised).__name__}: {str(raised).splitlines()[0][:200]}", flush=True)
    (folder / f"{number}.ready").touch()
    while len(list(folder.glob("*.ready"))) < given.processes:
        time.sleep(POLL_S)
    rows = []
    with alone(folder):
        for mod, calls, error, tiles in made:
            rows.append(asdict(mod) | timed(calls, given.rounds) | {"difference": error, "tiles": tiles})
    (folder / f"{number}.json").write_text(json.dumps(rows))


def launches(mod: Mod) -> tuple[dict[str, Callable[[], object]], float, str]:
    """Ours and FlexAttention's, each called; how far the results are apart, over their size; our tiles."""
    import numpy as np
    import torch

    import attncc
    from attncc import api, synthetic
    from attncc.bench import flex
    from attncc.bench.candidates import Candidate, launch_of, result_of
    from attncc.bench.case import Arrays, Case
    from attncc.problem import Problem
    from attncc.runtime.cuda.device import best_target
    from attncc.runtime.cuda.driver import driver
    from attncc.schedule.target import TARGETS

    text = f"attn 1\nvariant {mod.name} {{\n{MODS[mod.name]}\n}}\n"
    variant, dim = api.parse(text).variant, mod.head_dim
    problem = Problem(BATCH, HEADS, HEADS, ROWS, ROWS, dim, dim)
    case = Case(variant, problem, "bf16", mod.pass_name, synthetic.inputs(variant, problem, np.random.default_rng(0)))
    kernel, given = attncc.compile(text, dtype="bf16", head_dim=dim), case.given()
    arrays = Arrays.of(case)
    arrays = Arrays(arrays.copies[:1], arrays.dout)
    own = Candidate("attncc", "", lambda q, k, v: kernel(q, k, v, **given))
    found = {"attncc": own, "flex": flex.candidates(case)[0]}
    results = [result_of(item, case, arrays) for item in found.values()]
    pairs = zip(*((item.gradients or (item.out,)) for item in results), strict=True)
    error = max(float((one.float() - other.float()).norm() / other.float().norm()) for one, other in pairs)
    torch.cuda.synchronize()
    plans = kernel._store.plans if mod.pass_name == "forward" else kernel._store.backward_plans
    plan = plans(kernel.configurations[0], best_target(TARGETS, driver().device(0).capability))[0]
    return {name: launch_of(item, case, arrays) for name, item in found.items()}, error, plan.tiles


def timed(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of each, and FlexAttention's over ours."""
    from attncc.bench.stopwatch import TorchStopwatch

    windows = in_turns(calls, TorchStopwatch(), rounds=rounds, window_ms=WINDOW_MS)
    found = {name: statistics.median(times) for name, times in windows.items()}
    return found | {"times": found["flex"] / found["attncc"]}


# -------------------------------------------------------------------- all processes


def summary(rows: list[dict[str, Any]]) -> str:
    from .measure import table

    names = "name", "head_dim", "pass_name", "attncc", "flex", "times", "difference", "tiles"
    ordered = sorted(rows, key=lambda row: row["times"])
    return table(names, [tuple(row[name] for name in names) for row in ordered])


def chosen(given: argparse.Namespace) -> list[Mod]:
    passes, dims, names = (text.split(",") for text in (given.passes, given.head_dims, given.only))
    return [Mod(name, int(dim), pass_name) for pass_name in passes for dim in dims for name in names]


def main() -> None:
    begin = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(MODS))
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--passes", default="forward")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)  # folder and number
    given = parser.parse_args()
    if given.worker:
        work(Path(given.worker[0]), int(given.worker[1]), given)
        return
    with tempfile.TemporaryDirectory() as kept:
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        arguments = [*sys.argv[1:], "--seconds", str(begin + given.seconds), "--worker", kept]
        command = [sys.executable, "-m", "benchmarks.mods", *arguments]
        workers = [subprocess.Popen([*command, str(number)], env=environment) for number in range(given.processes)]
        failed = [number for number, worker in enumerate(workers) if worker.wait() != 0]
        rows = [row for path in sorted(Path(kept).glob("*.json")) for row in json.loads(path.read_text())]
    from .measure import RESULTS, write

    print(f"{write('mods', rows, given.out or RESULTS)}\n{summary(rows)}")
    if failed:
        raise SystemExit(f"processes {failed} failed: see above")


if __name__ == "__main__":
    main()
