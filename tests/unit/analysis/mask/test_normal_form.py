"""One normal form serves tiles of all sizes, and one analysis the tiles of a large mask."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.algebra.algebra import Algebra
from attncc.analysis.algebra.canonical import Canonical
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.normal_form import is_large, normal_form
from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import TileKind
from attncc.api import ParsedVariant
from attncc.ir import Type, Variant, walk
from attncc.library import find, names
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.large_files import FILES, many
from tests.unit.analysis.tile_cases import variant_of

LINES = [
    ["keep if q_pos >= kv_idx"],
    ["keep if abs(q_idx // 64 - kv_idx // 64) <= 3 and abs(q_idx % 64 - kv_idx % 64) <= 3"],
    ["input doc: i32[batch, pos]", "keep if doc[b, q_pos] == doc[b, kv_idx] or kv_idx * q_idx < 9"],
    ["input n: i64", "let d = q_pos - kv_idx", "keep if 0 <= d + n and max(d, -d) < 128"],
]


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("grid", [None, Grid2D(64, 8, 8)])
@pytest.mark.parametrize("near", [False, True])
def test_the_form_is_that_of_each_size(lines: list[str], grid: Grid2D | None, near: bool) -> None:
    variant = variant_of(*lines)
    for blocks in ((64, 64), (16, 256), (128, 96)):
        algebra = Algebra(variant, *blocks, near=near, grid_2d=grid)
        canonical = Canonical(algebra, variant.lets, grid)
        keeps = tuple(canonical.of(keep.condition) for keep in variant.keeps)
        form = normal_form(variant, *blocks, near=near, grid_2d=grid)
        assert form.keeps == keeps and form.kept == algebra.both(*keeps)
        ints = [node for node in walk(form.kept) if node.type is Type.INT]
        assert [form.algebra.range(node) for node in ints] == [algebra.range(algebra.leaf(node)) for node in ints]
        ends = ("q_last", "q_first") if grid is None else ("q_row_last", "q_row_first")
        height = form.algebra.range(form.algebra.sub(*map(form.algebra.symbol, ends))).high + 1
        assert height == (blocks[0] if grid is None else blocks[0] // 8)  # the ends of tiles are of this size alone


@pytest.mark.parametrize("name", [name for name in names() if name != "masks"])
def test_masks_of_the_library_are_not_large(name: str) -> None:
    path = find(name)
    assert path is not None
    assert not any(map(is_large, load(SourceFile(str(path), path.read_text(encoding="utf-8"))).variants))


def large() -> Variant:
    found = variant_of(many("keep if q_pos + @ * 7 >= kv_idx or kv_idx % 16 == @ or q_idx < kv_idx - 90 - @", 60))
    assert is_large(found)
    return found


def test_rules_of_a_large_mask_serve_all_tiles() -> None:
    variant = large()
    assert analyse(variant, 64, 128) is analyse(variant, 256, 16)
    assert analyse(variant, 64, 128) == analyse(variant, 256, 256)
    assert analyse(variant, 64, 454) == analyse(variant, 512, 512)


@pytest.mark.parametrize(("q_len", "kv_len"), [(150, 150), (40, 200), (200, 90)])
@pytest.mark.parametrize("blocks", [(16, 16), (64, 32)])
@pytest.mark.parametrize("variant", [large(), variant_of(FILES["pixels"].partition("{")[2].rpartition("}")[0])])
def test_rules_of_a_large_mask_are_sound(variant: Variant, blocks: tuple[int, int], q_len: int, kv_len: int) -> None:
    parsed = ParsedVariant(variant)
    kept, kinds = parsed.mask(q_len, kv_len)[0, 0], parsed.tile_map(q_len, kv_len, *blocks)[0, 0]
    for i, j in np.ndindex(*kinds.shape):
        tile = kept[i * blocks[0] : (i + 1) * blocks[0], j * blocks[1] : (j + 1) * blocks[1]]
        assert kinds[i, j] == TileKind.PARTIAL or (not tile.any() if kinds[i, j] == TileKind.EMPTY else tile.all())
    assert q_len != 150 or {TileKind.PARTIAL} < set(kinds.flat)  # they tell something
