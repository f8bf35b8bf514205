"""Checks random calls on the CPU executor: `python -m tests.random_calls --count 2000 [--packages]`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.random_calls.check import check


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_calls", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many calls")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--packages", action="store_true", help="the same by built packages, without machine code")
    chosen = parser.parse_args()
    begun, wrong, features = time.monotonic(), 0, Counter[str]()
    for seed in range(chosen.first, chosen.first + chosen.count):
        found = check(seed, packages=chosen.packages)
        features.update(found.features)
        wrong += bool(found.faults)
        if found.faults:
            print(f"seed {seed} ({', '.join(found.features)}): {'; '.join(found.faults)}", flush=True)
        if (seed - chosen.first) % 100 == 99:
            print(f"{seed - chosen.first + 1} calls, {wrong} wrong, {time.monotonic() - begun:.0f} s", flush=True)
    print(
        f"{wrong} of {chosen.count} calls are wrong; {time.monotonic() - begun:.0f} s; {dict(features.most_common())}"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
