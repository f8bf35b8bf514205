from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc import reference
from attncc.analysis.cost.cost import kept_pairs
from attncc.analysis.mask import grid
from attncc.analysis.mask.grid import TileGrid, rule_tables, tile_grid, uniform_grid
from attncc.analysis.rules import MinMaxTable, TileKind
from attncc.ir import const, symbol
from attncc.problem import Problem, Signature, bind_arrays
from tests.plans import (
    CAUSAL,
    CAUSAL_RULES,
    DOCUMENTS,
    HEADWISE,
    HEADWISE_RULES,
    WINDOW,
    WINDOW_RULES,
    arguments,
    document_rules,
    qkv,
    rules,
)

EMPTY, PARTIAL, FULL = TileKind


def grid_of(variant, own_rules, lengths, blocks, **call: Any) -> TileGrid:
    q, k, v = qkv(lengths=lengths)
    bound = bind_arrays(Signature(variant), q, k, v, **call)
    environment = bound.environment(next(bound.problem.sequences()), np.float64)
    maps = rule_tables(own_rules, variant, bound.problem, bound.inputs)
    inputs = {**environment.inputs, **maps}
    seen = type(environment)(environment.symbols, inputs, environment.lets, np.float64)
    return tile_grid(own_rules, seen, *blocks)


def kinds_by_force(mask, blocks) -> np.ndarray:
    """The exact kinds of the tiles of one plane [q_len, kv_len]."""
    rows, columns = (range(0, size, block) for size, block in zip(mask.shape, blocks, strict=True))
    tiles = [[mask[i : i + blocks[0], j : j + blocks[1]] for j in columns] for i in rows]
    return np.array([[EMPTY if not t.any() else FULL if t.all() else PARTIAL for t in row] for row in tiles])


@pytest.mark.parametrize(
    ("variant", "own_rules"), [(CAUSAL, CAUSAL_RULES), (WINDOW, WINDOW_RULES)], ids=["causal", "window"]
)
@pytest.mark.parametrize("lengths", [(64, 64), (45, 70), (70, 45), (1, 100), (100, 1)])
@pytest.mark.parametrize("blocks", [(16, 16), (32, 8), (128, 128)])
def test_kinds_by_the_bounds(variant, own_rules, lengths, blocks) -> None:
    grid = grid_of(variant, own_rules, lengths, blocks)
    expected = kinds_by_force(reference.mask(variant, *lengths)[0, 0], blocks)
    assert grid.kinds.shape == (1, *expected.shape)
    assert ((grid.kinds[0] == expected) | (grid.kinds[0] == PARTIAL)).all()
    assert ((grid.kinds[0] == EMPTY) == (expected == EMPTY)).all()


def test_kinds_by_head() -> None:
    grid = grid_of(HEADWISE, HEADWISE_RULES, (96, 96), (32, 16))
    mask = reference.mask(HEADWISE, 96, 96, num_heads=4)[0]
    np.testing.assert_array_equal(grid.kinds, [kinds_by_force(plane, (32, 16)) for plane in mask])
    assert grid.count(EMPTY, 4) == (grid.kinds == EMPTY).sum()


def test_kinds_by_min_max_tables() -> None:
    doc = arguments(DOCUMENTS, 2, 4, 200)["doc"]
    grid = grid_of(DOCUMENTS, document_rules(32), (200, 200), (32, 32), doc=doc)
    expected = kinds_by_force(reference.mask(DOCUMENTS, 200, 200, doc=doc)[0, 0], (32, 32))
    np.testing.assert_array_equal(grid.kinds[0] == EMPTY, expected == EMPTY)


def test_single_tiles_are_asked_only_if_told_to() -> None:
    own_rules = rules(any_kept=const(False), bounds_suffice=False)
    q, k, v = qkv()
    bound = bind_arrays(Signature(CAUSAL), q, k, v)
    environment = bound.environment(next(bound.problem.sequences()), np.float64)
    assert (tile_grid(own_rules, environment, 16, 16).kinds == EMPTY).all()
    assert (tile_grid(own_rules, environment, 16, 16, single_tiles=False).kinds == PARTIAL).all()


def test_tiles_of_ragged_lengths() -> None:
    grid = uniform_grid(FULL, 45, 70, 32, 16)
    assert grid.kinds.shape == (1, 2, 5)
    assert grid.q_sizes.tolist() == [32, 13]
    assert grid.kv_sizes.tolist() == [16, 16, 16, 16, 6]
    assert (grid.q_rows(1), grid.kv_rows(4)) == (slice(32, 45), slice(64, 70))
    assert grid.count(FULL, 8) == 80
    assert uniform_grid(FULL, 0, 70, 32, 16).kinds.size == 0


TABLES = rules(min_max_tables=(MinMaxTable("doc", 4),), kv_end=symbol("kv_len"))


def test_min_max_tables() -> None:
    doc = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]], np.int32)
    maps = rule_tables(TABLES, DOCUMENTS, Problem(2, 1, 1, 6, 6, 16, 16), {"doc": doc})
    np.testing.assert_array_equal(maps["doc__min"], [[1, 5], [2, 5]])
    np.testing.assert_array_equal(maps["doc__max"], [[4, 9], [6, 8]])
    packed = rule_tables(TABLES, DOCUMENTS, Problem(3, 1, 1, 6, 6, 16, 16, packed=True), {"doc": doc[0]})
    np.testing.assert_array_equal(packed["doc__min"], [[1, 5]] * 3)
    nothing = rule_tables(TABLES, DOCUMENTS, Problem(2, 1, 1, 0, 0, 16, 16), {"doc": doc[:, :0]})
    assert nothing["doc__max"].shape == (2, 0)


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("lengths", [(64, 64), (45, 70), (70, 45), (0, 10), (10, 0)])
@pytest.mark.parametrize(
    ("variant", "own_rules"),
    [(CAUSAL, CAUSAL_RULES), (WINDOW, WINDOW_RULES), (HEADWISE, HEADWISE_RULES), (CAUSAL, rules())],
    ids=["causal", "window", "headwise", "undecided"],
)
def test_pieces_are_the_whole_grid(variant, own_rules, lengths, rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "ROWS", rows)
    q, k, v = qkv(lengths=lengths)
    bound = bind_arrays(Signature(variant), q, k, v)
    seen = bound.environment(next(bound.problem.sequences()), np.float64)
    for blocks in ((16, 8), (8, 16)):
        whole, parts = tile_grid(own_rules, seen, *blocks), list(grid.pieces(own_rules, seen, *blocks))
        kinds = np.zeros((4, *whole.kinds.shape[1:]), np.uint8)
        for part in parts:
            down, across = part.tiles
            kinds[:, down.start : down.stop, across.start : across.stop] = part.kinds
        np.testing.assert_array_equal(kinds, np.broadcast_to(whole.kinds, kinds.shape))
        assert grid.tally(parts, 4) == grid.tally([whole], 4)
        kept = sum(kept_pairs(variant, part, seen, 4) for part in parts)
        assert kept == kept_pairs(variant, whole, seen, 4)


def test_a_tally_by_hand() -> None:
    kinds = np.array([[[EMPTY, PARTIAL, FULL], [EMPTY, FULL, EMPTY]]], np.uint8)
    counted = grid.tally([TileGrid(kinds, 12, 40, 8, 16)], 2)
    assert counted.kinds == {EMPTY: 6, PARTIAL: 2, FULL: 4}
    assert (counted.live_keys, counted.live_rows, counted.used_keys) == (2 * 40, 2 * 20, 2 * 24)
    assert (counted.used_rows, counted.used_q_tiles) == (2 * 12, 2 * 2)
    without = grid.tally([TileGrid(kinds[:, :1], 12, 40, 8, 16)], 2)  # the last rows see nothing
    assert (without.used_rows, without.used_q_tiles) == (2 * 8, 2)
    one_kind = uniform_grid(FULL, 12, 40, 8, 16)
    assert one_kind.is_uniform
    assert grid.tally([one_kind], 2) == grid.tally([TileGrid(np.full((1, 2, 3), FULL), 12, 40, 8, 16)], 2)
