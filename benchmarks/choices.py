"""Which tiles trying chooses for the kernels of the default build: the table that saves everybody else the tries.

    python -m benchmarks.choices [--check] [--specs NAMES] [--targets NAMES] [--head-dims NUMBERS] [--jobs N]

Compiles the candidates of every spec, pass, sm_80 and sm_90a and head dims 64, 128 and 256 in bf16, and in e4m3 for
sm_90a, in order, until one is good (`attncc.settle`), and writes `attncc/kernels/known_tiles.json`. With a subset, only
its rows change. With --check it writes nothing, names the kernels that have other tiles in the table, and exits with 1
if any has. Needs no GPU; what was compiled before comes from the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from attncc.diagnostics import AttnccError
from attncc.kernels import known_tiles
from attncc.kernels.kernel_names import kernel_name
from attncc.package.variant_package import DEFAULT_ARCHS
from attncc.settle import settle

from .fingerprints import ARCHS, HEAD_DIMS, WITHOUT_8_BITS, cases
from .sweep import PASSES, SPECS, Case, names, prepared

Rows = dict[str, tuple[str, str]]  # key and tiles of each kernel, by its name


def chosen(case: Case) -> Rows:
    """What trying chooses, whatever the table says."""
    passes = tuple(name for name in PASSES if case.dtype != "e4m3" or name != "backward")
    try:
        packages = prepared(case, passes)
    except AttnccError as error:
        if case.dtype == "e4m3" and WITHOUT_8_BITS.issuperset(item.code for item in error.diagnostics):
            return {}
        raise
    kernels = [item for package in packages for item in package.candidates if not item.names_tiles]
    found = [(item, settle(item, use_table=False).plan) for item in kernels]
    return {kernel_name(plan): (item.key, plan.tiles) for item, plan in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--specs", type=names, default=SPECS)
    parser.add_argument("--targets", type=names, default=DEFAULT_ARCHS)
    parser.add_argument("--head-dims", type=lambda text: tuple(map(int, names(text))), default=HEAD_DIMS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    wanted = list(cases(options.specs, ARCHS, options.targets, options.head_dims))
    now: Rows = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, rows in enumerate(pool.map(chosen, wanted), start=1):
            now |= rows
            print(f"\r{number} of {len(wanted)} builds", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    before: Rows = {name: (key, tiles) for name, (key, tiles) in json.loads(known_tiles.FILE.read_text()).items()}
    differing = [name for name in sorted(now) if before.get(name) != now[name]]
    for name in differing:
        print(f"{name}: {now[name][1]}, in the table {before.get(name, ('', 'nothing'))[1]}")
    print(f"{len(now)} kernels, {len(differing)} that differ")
    if options.check:
        sys.exit(bool(differing))
    whole = len(wanted) == len(list(cases(SPECS, ARCHS, DEFAULT_ARCHS, HEAD_DIMS)))
    known_tiles.write(now if whole else before | now)


if __name__ == "__main__":
    main()
