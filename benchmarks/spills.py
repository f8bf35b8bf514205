"""Which kernels spill registers, of all that users may ask for: every spec, pass, dtype, head dim and target.

    python -m benchmarks.spills [--passes NAMES] [--specs NAMES] [--targets NAMES] [--every | --shipped] [--jobs N]

The passes are those of a build: forward (with 2-D tiles), decode, and backward with all its kernels. Without --every a
covering design: of specs, dtypes, head dims and targets, each two meet somewhere. With --shipped what `attncc build`
makes unasked: its dtypes, head dims and targets. Needs no GPU. Kernels have the plans that a build gives them; what was
compiled before comes from the cache. Exits with 1 if any spills more than a few bytes (`attncc.settle`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product

from attncc.package.variant_package import DEFAULT_ARCHS, DEFAULT_DTYPES, DEFAULT_HEAD_DIMS

from .sweep import PASSES, SPECS, Case, names, passes_of, settled

DTYPES = ("fp16", "bf16", "fp32")
HEAD_DIMS = ((16, 16), (40, 40), (64, 64), (72, 72), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256))
WIDE = ((264, 264), (320, 320), (384, 384), (512, 512), (576, 512))  # of forward passes in 16 bits
WIDE_DTYPES = ("fp16", "bf16")
TARGETS = ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_120")


def cover(specs: tuple[str, ...], targets: tuple[str, ...]) -> Iterator[Case]:
    for (i, spec), (j, head_dims) in product(enumerate(specs), enumerate(HEAD_DIMS)):
        yield Case(spec, DTYPES[(i + j) % len(DTYPES)], head_dims, targets[(i + i // 3 + j // 2) % len(targets)])
    for i, spec in enumerate(specs):  # two of them each
        for j in (i, i + 2 + i // 5 % 2):
            yield Case(spec, WIDE_DTYPES[j % 2], WIDE[j % len(WIDE)], targets[(j + i // 5) % len(targets)])


def every(specs: tuple[str, ...], targets: tuple[str, ...]) -> Iterator[Case]:
    narrow, wide = product(specs, DTYPES, HEAD_DIMS, targets), product(specs, WIDE_DTYPES, WIDE, targets)
    return (Case(*case) for case in (*narrow, *wide))


def shipped(specs: tuple[str, ...], targets: tuple[str, ...]) -> Iterator[Case]:
    wanted = product(specs, DEFAULT_DTYPES, DEFAULT_HEAD_DIMS, (item for item in DEFAULT_ARCHS if item in targets))
    return (Case(spec, dtype, (head_dim, head_dim), target) for spec, dtype, head_dim, target in wanted)


DESIGNS = {"cover": cover, "every": every, "shipped": shipped}


def report(passes: tuple[str, ...], case: Case) -> list[tuple[str, bool]]:
    """A line for each kernel that spills, or that didn't get its first guess of tiles; and whether that costs much."""
    name = f"{case.spec} {case.dtype} {case.head_dims[0]}:{case.head_dims[1]} {case.target}"
    if case.head_dims in WIDE:
        passes = tuple(item for item in passes if item != "backward")
    return [
        (f"{name} {item.plan.pass_name}: {item.plan.tiles}: {item.why}; not {dict(item.rejected)}", not item.serves)
        for item in settled(case, passes)
        if item.troubles or item.rejected
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=passes_of, default=tuple(PASSES))
    parser.add_argument("--specs", type=names, default=SPECS)
    parser.add_argument("--targets", type=names, default=TARGETS)
    design = parser.add_mutually_exclusive_group()
    for name in ("every", "shipped"):
        design.add_argument(f"--{name}", action="store_const", dest="design", const=name, default="cover")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    cases = list(DESIGNS[options.design](options.specs, options.targets))
    spilling = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for lines in pool.map(partial(report, options.passes), cases):
            for line, spills in lines:
                print(("SPILLS " if spills else "       ") + line, flush=True)
                spilling += spills
    print(f"{len(cases)} builds, {spilling} kernels that spill more than a few bytes")
    sys.exit(spilling > 0)


if __name__ == "__main__":
    main()
