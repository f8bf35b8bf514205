"""The mask analysis against brute force, for as long as one likes.

    python -m tests.property.soundness [--cases 200000] [--seed 0] [--tiles 50] [--joined]

A case is a random predicate, random inputs (at times at the ends of their dtypes, packed, or declared nondecreasing,
truly or not) and a tile. Lengths and blocks are those that the library is tested on. Every case must be sound: no kept
pair dropped, nothing called full that isn't. Bands must be exact too. Some predicates are over rows and columns of
images: these must say the same in plain words, and their tiles are 2-D tiles and windows too. With --joined all are,
and most of their lines say more together than each alone: sums of distances, arcs of remainders, bits, distances in
steps, windows that are moved at a border. Exits with the first predicate that fails.

With --cases 1000000 --tiles 400 a million cases take five to fifteen minutes of a core.
"""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from dataclasses import replace

import numpy as np

from attncc.analysis.mask.normal_form import normal_form
from attncc.analysis.mask.plain import plain, plain_on
from attncc.evaluate import Array, Environment
from attncc.ir import Expr, Keep, Variant
from tests.library.test_tiles import BLOCKS, LENGTHS

from .grids import WIDTHS, OnGrid, environment, grid_variant, random_grid
from .masks import INPUTS, POWERS, Random, band, mask_of, pick, random_variant
from .test_analysis import TILES, Sizes, Trial

_GRIDS = 0.3  # of all predicates


def check_predicate(seed: int, index: int, tiles: int = TILES, *, joined: bool = False) -> int:
    """Draws a predicate and checks it on random tiles of one problem. How many distinct tiles these were, at most
    `tiles`; of an image all are checked.
    """
    random = np.random.default_rng((seed, index))
    if joined or random.random() < _GRIDS:
        return min(check_grid(random, f"seed {seed}, predicate {index}", joined=joined, tiles=tiles), tiles)
    sizes: Sizes = pick(random, tuple(LENGTHS)), pick(random, tuple(BLOCKS))
    name = f"seed {seed}, predicate {index}, {sizes}"
    kind = int(random.integers(8))
    if kind == 0:
        trial = Trial.make(name, random_band(random), random, sizes=sizes, tiles=tiles)
        trial.check_exact()
    elif kind == 1:
        Trial.make(name, random_variant(random), random, sizes=sizes, inner="q", tiles=tiles).check_rows_sound()
        trial = Trial.make(name, random_variant(random, hints=True), random, sizes=sizes, tiles=tiles, hints=True)
    else:
        where = {"packed": kind == 2, "extreme": kind == 3}
        trial = Trial.make(name, random_variant(random), random, sizes=sizes, tiles=tiles, **where)
    trial.check_sound()
    return int(np.unique(np.stack(list(trial.boxes.symbols().values())), axis=1).shape[1])


def check_grid(random: Random, name: str, *, joined: bool = False, tiles: int = TILES) -> int:
    """A predicate over rows and columns: in plain words, on 1-D tiles, and on 2-D tiles and windows of its 2-D grid."""
    width = int(pick(random, WIDTHS))
    variant, grid_2d = grid_variant(random, width, joined=joined), random_grid(random, width)
    name = f"{name}, {grid_2d}\n{variant.show_lowered()}"
    q_len, kv_len, block_q, block_kv = (
        int(size) for size in (*random.integers(1, 300, 2), *random.choice(POWERS[3:], 2))
    )
    known = environment(q_len, kv_len)
    check_forms(variant, known, name)
    sizes = (q_len, kv_len), (block_q, block_kv)
    trial = Trial.make(name, variant, random, sizes=sizes, tiles=tiles)
    trial.check_sound()
    if random.random() < 0.3:
        Trial.make(name, variant, random, sizes=sizes, inner="q", tiles=tiles).check_rows_sound()
    known = environment(*(width * int(size) for size in random.integers(1, 400 // width, 2)))
    found = OnGrid.of(plain_on(variant, width), grid_2d, known, random)
    assert (found.mask == mask_of(variant, known)).all(), name
    found.check_tiles_2d(name)
    found.check_windows(name)
    return tiles + found.kept.size


def check_forms(variant: Variant, known: Environment, name: str) -> None:
    """The mask in plain words, and in normal form, is the mask; what it implies holds for each kept pair."""
    mask = mask_of(variant, known)
    assert (mask_of(plain(variant), known) == mask).all(), name
    form = normal_form(variant, 1, 1)

    def said(*parts: Expr) -> Array:
        return mask_of(replace(variant, statements=tuple(map(Keep, parts))), known)

    assert (said(form.kept) == mask).all(), name
    assert said(*form.implied.joint, *form.implied.single)[mask].all(), name


def random_band(random: Random) -> Variant:
    return Variant("band", inputs=INPUTS, statements=(Keep(band(random)),))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiles", type=int, default=TILES, help="of a predicate, at most")
    parser.add_argument("--joined", action="store_true", help="images whose lines say more together")
    options = parser.parse_args()
    cases = predicates = 0
    start = time.monotonic()
    with suppress(KeyboardInterrupt):  # and says how far it came
        while cases < options.cases:
            cases += check_predicate(options.seed, predicates, options.tiles, joined=options.joined)
            predicates += 1
            if predicates % 1000 == 0:
                print(f"{cases:,} cases, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{cases:,} cases of {predicates:,} predicates, none unsound; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
