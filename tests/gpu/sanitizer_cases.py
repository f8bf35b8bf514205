"""Runs cases of the suites on small problems, once each, for compute-sanitizer. Not a test by itself.

    export PYTORCH_NO_CUDA_MEMORY_CACHING=1
    compute-sanitizer --tool memcheck  --error-exitcode 1 python -m tests.gpu.sanitizer_cases
    compute-sanitizer --tool racecheck --error-exitcode 1 python -m tests.gpu.sanitizer_cases

With the variable each tensor is an allocation of its own, so that a read beyond its end is seen; the script refuses to
run without it. The cases cover all pairs of specs, lengths, head dims, splits, groups, dtypes, memory, loop orders,
layouts and packing, as the forward suite does, on lengths up to 300. `--every N` takes each Nth case,
`--family hopper` the kernels for sm_90a, `--backward` the cases of the backward suite.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import torch

from attncc.runtime.call import prepare
from tests.devices import cuda
from tests.gpu import backward_calls, backward_cases
from tests.gpu.calls import call
from tests.gpu.cases import SMALL_LENGTHS, cases, of_hopper
from tests.gpu.kernels import backward_kernel, forward_kernel
from tests.kernels import fill_cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--family", choices=("portable", "hopper"), default="portable")
    parser.add_argument("--backward", action="store_true")
    options = parser.parse_args()
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1":
        parser.error("set PYTORCH_NO_CUDA_MEMORY_CACHING=1")
    prepare.KEPT_BYTES = 0  # each workspace is an allocation of its own too
    device, start = cuda(), time.perf_counter()
    runs = _backward(options, device.target) if options.backward else _forward(options, device.target)
    print(f"{len(runs)} cases, compiled in {time.perf_counter() - start:.1f} s", flush=True)
    for name, run in runs.items():
        run()
        torch.cuda.synchronize()
        print(f"{time.perf_counter() - start:6.1f} s  {name}", flush=True)


def _forward(options: argparse.Namespace, target: str) -> dict[str, Callable[[], object]]:
    chosen = cases(SMALL_LENGTHS)
    chosen = (of_hopper(chosen) if options.family == "hopper" else chosen)[:: options.every]
    fill_cache(partial(forward_kernel, case, target) for case in chosen)
    return {str(case): partial(call, case, forward_kernel(case, target), target) for case in chosen}


def _backward(options: argparse.Namespace, target: str) -> dict[str, Callable[[], object]]:
    chosen = backward_cases.backward_cases(SMALL_LENGTHS)
    chosen = (backward_cases.of_hopper(chosen) if options.family == "hopper" else chosen)[:: options.every]
    fill_cache(partial(forward_kernel, case.made_by, target) for case in chosen)
    fill_cache(partial(backward_kernel, case, target) for case in chosen)
    return {str(case): partial(_run_backward, case, target) for case in chosen}


def _run_backward(case: backward_cases.BackwardCase, target: str) -> None:
    backward_calls.backward_call(case, forward_kernel(case.made_by, target)).run(backward_kernel(case, target))


if __name__ == "__main__":
    main()
