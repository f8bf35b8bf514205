"""What one maximum for all rows saves, where scores are proven bounded: beside kernels with running maxima.

    python -m benchmarks.unified_max [--head-dims 128,256] [--lengths 1024,4096,16384] [--rounds 9] [--out FOLDER]

Hopper forward kernels in bf16, 16,384 tokens, num_heads * head_dim 2048: a soft cap of 50 (full and causal) and a
sigmoid (full). `row_max = unified` and `row_max = running` in turns, in one process; each is first compared with fp64
attention on the last rows of the last head. Kernels compile at once on all cores. By default 18 cases: about 20 s, and
the compiler's 10 to 20 s before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

import attncc
from attncc.runtime.cuda.timing import ratio
from attncc.schedule.schedule import Schedule

from .forward import Case
from .measure import RESULTS, check, compare, table, write
from .scores import Line, relative_error, source

SOFTCAP = Line("score = 50 * tanh(score / 50)", "", lambda score, q, kv, given: 50 * torch.tanh(score / 50), 0)
SIGMOID = Line("score = 20 * sigmoid(score)", "", lambda score, q, kv, given: 20 * torch.sigmoid(score), 0)
LINES = {"softcap": (SOFTCAP, False), "softcap, causal": (SOFTCAP, True), "sigmoid": (SIGMOID, False)}
FORMS = ("running", "unified")

Kernel = Callable[..., torch.Tensor]


def compiled(name: str, head_dim: int, row_max: str) -> Kernel:
    line, causal = LINES[name]
    schedule = Schedule(row_max, "measured", "forward", "sm_90a", (("row_max", (row_max,)),))
    text = source(line, causal)
    return attncc.compile(text, dtype="bf16", head_dim=head_dim, arch="sm_90a", schedule=schedule)


def all_compiled(head_dims: tuple[int, ...]) -> dict[tuple[str, int, str], Kernel]:
    """Compiled side by side, by name, head dim and form."""
    wanted = list(product(LINES, head_dims, FORMS))
    with ThreadPoolExecutor(len(wanted)) as threads:
        return dict(zip(wanted, threads.map(lambda item: compiled(*item), wanted), strict=True))


def measure(case: Case, name: str, kernels: dict[str, Kernel], rounds: int) -> dict[str, Any]:
    qkv, (line, _) = case.tensors(), LINES[name]
    launches = {form: partial(kernel, *qkv) for form, kernel in kernels.items()}
    errors = {form: relative_error(launch(), line, case, qkv, {}) for form, launch in launches.items()}
    check(f"{case}, {name}", errors, 1e-2)
    timings = compare(launches, rounds=rounds, window_ms=25, sustained_s=0.1)
    faster, interval = ratio(timings["running"], timings["unified"])
    return {
        **asdict(case),
        "line": name,
        "faster": faster,
        "interval": interval,
        "relative_error": errors,
        "timings": {form: asdict(timing) for form, timing in timings.items()},
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Times in us; how many times as fast `unified` is, with its interval at 95 %; errors of both."""
    header = ("line", "D", "S", "running", "unified", "x", "interval", "errors")
    return table(header, [_cells(row) for row in rows])


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    times = [1e3 * row["timings"][form]["milliseconds"] for form in FORMS]
    low, high = row["interval"]
    errors = " ".join(f"{row['relative_error'][form]:.3e}" for form in FORMS)
    return row["line"], row["head_dim"], row["length"], *times, f"{row['faster']:.3f}", f"{low:.3f}-{high:.3f}", errors


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", type=numbers, default=(128, 256))
    parser.add_argument("--lengths", type=numbers, default=(1024, 4096, 16384))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    kernels = all_compiled(options.head_dims)
    rows = []
    for head_dim, length, name in product(options.head_dims, options.lengths, LINES):
        case = Case(head_dim, length, LINES[name][1])
        own = {form: kernels[name, head_dim, form] for form in FORMS}
        rows.append(measure(case, name, own, options.rounds))
        print(summary(rows[-1:]).splitlines()[-1], flush=True)
    print(f"{write('unified_max', rows, options.out)}\n{summary(rows)}")


if __name__ == "__main__":
    main()
