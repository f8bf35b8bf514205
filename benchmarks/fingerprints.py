"""Which kernels a change of the compiler changes: a hash of the machine code of every kernel of the default build.

    python -m benchmarks.fingerprints [--text] [--check] [--passes NAMES] [--specs NAMES] [--dtypes NAMES]
                                      [--targets NAMES] [--head-dims NUMBERS] [--jobs N]
                                      [--seconds T] [--keep FILE]

Compiles all specs for all passes, sm_80 and sm_90a and head dims 64, 128 and 256 in bf16, and in e4m3 for sm_90a, with
all helper kernels (combine, delta, …), and writes `tests/golden/machine_code.json`. With a subset, only its kernels
change there. With --check it writes nothing, names the kernels that differ from the file, and exits with 1 if any does.

Line tables, comments and names of symbols don't count. Another version of the compiler makes other code: the file holds
the version, and --check refuses to compare two.

--text is fast and needs no compiler: it hashes CUDA text, of all tiles that each kernel may get, for
`tests/golden/kernel_texts.json`.

To compile all takes hours of one core. With --seconds it ends after so long, with the kernels of the builds that are
done. With --keep FILE these are kept, and a later call with that file, on this machine or another, goes on with the
others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from attncc.codegen.render import render
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import Candidates
from attncc.kernels.kernel_names import kernel_name
from attncc.machine_code import compiled, other_kernels
from attncc.package.variant_package import DEFAULT_ARCHS, DEFAULT_DTYPES, DEFAULT_HEAD_DIMS

from . import parts
from .cubin import compiler_version, fingerprint
from .parts import Done
from .sweep import PASSES, SPECS, Case, names, pass_names, passes_of, prepared, settled

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"
ARCHS = {**dict.fromkeys(DEFAULT_DTYPES, DEFAULT_ARCHS), "e4m3": ("sm_90a",)}
HEAD_DIMS = (*DEFAULT_HEAD_DIMS, 256)
# Why a spec has no e4m3 kernels: its schedule asks for other tiles (A405) or another family (A412), or its variant for
# what they lack (A414).
WITHOUT_8_BITS = {"A405", "A412", "A414"}


class Found(NamedTuple):
    """The hash of each kernel, by name, and the compilers that made them."""

    hashes: dict[str, str]
    compilers: frozenset[str] = frozenset()


class Kind(NamedTuple):
    """Something of a kernel that is hashed."""

    file: Path
    find: Callable[[tuple[str, ...], Case], Found]


def cases(specs: Iterable[str], dtypes: Iterable[str], targets: Iterable[str], dims: Iterable[int]) -> Iterator[Case]:
    for head_dim, dtype, target, spec in product(dims, dtypes, targets, specs):
        if target in ARCHS[dtype]:
            yield Case(spec, dtype, (head_dim, head_dim), target)


def default_build() -> list[Case]:
    return list(cases(SPECS, ARCHS, DEFAULT_ARCHS, HEAD_DIMS))


def machine_codes(passes: tuple[str, ...], case: Case) -> Found:
    """Of the plans that a build chooses, and of the kernels that their launches need besides."""
    plans = settled(case, passes)
    helpers = other_kernels([item.plan for item in plans])
    images = {kernel_name(item.plan): item.compiled.code.image for item in plans}
    images |= {name: compiled(*item).code.image for name, item in helpers.items()}
    versions = frozenset(map(compiler_version, images.values()))
    return Found({name: fingerprint(image) for name, image in images.items()}, versions)


def texts(passes: tuple[str, ...], case: Case) -> Found:
    """Of all plans that a kernel may get, and of the kernels that launches of the first need besides."""
    kernels = candidates(passes, case)
    found = {kernel_name(item.first): "\f".join(render(plan).text for plan in item.plans()) for item in kernels}
    found |= {name: source.text for name, (source, _) in other_kernels([item.first for item in kernels]).items()}
    return Found({name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in found.items()})


def candidates(passes: tuple[str, ...], case: Case) -> list[Candidates]:
    wanted, packages = pass_names(passes), prepared(case, passes)
    return [item for package in packages for item in package.candidates if item.build.pass_name in wanted]


def choices(passes: tuple[str, ...], case: Case) -> Found:
    """What machine code depends on besides `texts`: the tiles that the table names."""
    known = ((kernel_name(item.first), item.known) for item in candidates(passes, case))
    return Found({name: plan.tiles for name, plan in known if plan is not None})


KINDS = {
    "machine code": Kind(GOLDEN / "machine_code.json", machine_codes),
    "text": Kind(GOLDEN / "kernel_texts.json", texts),
}


def found_in(kind: Kind, passes: tuple[str, ...], case: Case) -> Found:
    """Nothing of a spec that can't have kernels of 8 bits."""
    eight_bits = case.dtype == "e4m3"
    try:
        return kind.find(tuple(item for item in passes if not eight_bits or item != "backward"), case)
    except AttnccError as error:
        if eight_bits and WITHOUT_8_BITS.issuperset(item.code for item in error.diagnostics):
            return Found({})
        raise


def merged(several: Iterable[Found]) -> Found:
    """Helper kernels belong to many builds, under one name and with one text."""
    hashes: dict[str, str] = {}
    compilers: frozenset[str] = frozenset()
    for found in several:
        for name, value in found.hashes.items():
            if hashes.setdefault(name, value) != value:
                sys.exit(f"two kernels that differ have the name {name}")
        compilers |= found.compilers
    return Found(hashes, compilers)


def differences(before: Mapping[str, str], now: Mapping[str, str], whole: bool) -> Iterator[str]:
    """A line for each kernel that changed, came or, if this is the whole sweep, went."""
    yield from (f"changed  {name}" for name in sorted(now.keys() & before.keys()) if now[name] != before[name])
    yield from (f"new      {name}" for name in sorted(now.keys() - before.keys()))
    if whole:
        yield from (f"gone     {name}" for name in sorted(before.keys() - now.keys()))


def read(path: Path) -> Found:
    if not path.is_file():
        return Found({})
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Found(kept["kernels"], frozenset(kept["compilers"]))


def write(path: Path, found: Found) -> None:
    kept = {"compilers": sorted(found.compilers), "kernels": dict(sorted(found.hashes.items()))}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def stamp(passes: tuple[str, ...], case: Case) -> str:
    """Of what machine code depends on."""
    of_builds = (found_in(Kind(Path(), find), passes, case).hashes for find in (texts, choices))
    return parts.stamp(case.target, (word for hashes in of_builds for pair in hashes.items() for word in pair))


def done(kind: Kind, passes: tuple[str, ...], stamps: bool, case: Case, stamp_before: str) -> Done | None:
    """What is found in a build; None if `stamps` are asked for, and it can only be what was found before."""
    began = perf_counter()
    stamp_now = stamp(passes, case) if stamps else ""
    if stamps and stamp_now == stamp_before:
        return None
    found = found_in(kind, passes, case)
    return Done(stamp_now, round(perf_counter() - began, 1), [found.hashes, sorted(found.compilers)])


def sweep(kind: Kind, passes: tuple[str, ...], wanted: list[Case], how: parts.How) -> dict[Case, Found]:
    results = parts.sweep(partial(done, kind, passes, how.kept.path is not None), wanted, how)
    return {case: Found(hashes, frozenset(compilers)) for case, (hashes, compilers) in results.items()}


def check(before: Found, now: Found, whole: bool) -> bool:
    """Prints what differs. Whether nothing does."""
    if now.compilers != before.compilers:
        sys.exit(f"made by {sorted(now.compilers)}, the file by {sorted(before.compilers)}: these can't be compared")
    lines = list(differences(before.hashes, now.hashes, whole))
    print(*lines, f"{len(now.hashes)} kernels, {len(lines)} that differ", sep="\n")
    return not lines


def update(kind: Kind, now: Found, whole: bool) -> None:
    before = Found({}) if whole else read(kind.file)
    write(kind.file, Found(before.hashes | now.hashes, before.compilers | now.compilers))
    print(f"{len(now.hashes)} kernels written to {kind.file}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", action="store_const", dest="kind", const="text", default="machine code")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--passes", type=passes_of, default=tuple(PASSES))
    parser.add_argument("--specs", type=names, default=SPECS)
    parser.add_argument("--dtypes", type=names, default=tuple(ARCHS))
    parser.add_argument("--targets", type=names, default=DEFAULT_ARCHS)
    parser.add_argument("--head-dims", type=lambda text: tuple(map(int, names(text))), default=HEAD_DIMS)
    parts.add_options(parser)
    options = parser.parse_args()
    if options.keep is not None and options.kind == "text":
        parser.error("texts take five minutes, and aren't kept: leave --keep out")
    kind, how = KINDS[options.kind], parts.how(options)
    wanted = list(cases(options.specs, options.dtypes, options.targets, options.head_dims))
    found = sweep(kind, options.passes, wanted, how)
    now = merged(found.values())
    whole = set(options.passes) == set(PASSES) and set(found) == set(default_build())
    parts.say_what_is_left(how.kept, found, wanted)
    if not options.check:
        update(kind, now, whole)
    elif not check(read(kind.file), now, whole):
        sys.exit(1)


if __name__ == "__main__":
    main()
