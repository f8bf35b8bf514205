"""`analyse`: what it claims of whole masks, hostile ones, and how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from attncc import resources
from attncc.analysis.mask.grid import tile_grid
from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import TileKind
from attncc.evaluate import Environment
from attncc.ir import Load, Variant, reads, walk
from attncc.semantics.load import load
from attncc.source import SourceFile

from ..tile_cases import environment, mask_of, tables, tiles, variant_of

SPECS = sorted(path.name for path in resources.folder("specs").iterdir() if path.name.endswith(".attn"))


def best_of(times: int, work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of some runs: other work on the machine makes a run longer, never shorter."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def seen_by(variant: Variant, blocks: tuple[int, int], seen: Environment) -> Environment:
    """With the min/max tables that the variant's rules read."""
    from attncc.analysis.mask.min_max_tables import MinMaxTables

    made = MinMaxTables({table.input: table for table in analyse(variant, *blocks).min_max_tables}, 0)
    return Environment(seen.symbols, {**seen.inputs, **tables(made, seen.inputs)})


@pytest.mark.parametrize(
    ("lines", "proven"),
    [
        ((), True),
        (("keep if q_idx >= kv_idx",), True),
        (("keep if q_pos >= kv_idx",), False),  # the first rows, where there are more queries than keys
        (("keep if kv_idx < 4 or q_pos >= kv_idx",), True),
        (("const n: int = 0", "keep if kv_idx < n or q_pos >= kv_idx"), False),
        (
            (
                "input n: i32",
                "keep if kv_idx < n or q_pos >= kv_idx",
            ),
            False,
        ),
        (
            (
                "input n: i32",
                "keep if kv_idx < max(n, 1)",
            ),
            True,
        ),
        (("keep if q_idx // 64 >= kv_idx // 64",), True),
        (("keep if kv_idx > 0",), False),
        (("keep if kv_idx >= 0",), True),
        (("keep if kv_idx <= 5 if h < 2 else kv_idx <= q_idx",), True),
    ],
)
def test_rows_that_are_never_empty(lines: tuple[str, ...], proven: bool) -> None:
    assert analyse(variant_of(*lines), 64, 64).rows_never_empty is proven


def test_a_mask_without_lines_is_full() -> None:
    rules = analyse(variant_of(), 64, 64)
    assert rules.bounds_suffice and rules.decides and rules.undecided == ()
    assert tile_grid(rules, environment(100, 100), 64, 64).count(TileKind.FULL, 1) == 4


def check_grid(variant: Variant, seen: Environment, blocks: tuple[int, int]) -> tuple[int, int]:
    """The grid against brute force: sound. Decidable tiles, and those of them that are decided."""
    q_len, kv_len = (int(seen.symbols[name]) for name in ("q_len", "kv_len"))
    mask = mask_of(variant, seen)
    grid = tile_grid(analyse(variant, *blocks), seen_by(variant, blocks, seen), *blocks).kinds[0]
    decidable = decided = 0
    for rows, keys, ends in tiles(q_len, kv_len, *blocks):
        part, kind = mask[rows, keys], grid[ends["q_first"] // blocks[0], ends["kv_first"] // blocks[1]]
        truth = TileKind.FULL if part.all() else TileKind.PARTIAL if part.any() else TileKind.EMPTY
        assert kind in (truth, TileKind.PARTIAL), (ends, kind)
        decidable += truth != TileKind.PARTIAL
        decided += truth == kind != TileKind.PARTIAL
    return decidable, decided


@pytest.mark.parametrize(
    "text",
    [
        "q_idx < 0",  # nothing
        "q_pos >= kv_idx and q_pos < kv_idx",
        "q_idx == 77 and kv_idx == 200",  # one pair
        "(q_idx // 32 + kv_idx // 32) % 2 == 0",  # a chess board of tiles
        "(q_idx + kv_idx) % 2 == 0",  # a chess board of pairs
        "kv_idx == kv_len - 1 - q_idx",
        "q_pos - kv_idx < -1000 or q_pos - kv_idx > 1000",
    ],
)
def test_hostile_masks(text: str) -> None:
    for q_len, kv_len in ((300, 250), (1, 300), (300, 1)):
        decidable, decided = check_grid(variant_of(f"keep if {text}"), environment(q_len, kv_len), (32, 32))
        assert decided == decidable


def test_a_chess_board_of_tiles_that_kernels_do_not_lay_is_partial_and_sound() -> None:
    check_grid(variant_of("keep if (q_idx // 32 + kv_idx // 32) % 2 == 0"), environment(300, 250), (48, 16))


def test_documents_are_skipped() -> None:
    variant = variant_of(
        "input doc: i32[batch, pos]", "keep if q_pos >= kv_idx", "keep if doc[b, q_pos] == doc[b, kv_idx]"
    )
    doc = np.repeat(np.arange(8), [100, 3, 250, 60, 1, 90, 300, 220])[None].astype(np.int32)
    decidable, decided = check_grid(variant, environment(1024, 1024, {"doc": doc}), (64, 64))
    assert decided == decidable > 150


def test_small_tiles_whose_tests_would_read_very_much_have_the_rules_of_larger_ones() -> None:
    def read(count: int, rows: int) -> int:
        keep = f"keep if any(names[b, q_idx, i] == kv_idx for i in range({count}))"
        rules = analyse(variant_of(f"input names: i32[batch, q, {count}]", keep), rows, 16)
        return sum(isinstance(node, Load) for node in walk(rules.any_kept, rules.all_kept))

    assert [read(4, 16), read(4, 32)] == [64, 0]
    assert read(5, 16) == 0


def test_rules_are_self_contained() -> None:
    """Lets are written out: rules travel in plans and are evaluated without the variant's lets."""
    variant = variant_of("let d = q_pos - kv_idx", "let near = d < 9", "keep if near", "keep if d >= 0")
    rules = analyse(variant, 64, 64)
    bare = Variant("bare")
    for rule in (rules.any_kept, rules.all_kept, rules.kv_begin, rules.kv_end, rules.full_begin, rules.full_end):
        assert reads(bare, rule) <= {"q_first", "q_last", "kv_first", "kv_last", "q_len", "kv_len", "q_offset"}


def test_analysis_is_deterministic() -> None:
    variant = variant_of("input doc: i32[pos]", "keep if doc[q_pos] == doc[kv_idx] or abs(q_pos - kv_idx) % 6 < 3")
    assert analyse(variant, 64, 96) == analyse(variant, 64, 96)


def test_two_million_tiles_in_a_tenth_of_a_second() -> None:
    """128k x 128k keys in tiles of 128 x 64, by bounds alone and by the rule of each tile."""
    length = 1 << 17
    for lines in (
        ["keep if q_pos >= kv_idx"],
        ["keep if q_pos >= kv_idx", "keep if kv_idx < 4 or q_pos - kv_idx < 4096"],
    ):
        rules, seen = analyse(variant_of(*lines), 128, 64), environment(length, length)
        assert tile_grid(rules, seen, 128, 64).kinds.size == 2 << 20
        assert best_of(7, lambda rules=rules, seen=seen: tile_grid(rules, seen, 128, 64)) < 0.1


@pytest.mark.parametrize("name", SPECS)
def test_analysis_of_a_spec_takes_less_than_50_ms(name: str) -> None:
    path = resources.folder("specs") / name
    for variant in load(SourceFile(str(path), path.read_text())).variants:
        rules = analyse(variant, 128, 128)
        assert best_of(3, lambda variant=variant: analyse(variant, 128, 128)) < 0.05
        assert sum(1 for _ in walk(rules.any_kept, rules.all_kept)) < 4000
