"""What rules make of inputs declared `nondecreasing`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc import api
from attncc.analysis.mask.grid import never_falls, rule_tables, tile_grid
from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import TileKind
from attncc.evaluate import Environment, evaluate
from attncc.ir import Axis, Input, Load, Search, Type, Variant, const, walk
from attncc.problem import Problem
from attncc.problem.arrays import environment, sequence_inputs
from tests.examples import slow_beyond


def variant(lines: str) -> Variant:
    return api.parse(f"attn 1\nimport masks\nvariant v {{\n{lines}\n}}\n").variant


DOC = "input doc: i32[batch, pos] nondecreasing\n"
DOCUMENTS = variant(DOC + "keep if causal()\nkeep if same_document(doc)")


def searches(of: Variant) -> list[Search]:
    return [node for node in walk(*analyse(of, 32, 32).bounds) if isinstance(node, Search)]


def test_documents_need_no_zone_maps_and_no_test_of_tiles() -> None:
    rules = analyse(DOCUMENTS, 128, 64)
    assert (rules.sorted_hints, rules.min_max_tables, rules.bounds_suffice) == (("doc",), (), True)
    assert len(searches(DOCUMENTS)) == 1  # what is FULL is found by the same one, and documents end behind the row


def test_searches_that_go_beyond_another_end_are_left_out() -> None:
    both_ways = variant(DOC + "keep if same_document(doc)")
    assert sum(node.above for node in searches(both_ways)) == 1
    ahead = variant(DOC + "keep if kv_idx <= q_pos + 1\nkeep if same_document(doc)")
    assert sum(node.above for node in searches(ahead)) == 1  # the next row's document may be another
    behind = variant(DOC + "keep if kv_idx <= q_pos - 1\nkeep if same_document(doc)")
    assert sum(node.above for node in searches(behind)) == 0
    other = variant(DOC + "input id: i32[batch, q]\nkeep if causal()\nkeep if doc[b, kv_idx] <= id[b, q_idx]")
    assert sum(node.above for node in searches(other)) == 2  # nothing is known of what is looked for


@pytest.mark.parametrize("condition", ["<", "<=", ">", ">=", "=="])
def test_comparisons_with_a_row_value_are_searched(condition: str) -> None:
    compared = variant(f"{DOC} input other: i32[batch, q]\nkeep if doc[b, kv_idx] {condition} other[b, q_idx]")
    rules = analyse(compared, 32, 32)
    assert rules.bounds_suffice and rules.sorted_hints == ("doc",)
    assert [table.input for table in rules.min_max_tables] == ["other"]


@pytest.mark.parametrize(
    "lines",
    [
        "input doc: i32[batch, pos]\nkeep if doc[b, q_pos] == doc[b, kv_idx]",  # nothing is hinted
        DOC + "keep if doc[b, q_pos] != doc[b, kv_idx]",  # two ranges
        DOC + "keep if doc[b, kv_idx % 7] == 3",  # no range of keys
        "input table: i32[_, pos] nondecreasing\nkeep if table[q_idx, kv_idx] == 1",  # a line for each row
    ],
)
def test_what_a_hint_does_not_help(lines: str) -> None:
    assert analyse(variant(lines), 32, 32).sorted_hints == ()


@pytest.mark.parametrize("inner", ["q", "kv"])
def test_kernels_that_cannot_search_use_no_hints(inner: str) -> None:
    """They ask for bounds with other keys in other lanes, or again and again."""
    rules = analyse(DOCUMENTS, 32, 32, inner, searches=False)
    assert rules.sorted_hints == () and [table.input for table in rules.min_max_tables] == ["doc"]
    assert not any(isinstance(node, Search) for node in walk(*rules.expressions))


def test_rows_of_documents_are_found_by_one_search() -> None:
    """For where a document begins none is needed: not before the keys that ask, under a causal mask."""
    rules = analyse(DOCUMENTS, 64, 64, "q")
    assert (
        rules.sorted_hints == ("doc",)
        and rules.bounds_suffice
        and rules.min_max_tables == ()
        and rules.q_bounds is not None
    )
    found = {node for node in walk(*rules.bounds[4:]) if isinstance(node, Search)}
    assert len(found) == 1 and found.pop().above


def test_a_hint_is_not_worth_a_test_where_only_rows_read_it() -> None:
    """`start` is read for rows, and single tiles must be tested in any case: min/max tables say as much."""
    rules = analyse(variant("input start: i32[batch, pos] nondecreasing\n"
                            "keep if start[b, q_pos] <= kv_idx or kv_idx % 64 == 0"), 32, 32)  # fmt: skip
    assert rules.sorted_hints == () and [table.input for table in rules.min_max_tables] == ["start"]


def test_an_axis_that_may_be_too_short_is_measured_in_each_call() -> None:
    """Beyond its end, entries read 0: they are no longer nondecreasing."""
    blocks = variant("input block: i32[_] nondecreasing\nkeep if block[kv_idx // 16] == 1")
    rules, length = analyse(blocks, 16, 16), 64
    entries = np.int32([0, 0, 1, 1])
    for size, live in ((4, [0, 0, 1, 1]), (3, [1, 1, 1, 1])):
        problem = Problem(1, 1, 1, 16, length, 16, 16)
        given = {"block": entries[:size]}
        tables = rule_tables(rules, blocks, problem, given)
        seen = environment(blocks, problem, next(problem.sequences()), {**given, **tables}, np.float64)
        kinds = tile_grid(rules, seen, 16, 16, single_tiles=False).kinds[0, 0]
        assert (kinds != TileKind.EMPTY).tolist() == [bool(x) for x in live], size


def test_searches_are_bisections() -> None:
    line = np.int64([-5, -5, 0, 2, 2, 2, 9])
    for value in range(-7, 12):
        for above in (False, True):
            search = Search(Type.INT, "line", (), const(7), const(value), above)
            found = int(evaluate(search, Environment({}, {"line": line})))
            assert found == np.searchsorted(line, value, side="right" if above else "left")


def test_positions_in_use_are_verified_and_no_others() -> None:
    """Keys beyond kv_len, and the step from one sequence to the next, don't count."""
    doc = Input("doc", "i32", (Axis("batch"), Axis("pos")), nondecreasing=True)
    lines = np.int32([[0, 1, 1, 3, 0], [0, 1, 0, 3, 3]])
    assert never_falls(doc, Problem(2, 1, 1, 4, 4, 16, 16), lines).tolist() == [True, False]
    assert never_falls(doc, Problem(2, 1, 1, 5, 5, 16, 16), lines).tolist() == [False, False]
    packed = Problem(3, 1, 1, 5, 5, 16, 16, packed=True, q_starts=(0, 1, 4, 5), kv_starts=(0, 2, 2, 5))
    assert never_falls(doc, packed, lines[0]).tolist() is False
    assert never_falls(doc, packed, lines[1]).tolist() is True


# -------------------------------------------------------------------- brute force

LINES = (
    "keep if causal()\nkeep if same_document(doc)",
    "keep if doc[b, q_pos] == doc[b, kv_idx] or kv_idx == 3",
    "keep if doc[b, kv_idx] - doc[b, q_pos] >= -1 and q_pos >= kv_idx",
    "keep if 2 * doc[b, kv_idx] < doc[b, q_pos] + 3",
    "keep if not (doc[b, kv_idx] // 2 > doc[b, q_pos] // 2)",
    "keep if doc[b, kv_idx // 3] == 2 and kv_idx < 2 * doc[b, q_pos] + 9",
)


def arrays(rng: np.random.Generator, shape: tuple[int, ...], *, sorts: bool) -> Any:
    values = rng.integers(-3, 6, shape).astype(np.int32)
    return np.sort(values, axis=-1) if sorts else values


@pytest.mark.parametrize(("inner", "dtype"), slow_beyond(2, [("kv", "i32"), ("q", "i64"), ("kv", "i64"), ("q", "i32")]))
@pytest.mark.parametrize("lines", LINES)
def test_sound_whether_the_hint_is_true_or_false(lines: str, inner: str, dtype: str) -> None:
    """No kept pair is dropped, nothing is called FULL that isn't; where it is true, bounds alone skip tiles."""
    text = f"attn 1\nimport masks\nvariant v {{\n{DOC.replace('i32', dtype)}{lines}\n}}\n"
    made, rng, decided = api.parse(text), np.random.default_rng(3), 0
    for trial in range(12):
        q_len, kv_len = (int(n) for n in rng.integers(1, 120, 2))
        blocks, sorts = tuple(int(n) for n in rng.choice([8, 16, 32], 2)), trial % 3 > 0
        given = {"doc": arrays(rng, (2, kv_len), sorts=sorts).astype(np.int64 if dtype == "i64" else np.int32)}
        kept = made.mask(q_len, kv_len, **given)[:, 0]
        for single in (False, True):
            kinds = np.stack(
                [grid.kinds[0] for grid in grids(made.variant, (q_len, kv_len), blocks, given, inner, single=single)]
            )
            some, every = (reduced(kept, blocks, how) for how in (np.logical_or, np.logical_and))
            assert (kinds[some] != TileKind.EMPTY).all() and every[kinds == TileKind.FULL].all(), trial
            decided += sorts and not single and np.count_nonzero(kinds != TileKind.PARTIAL)
    assert decided > 20 or not analyse(made.variant, 32, 32, inner).sorted_hints


def grids(
    made: Variant, lengths: tuple[int, int], blocks: tuple[int, int], given: Any, inner: str, *, single: bool
) -> Any:
    rules, problem = analyse(made, *blocks, inner), Problem(2, 1, 1, *lengths, 16, 16)
    tables = rule_tables(rules, made, problem, given)
    for sequence in problem.sequences():
        own = sequence_inputs(made, problem, sequence, given)
        seen = environment(made, problem, sequence, {**own, **tables}, np.float64)
        yield tile_grid(rules, seen, *blocks, single_tiles=single)


def reduced(kept: Any, blocks: tuple[int, int], how: Any) -> Any:
    """Whether some pair, or each, of every tile is kept."""
    for axis, block in ((1, blocks[0]), (2, blocks[1])):
        kept = how.reduceat(kept, np.arange(0, kept.shape[axis], block), axis=axis)
    return kept


def test_hints_are_tested_where_rules_read_them() -> None:
    hints = [node for node in walk(*analyse(DOCUMENTS, 32, 32).expressions) if isinstance(node, Load)]
    assert {node.input for node in hints} == {"doc", "doc__sorted"}
