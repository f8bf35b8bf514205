"""Checks random variants: `python -m tests.random_variants --count 2000 --jobs 2`, on an emulated GPU, or with `--gpu`
on one. `--seconds` ends it in time; `--report` keeps the verdict of each variant as soon as it is there."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.random_variants import emulated
from tests.random_variants.findings import Report
from tests.random_variants.workers import Job, verdicts

PROGRESS_SECONDS = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_variants", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many variants")
    parser.add_argument("--seed", type=int, default=0, help="that of the first variant; the others follow")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument(
        "--report", type=Path, help="a file to which each variant's verdict is added, as a line of JSON"
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=emulated.KINDS, default=emulated.KINDS, help="which kernels of the emulated GPU"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--gpu", action="store_true", help="the kernels of this machine's GPU")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that processes and folders are cleared away
    with tempfile.TemporaryDirectory(prefix="attncc-random-", ignore_cleanup_errors=True) as folder:
        return _run(chosen, _job(chosen, folder))


def _job(chosen: argparse.Namespace, folder: str) -> Job:
    if chosen.gpu:
        from tests.random_variants import device

        return device.job()
    tempfile.tempdir = folder  # where compiled kernels lie as long as they are needed
    return emulated.job(tuple(chosen.kinds))


def _run(chosen: argparse.Namespace, job: Job) -> int:
    begun, report = time.monotonic(), Report(chosen.report)
    shown = begun
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    for verdict in verdicts(job, iter(seeds), min(chosen.jobs, chosen.count), begun + chosen.seconds):
        report.add(verdict)
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            print(report.summary(chosen.count, shown - begun), flush=True)
    print(report.summary(chosen.count, time.monotonic() - begun))
    return int(report.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
