"""Runs kernels on small problems, once each, for compute-sanitizer. Not a test by itself.

    export PYTORCH_NO_CUDA_MEMORY_CACHING=1
    compute-sanitizer --tool memcheck  --error-exitcode 1 python -m tests.gpu.sanitizer
    compute-sanitizer --tool racecheck --error-exitcode 1 python -m tests.gpu.sanitizer

With the variable each tensor is an allocation of its own, so that a read beyond its end is seen; the script refuses to
run without it. The cases cover all pairs of specs, lengths, head dims, splits, groups, dtypes, memory, loop orders,
layouts and packing, as the forward suite does, on lengths up to 300. `--every N` takes each Nth case,
`--family hopper` the kernels for sm_90a.
"""

from __future__ import annotations

import argparse
import os
import time

import torch

from tests.devices import cuda
from tests.gpu.calls import call, compiled
from tests.gpu.cases import SMALL_LENGTHS, cases, of_hopper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--family", choices=("portable", "hopper"), default="portable")
    options = parser.parse_args()
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1":
        parser.error("set PYTORCH_NO_CUDA_MEMORY_CACHING=1")
    chosen, device = cases(SMALL_LENGTHS), cuda()
    chosen = (of_hopper(chosen) if options.family == "hopper" else chosen)[:: options.every]
    start = time.perf_counter()
    kernels = compiled(chosen, device.target)
    print(f"{len(chosen)} cases, compiled in {time.perf_counter() - start:.1f} s", flush=True)
    for case in chosen:
        call(case, kernels[case], device.target)
        torch.cuda.synchronize()
        print(f"{time.perf_counter() - start:6.1f} s  {case}", flush=True)


if __name__ == "__main__":
    main()
