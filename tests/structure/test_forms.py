"""The same mask in other words has the same tiles: those that its structure asks for."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.rules import TileKind
from attncc.analysis.tiles_2d.tally_2d import tally_2d
from attncc.evaluate import Environment, evaluate
from attncc.kernels.candidates import Candidates, make_candidates, make_tiles_2d
from attncc.schedule.plan import Build
from tests.unit.analysis.tile_cases import environment

from .forms import EIGHT
from .grid import variant_of
from .more_forms import SIX

GRIDS = EIGHT | SIX
ROWS = 48  # of the image in these tests
HOPPER, PORTABLE, BACKWARD = ("forward", "sm_90a", 128), ("forward", "sm_80", 64), ("backward", "sm_90a", 128)
WORDS = [(name, form) for name, grid in GRIDS.items() for form in grid.forms]


@pytest.mark.parametrize(("name", "form"), WORDS)
def test_each_form_says_the_same(name: str, form: str) -> None:
    grid = GRIDS[name]
    variant, length = grid.variant(form), grid.width * ROWS
    rows, keys = np.random.default_rng(3).choice(length, 32, replace=False)[:, None], np.arange(length)
    seen = Environment(
        {"q_idx": rows, "q_pos": rows, "kv_idx": keys, "q_len": length, "kv_len": length, "q_offset": 0},
        {},
        variant.lets,
    )
    kept = np.logical_and.reduce(
        [np.broadcast_to(evaluate(keep.condition, seen), (32, length)) for keep in variant.keeps]
    )
    assert (kept == grid.kept(rows, keys)).all()


# What the tiles of each mask are of: the columns of the grid, those of tiles of q and of kv, windows with a W.
WANTED = {
    HOPPER: {
        "square": "64 8 20W", "rectangle": "48 8 20W", "natten": "64 8 20W", "above": "64 8 8", "dilated": "",
        "tiled": "64 8 8", "shifted": "64 8 20W", "video": "64 8 8", "stepped": "128 8 8", "bits": "64 8 8",
        "diamond": "64 8 8", "lozenge": "64 8 8", "disc": "64 8 8", "torus": "64 8 8",
    },
    PORTABLE: {
        "square": "64 8 8", "rectangle": "48 8 8", "natten": "64 8 8", "above": "64 8 8", "dilated": "128 8 8",
        "tiled": "64 8 8", "shifted": "64 8 8", "video": "64 8 8", "stepped": "128 8 8", "bits": "64 8 8",
        "diamond": "64 8 8", "lozenge": "64 8 8", "disc": "64 8 8", "torus": "64 8 8",
    },
    BACKWARD: {
        "square": "", "rectangle": "", "natten": "64 8 8", "above": "", "dilated": "128 8 8", "tiled": "64 8 8",
        "shifted": "", "video": "", "stepped": "128 8 8", "bits": "64 8 8", "diamond": "", "lozenge": "64 8 8",
        "disc": "", "torus": "",
    },
}  # fmt: skip

# Their tests of a pair take more instructions, so on Hopper they get tiles that leave more registers: larger ones for a
# warpgroup, which 2-D tiles serve less.
LONGER = {("diamond", "four sides"), ("bits", "less than a block of rows"), ("stepped", "rows that are listed")}


@pytest.mark.parametrize(("name", "form"), [words for words in WORDS if words not in LONGER])
def test_each_form_has_the_same_tiles(name: str, form: str) -> None:
    """Those of its 2-D grid, as many of them live; the library's form of a neighbourhood is one of `natten`."""
    assert tiles(name, form, HOPPER) == tiles(name, next(iter(GRIDS[name].forms)), HOPPER)
    assert tiles(name, form, HOPPER)[0] == WANTED[HOPPER][name]


@pytest.mark.slow
@pytest.mark.parametrize("build", [PORTABLE, BACKWARD])
@pytest.mark.parametrize("name", GRIDS)
def test_so_have_other_kernels(name: str, build: tuple[str, str, int]) -> None:
    first, *others = GRIDS[name].forms
    for form in others[::3]:
        assert tiles(name, form, build) == tiles(name, first, build), form
    assert tiles(name, first, build)[0] == WANTED[build][name]


@pytest.mark.parametrize(("name", "form"), sorted(LONGER))
def test_so_have_forms_with_longer_tests_where_they_cost_nothing(name: str, form: str) -> None:
    """Portable kernels test pairs in masked tiles alone, when registers are free."""
    assert tiles(name, form, PORTABLE) == tiles(name, next(iter(GRIDS[name].forms)), PORTABLE)


def test_a_square_has_the_tiles_of_the_library() -> None:
    """Its border is cut off, where `neighborhood` moves it inwards: on this image that meets the same windows."""
    assert tiles("square", "two lines", HOPPER) == tiles("natten", "neighborhood", HOPPER)


@cache
def tiles(name: str, form: str, build: tuple[str, str, int]) -> tuple[str, dict[TileKind, int]]:
    """The 2-D grid of the tiles that a kernel goes over, in words, and how many there are of each kind."""
    found = in_tiles_2d(GRIDS[name].forms[form], build)
    if found is None:
        return "", {}
    plan, length = found.first, GRIDS[name].width * ROWS
    grid_2d = plan.grid_2d
    assert grid_2d is not None
    length -= length % grid_2d.width
    seen, blocks = environment(length, length, h=0), (plan.block_q, plan.block_kv)
    # A tile of keys may have more of them where tests of pairs leave it registers: pairs are counted.
    tally = tally_2d(plan.rules, seen, 1, blocks, grid_2d)
    window = "W" if grid_2d.window else ""
    pairs = {kind: count * plan.block_q * plan.block_kv for kind, count in tally.kinds.items()}
    return f"{grid_2d.width} {grid_2d.q_columns} {grid_2d.kv_columns}{window}", pairs


def in_tiles_2d(text: str, build: tuple[str, str, int]) -> Candidates | None:
    pass_name, target, head_dim = build
    return make_tiles_2d(make_candidates(variant_of(text), Build(pass_name, target, "bf16", head_dim, head_dim)))


@pytest.mark.parametrize(
    "text",
    [
        # Other widths on the two sides.
        "keep if abs(q_idx // 64 - kv_idx // 48) <= 6 and abs(q_idx % 64 - kv_idx % 48) <= 6",
        "keep if q_idx // 64 == kv_idx // 32",
        # Rows alone: 1-D tiles hold them. Or all columns, or so many that little is left out.
        "keep if abs(q_idx // 64 - kv_idx // 64) <= 6",
        "keep if abs(q_idx // 64 - kv_idx // 64) <= 6 and abs(q_idx % 64 - kv_idx % 64) <= 63",
        "keep if abs(q_idx // 64 - kv_idx // 64) <= 6 and abs(q_idx % 64 - kv_idx % 64) <= 50",
        # A band of positions, in words of rows; and causal blocks.
        "keep if abs(q_idx - kv_idx) <= 6 * 64 + 6",
        "keep if q_idx // 64 * 64 - 384 <= kv_idx <= q_idx // 64 * 64 + 384",
        "keep if q_idx // 64 >= kv_idx // 64",
        # A width that each call chooses, and rows that inputs tell.
        "input w: i32\nkeep if abs(q_idx // w - kv_idx // w) <= 6 and abs(q_idx % w - kv_idx % w) <= 6",
        "input y: i32[pos]\nkeep if abs(y[q_pos] - y[kv_idx]) <= 6 and abs(q_idx % 64 - kv_idx % 64) <= 6",
        # Rows wider than any 2-D grid.
        "keep if abs(q_idx // 5000 - kv_idx // 5000) <= 6 and abs(q_idx % 5000 - kv_idx % 5000) <= 6",
    ],
)
@pytest.mark.parametrize("build", [HOPPER, PORTABLE])
def test_what_looks_alike_has_tiles_1d(text: str, build: tuple[str, str, int]) -> None:
    assert in_tiles_2d(text, build) is None


def test_the_grid_of_a_width_that_no_fragment_divides() -> None:
    """Of 60 columns, 2-D tiles are 4 wide."""
    found = in_tiles_2d("keep if abs(q_idx // 60 - kv_idx // 60) <= 6 and abs(q_idx % 60 - kv_idx % 60) <= 6", PORTABLE)
    assert found is not None and found.first.grid_2d == Grid2D(60, 4, 4)
