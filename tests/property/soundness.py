"""The mask analysis against brute force, for as long as one likes.

    python -m tests.property.soundness [--cases 200000] [--seed 0]

A case is a random predicate, random inputs (at times at the ends of their dtypes, packed, or declared nondecreasing,
truly or not) and a tile. Lengths and blocks are those that the library is tested on. Every case must be sound: no kept
pair dropped, nothing called full that isn't. Bands must be exact too. Exits with the first predicate that fails.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from attncc.ir import Keep, Variant
from tests.library.test_tiles import BLOCKS, LENGTHS

from .masks import INPUTS, Random, band, pick, random_variant
from .test_analysis import Sizes, Trial


def check_predicate(seed: int, index: int) -> int:
    """Draws a predicate and checks it on random tiles of one problem. How many distinct tiles these were."""
    random = np.random.default_rng((seed, index))
    sizes: Sizes = pick(random, tuple(LENGTHS)), pick(random, tuple(BLOCKS))
    name = f"seed {seed}, predicate {index}, {sizes}"
    kind = int(random.integers(8))
    if kind == 0:
        trial = Trial.make(name, random_band(random), random, sizes=sizes)
        trial.check_exact()
    elif kind == 1:
        Trial.make(name, random_variant(random), random, sizes=sizes, inner="q").check_rows_sound()
        trial = Trial.make(name, random_variant(random, claims=True), random, sizes=sizes, claims=True)
    else:
        trial = Trial.make(name, random_variant(random), random, sizes=sizes, packed=kind == 2, extreme=kind == 3)
    trial.check_sound()
    return int(np.unique(np.stack(list(trial.boxes.symbols().values())), axis=1).shape[1])


def random_band(random: Random) -> Variant:
    return Variant("band", inputs=INPUTS, statements=(Keep(band(random)),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cases = predicates = 0
    start = time.monotonic()
    while cases < options.cases:
        cases += check_predicate(options.seed, predicates)
        predicates += 1
    print(f"{cases:,} cases of {predicates:,} predicates, none unsound; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
