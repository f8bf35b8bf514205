"""Which tiles trying chooses for the kernels of the default build: the table that saves everybody else the tries.

    python -m benchmarks.choices [--check] [--specs NAMES] [--targets NAMES] [--head-dims NUMBERS] [--jobs N]
                                 [--seconds T] [--keep FILE]

Compiles the candidates of every spec, pass, sm_80 and sm_90a and head dims 64, 128 and 256 in bf16, and in e4m3 for
sm_90a, in order, until one is good (`attncc.settle`), and writes `attncc/kernels/known_tiles.json`. With a subset, only
its rows change. With --check it writes nothing, names the kernels that have other tiles in the table, and exits with 1
if any has. Needs no GPU; what was compiled before comes from the cache.

All takes hours of one core. With --seconds it ends after so long: the rows of the builds that are done change. With
--keep FILE these are kept, and a later call with that file, on this machine or another, goes on with the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from time import perf_counter

from attncc.codegen.render import render
from attncc.diagnostics import AttnccError
from attncc.kernels import known_tiles
from attncc.kernels.kernel_names import kernel_name
from attncc.package.variant_package import DEFAULT_ARCHS
from attncc.settle import settle

from .fingerprints import ARCHS, HEAD_DIMS, WITHOUT_8_BITS, cases
from .parts import Done, add_options, how, say_what_is_left, stamp, sweep
from .sweep import PASSES, SPECS, Case, names, prepared

Rows = dict[str, tuple[str, str]]  # key and tiles of each kernel, by its name


def chosen(case: Case, stamp_before: str) -> Done | None:
    """What trying chooses, whatever the table says. None if the stamp shows that it chose before."""
    began = perf_counter()
    passes = tuple(name for name in PASSES if case.dtype != "e4m3" or name != "backward")
    try:
        packages = prepared(case, passes)
    except AttnccError as error:
        if case.dtype == "e4m3" and WITHOUT_8_BITS.issuperset(item.code for item in error.diagnostics):
            return Done("", 0, {})
        raise
    kernels = [item for package in packages for item in package.candidates if not item.names_tiles]
    stamp_now = stamp(case.target, (render(plan).text for item in kernels for plan in item.plans()))
    if stamp_now == stamp_before:
        return None
    found = [(item, settle(item, use_table=False).plan) for item in kernels]
    rows = {kernel_name(plan): (item.key, plan.tiles) for item, plan in found}
    return Done(stamp_now, round(perf_counter() - began, 1), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--specs", type=names, default=SPECS)
    parser.add_argument("--targets", type=names, default=DEFAULT_ARCHS)
    parser.add_argument("--head-dims", type=lambda text: tuple(map(int, names(text))), default=HEAD_DIMS)
    add_options(parser)
    options = parser.parse_args()
    wanted = list(cases(options.specs, ARCHS, options.targets, options.head_dims))
    parts = how(options)
    found = sweep(chosen, wanted, parts)
    now: Rows = {name: (key, tiles) for rows in found.values() for name, (key, tiles) in rows.items()}
    before: Rows = {name: (key, tiles) for name, (key, tiles) in json.loads(known_tiles.FILE.read_text()).items()}
    differing = [name for name in sorted(now) if before.get(name) != now[name]]
    for name in differing:
        print(f"{name}: {now[name][1]}, in the table {before.get(name, ('', 'nothing'))[1]}")
    print(f"{len(now)} kernels, {len(differing)} that differ")
    say_what_is_left(parts.kept, found, wanted)
    if options.check:
        sys.exit(bool(differing))
    whole = len(found) == len(list(cases(SPECS, ARCHS, DEFAULT_ARCHS, HEAD_DIMS)))
    known_tiles.write(now if whole else before | now)


if __name__ == "__main__":
    main()
