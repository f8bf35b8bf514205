"""Lookups over a tile: few entries read directly, else min/max tables; 0 joins in where one may be out of range."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.mask.min_max_tables import MOST_ENTRIES, MinMaxTables
from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import MinMaxTable
from attncc.evaluate import evaluate
from attncc.ir import Load, show, walk

from ..tile_cases import box_of, environment, int_of, tables, tiles, variant_of


def loads(rule: object) -> set[str]:
    return {node.input for node in walk(rule) if isinstance(node, Load)}  # type: ignore[arg-type]


def test_few_entries_are_read_directly() -> None:
    variant = variant_of("input image: i32[_]", "keep if image[kv_idx // 64] == q_idx")
    box, canonical = box_of(variant, 64, 64)
    interval = box.interval(canonical.of(int_of(variant)))
    assert show(interval.low) == "min(image[(kv_first // 64)], image[(kv_last // 64)])"
    assert show(interval.high) == "max(image[(kv_first // 64)], image[(kv_last // 64)])"
    assert box.tables.used == {}


def test_what_does_not_vary_is_the_lookup_itself() -> None:
    variant = variant_of("input slope: i32[head]", "keep if slope[h] < q_idx")
    box, canonical = box_of(variant, 64, 64)
    assert show(box.interval(canonical.of(int_of(variant))).low) == "slope[h]"


def test_block_maps_read_the_blocks_that_a_tile_meets() -> None:
    variant = variant_of("input blocks: bool[head, _, _]", "keep if blocks[h, q_idx // 64, kv_idx // 64]")
    rules = analyse(variant, 128, 64)
    assert rules.min_max_tables == () and rules.decides and rules.undecided == ()
    random = np.random.default_rng(1)
    blocks = random.random((1, 5, 6)) < 0.5
    seen = environment(300, 350, {"blocks": blocks})
    for _rows, _keys, ends in tiles(300, 350, 128, 64):
        part = blocks[
            0, ends["q_first"] // 64 : ends["q_last"] // 64 + 1, ends["kv_first"] // 64 : ends["kv_last"] // 64 + 1
        ]
        assert evaluate(rules.any_kept, seen.with_symbols(**ends)) == part.any()
        assert evaluate(rules.all_kept, seen.with_symbols(**ends)) == (part.all() and part.size > 0)


@pytest.mark.parametrize(("packed", "start"), [(False, 0), (True, 0), (True, 37)])
def test_min_max_tables_bound_what_a_tile_reads(packed: bool, start: int) -> None:
    """On a packed axis the map holds the neighbours too: the start of the sequence is added to the index."""
    variant = variant_of("input doc: i32[batch, pos]", "keep if doc[b, q_pos] == 99 + q_len")
    box, canonical = box_of(variant, 32, 32)
    interval = box.interval(canonical.of(int_of(variant)))
    random = np.random.default_rng(2)
    for q_len, kv_len in ((90, 90), (40, 90), (90, 40)):
        axis = random.integers(1, 50, (1, start + kv_len + 30 * packed)).astype(np.int32)
        own = axis[:, start : start + kv_len]
        arrays = {"doc": own, **tables(box.tables, {"doc": axis})}
        seen = environment(q_len, kv_len, arrays, kv_start=start)
        for rows, _keys, ends in tiles(q_len, kv_len, 32, 32):
            positions = np.arange(rows.start, rows.stop) + kv_len - q_len
            values = np.where(positions >= 0, own[0, np.maximum(positions, 0)], 0)
            here = seen.with_symbols(**ends)
            assert evaluate(interval.low, here) <= values.min() and values.max() <= evaluate(interval.high, here)


def test_an_index_that_is_surely_in_range_needs_no_zero() -> None:
    variant = variant_of("input doc: i32[pos]", "keep if doc[kv_idx] == q_idx")
    box, canonical = box_of(variant, 32, 32)
    assert "if" not in show(box.interval(canonical.of(int_of(variant))).low)
    shifted = variant_of("input doc: i32[pos]", "keep if doc[kv_idx - 1] == q_idx")
    box, canonical = box_of(shifted, 32, 32)
    assert " if (kv_first >= 1) else " in show(box.interval(canonical.of(int_of(shifted))).low)


def test_start_symbols_follow_the_tag() -> None:
    for tag, index, start in (("pos", "kv_idx", "kv_start"), ("kv", "kv_idx", "kv_start"), ("q", "q_idx", "q_start")):
        variant = variant_of(f"input doc: i32[batch, {tag}]", f"keep if doc[b, {index}] == 3")
        assert start in show(analyse(variant, 64, 64).any_kept)
    alone = variant_of("input doc: i32[pos]", "keep if doc[kv_idx] == 3")
    assert "start" not in show(analyse(alone, 64, 64).any_kept)


@pytest.mark.parametrize(
    "keep", ["t[kv_idx * kv_idx] < 3", "bias[q_idx, 0] < 3", "cap[kv_idx] < 3.0", "t[t[kv_idx]] < 3"]
)
def test_what_no_table_covers_stays_partial_and_says_so(keep: str) -> None:
    variant = variant_of("input t: i32[pos]", "input bias: i32[_, 1]", "input cap: f32[pos]", f"keep if {keep}")
    rules = analyse(variant, 128, 128)
    assert not rules.decides and len(rules.undecided) == 1 and rules.undecided[0][0] == 0


def test_a_lookup_wholly_out_of_range_is_false() -> None:
    variant = variant_of("input tree: bool[q, _]", "keep if tree[q_idx, kv_idx]")
    rules = analyse(variant, 64, 64)
    seen = environment(128, 256, {"tree": np.ones((128, 70), bool)})
    found = [bool(evaluate(rules.any_kept, seen.with_symbols(**ends))) for _, _, ends in tiles(128, 256, 64, 64)]
    assert found == [True, True, False, False] * 2


@pytest.mark.parametrize(
    ("blocks", "block"),
    [((128, 128), 64), ((64, 64), 32), ((256, 128), 64), ((96, 96), 16), ((176, 176), 16), ((5, 7), 8)],
)
def test_blocks_suit_the_tiles(blocks: tuple[int, int], block: int) -> None:
    """Tiles begin where a block does, if possible, and never meet more blocks than are worth reading."""
    found = MinMaxTables.for_tiles(*blocks)
    assert found.block == block and max(blocks) // block + 2 <= MOST_ENTRIES
    assert found.read("doc") is found.read("doc") and found.read("doc") == MinMaxTable("doc", block)


def test_entries_far_apart_are_told_apart() -> None:
    """Top-k blocks: a tile between two selected blocks is EMPTY, though it lies between the least and the greatest."""
    variant = variant_of(
        "input chosen: i32[_, 2]", "keep if any(kv_idx // 64 == chosen[q_idx // 64, i] for i in range(2))"
    )
    rules = analyse(variant, 128, 64)
    chosen = np.array([[0, 7], [1, 7]], np.int32)
    seen = environment(128, 512, {"chosen": chosen})
    found = [bool(evaluate(rules.any_kept, seen.with_symbols(**ends))) for _, _, ends in tiles(128, 512, 128, 64)]
    assert found == [True, True, False, False, False, False, False, True]


def test_wide_documents_without_a_hint_are_not_said_to_wrap() -> None:
    """Their least and greatest entries decide tiles; it is the order that loop bounds lack."""
    for hint in ("", " nondecreasing"):
        variant = variant_of(f"input doc: i64[batch, pos]{hint}", "keep if doc[b, q_pos] == doc[b, kv_idx]")
        assert analyse(variant, 64, 64).undecided == ()
    wraps = variant_of("input doc: i64[batch, pos]", "input last: i64", "keep if doc[b, kv_idx] * 3 <= last * 5")
    assert analyse(wraps, 64, 64).undecided == ((0, "it may leave 64 bits"),)
