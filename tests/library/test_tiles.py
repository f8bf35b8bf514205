"""Every spec's tile rules against brute force: never unsound, and how many of the decidable tiles they decide.

A tile is decidable if brute force finds none or all of its pairs kept; it is decided if the rules say so too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from attncc.analysis.mask.grid import rule_tables, tile_grid
from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import TileKind, TileRules
from attncc.evaluate import Array, Environment
from attncc.ir import needs, reads
from attncc.problem.masks import BoundMask, bind_mask
from tests.library.cases import Case
from tests.library.library import CASES

LENGTHS = [
    (1, 1), (1, 1000), (97, 97), (113, 203), (200, 100), (239, 1), (250, 180), (799, 3), (1023, 1024), (333, 444),
]  # fmt: skip
BLOCKS = [(16, 16), (32, 32), (64, 64), (96, 96), (128, 128), (176, 176), (256, 128), (64, 128)]

# The share of decidable tiles that the rules decide at least, where that isn't every one. What they miss:
DECIDED = {
    # a tile over several documents or windows: bounds of starts and ends forget which start goes with which end, and
    # tables of blocks hold neighbors of the tile too
    "documents": 0.995, "alibi_documents": 0.995, "documents_bidirectional": 0.985, "documents_by_start": 0.99,
    "documents_prefix_lm": 0.985, "shared_prefix": 0.965, "token_window": 0.975, "selected_attention": 0.96,
    "global_sliding_window": 0.985, "key_threshold": 0.99, "jetspec_tree": 0.985,
    # a tile over the end of an image row, a group or a frame: remainders begin anew, and all of them seem possible
    "natten": 0.99, "tiled_natten": 0.945, "morton_natten": 0.875, "sta_2d": 0.99, "sta_3d": 0.95, "batchify": 0.98,
    # a tile of the tree whose nodes happen to see none of each other: the bits of a word aren't looked at
    "speculative_tree": 0.985,
    # a tile that one condition fills in part and another one fills up
    "block_diffusion": 0.995, "svg_spatial": 0.995, "svg_temporal": 0.97, "vsa": 0.99, "flamingo": 0.995,
}  # fmt: skip

SIZES = {"batch": None, "num_heads": None, "num_kv_heads": None, "head_dim": None}


@dataclass(frozen=True)
class Counts:
    decidable: int
    decided: int


def brute_force(kept: Array, block_q: int, block_kv: int) -> Array:
    """The kind of every tile of a mask [..., q_len, kv_len]: uint8 [..., q tiles, kv tiles]."""
    rows, columns = (range(0, kept.shape[axis], block) for axis, block in ((-2, block_q), (-1, block_kv)))
    sums = np.add.reduceat(np.add.reduceat(kept, rows, axis=-2, dtype=np.int64), columns, axis=-1)
    heights, widths = (
        np.minimum(block, length - np.asarray(firsts))
        for block, length, firsts in ((block_q, kept.shape[-2], rows), (block_kv, kept.shape[-1], columns))
    )
    full = sums == heights[:, None] * widths
    return np.where(sums == 0, TileKind.EMPTY, np.where(full, TileKind.FULL, TileKind.PARTIAL)).astype(np.uint8)


@cache
def rules_of(case: Case, block_q: int, block_kv: int) -> TileRules:
    return analyse(case.variant(case.consts[-1]).variant, block_q, block_kv)


def bound_mask(case: Case, q_len: int, kv_len: int, inputs: dict[str, Array]) -> tuple[BoundMask, list[Environment]]:
    bound = bind_mask(case.variant(case.consts[-1]).variant, q_len, kv_len, inputs, SIZES)
    return bound, list(bound.environments())


def known(case: Case, bound: BoundMask, environments: list[Environment], block_q: int, block_kv: int) -> Array:
    """What `tile_map` gives, with the rules made once for all lengths, and the call bound once for all blocks."""
    rules = rules_of(case, block_q, block_kv)
    maps = rule_tables(rules, bound.variant, bound.problem, bound.inputs)
    grids = []
    for seen in environments:
        with_maps = Environment(seen.symbols, {**seen.inputs, **maps}, seen.lets, seen.float_dtype)
        grids.append(tile_grid(rules, with_maps, block_q, block_kv).kinds)
    return np.stack(grids)


def distinct() -> list[Case]:
    """One case for each mask: several specs are causal, or keep everything."""
    found = {}
    for case in CASES:
        variant = case.variant(case.consts[-1]).variant
        conditions = [keep.condition for keep in variant.keeps]
        read = reads(variant, *conditions)
        inputs = tuple(item for item in variant.inputs if item.name in read)
        found.setdefault((inputs, variant.keeps, needs(variant, *conditions)), case)
    return list(found.values())


@cache
def judged(case: Case) -> Counts:
    """Over all lengths and blocks. Fails where a rule is unsound."""
    consts, decidable, decided = case.consts[-1], 0, 0
    for q_len, kv_len in LENGTHS:
        inputs, _ = case.draw(np.random.default_rng([q_len, kv_len]), q_len, kv_len, **consts)
        kept = case.variant(consts).mask(q_len, kv_len, **inputs)
        bound = bound_mask(case, q_len, kv_len, inputs)
        for block_q, block_kv in BLOCKS:
            truth = brute_force(kept, block_q, block_kv)
            found = known(case, *bound, block_q, block_kv)
            agreed = found == truth
            unsound = np.argwhere(~agreed & (found != TileKind.PARTIAL))
            assert not len(unsound), f"{q_len}x{kv_len} in tiles {block_q}x{block_kv}: {unsound[:5].tolist()}"
            matters = truth != TileKind.PARTIAL
            decidable += np.count_nonzero(matters)
            decided += np.count_nonzero(matters & agreed)
    return Counts(decidable, decided)


@pytest.mark.parametrize(
    "case", [*distinct()[::2], *(pytest.param(case, marks=pytest.mark.slow) for case in distinct()[1::2])], ids=str
)
def test_rules_are_sound_and_decide(case: Case) -> None:
    counts = judged(case)
    assert counts.decidable > 100
    assert counts.decided >= DECIDED.get(case.spec, 1) * counts.decidable, f"{counts.decided / counts.decidable:.3%}"


@pytest.mark.slow
def test_nearly_every_tile_of_the_library_is_decided() -> None:
    every = [judged(case) for case in distinct()]
    assert sum(counts.decided for counts in every) >= 0.99 * sum(counts.decidable for counts in every)


def test_brute_force_knows_the_kinds_of_ragged_tiles() -> None:
    kept = np.array([[1, 1, 0, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 1, 0]], bool)
    assert brute_force(kept, 2, 2).tolist() == [
        [TileKind.FULL, TileKind.PARTIAL, TileKind.EMPTY],
        [TileKind.EMPTY, TileKind.FULL, TileKind.EMPTY],
    ]


@pytest.mark.parametrize("case", distinct()[::5], ids=str)
def test_tile_map_is_what_was_judged(case: Case) -> None:
    inputs, _ = case.draw(np.random.default_rng(0), 113, 203, **case.consts[-1])
    found = case.variant(case.consts[-1]).tile_map(113, 203, 32, 64, **inputs)
    np.testing.assert_array_equal(found, known(case, *bound_mask(case, 113, 203, inputs), 32, 64), strict=True)
