"""Checks random variants: `python -m tests.random_variants --count 2000`, on an emulated GPU or with `--gpu` on one."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.random_variants import apart
from tests.random_variants.emulated import KINDS, Finding


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_variants", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many variants")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="which kernels of the emulated GPU")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--gpu", action="store_true", help="the kernels of this machine's GPU")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.count)
    if chosen.gpu:
        from tests.random_variants.device import run

        return run(seeds, chosen.jobs)
    return _emulate([(seed, kind) for seed in seeds for kind in chosen.kinds], chosen.jobs)


def _emulate(tasks: list[tuple[int, str]], jobs: int) -> int:
    begun, counts, wrong = time.monotonic(), Counter[str](), 0
    with apart.folder() as folder, ThreadPoolExecutor(jobs) as threads:
        results = threads.map(lambda task: apart.check(task[0], task[1], folder), tasks)
        for number, ((_, kind), found) in enumerate(zip(tasks, results, strict=True), start=1):
            counts[kind] += found is not False
            if isinstance(found, Finding):
                wrong += 1
                print(found, flush=True)
            if number % 100 == 0:
                print(f"{number} of {len(tasks)} after {time.monotonic() - begun:.0f} s: {wrong} wrong", flush=True)
    ran = ", ".join(f"{counts[kind]} {kind}" for kind in counts)
    print(f"{wrong} of {counts.total()} kernels are wrong ({ran}); {time.monotonic() - begun:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
