"""Analysis of large masks takes time in proportion to them: counted in calls of attncc's functions, not by clocks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from attncc import api
from attncc.analysis.mask.key_sets import keep_masks
from attncc.analysis.mask.tiles import analyse
from attncc.diagnostics import AttnccError
from attncc.ir import Variant

DOUBLED = {
    "each side of != twice": "({a} != (kv_idx > {i})) != ({a} != (q_idx > {i}))",
    "in both": "({a} and q_pos > kv_idx + {i}) != ({a} or kv_idx < {i})",
    "once beside itself": "{a} != ({a} and q_pos > kv_idx + {i})",
    "condition and arm": "(({a} and kv_idx > {i}) if {a} != (q_pos > {i}) else ({a} or kv_idx < q_idx))",
    "documents": "({a} != (kv_idx > {i})) != ({a} != (doc[b, q_pos] == doc[b, kv_idx] or q_idx < {i}))",
}
CHAINS = {
    "not equal": "{a} != (kv_idx > {i})",
    "chosen by it": "(kv_idx > {i} if {a} else q_idx > {i})",
    "remainders": "(kv_idx % 8 == {i} % 8) != {a}",
}
WIDE = {
    "equal to one of": " or ".join,
    "and in windows": lambda parts: " or ".join(f"({part} and q_pos - kv_idx < {i})" for i, part in enumerate(parts)),
    "a line each": "\n    keep if ".join,
}  # fmt: skip


def doubled(form: str, levels: int) -> str:
    lets = "".join(f"    let a{i + 1} = {form.format(a=f'a{i}', i=i + 2)}\n" for i in range(levels))
    return (
        f"    input doc: i32[batch, pos]\n    let a0 = doc[b, q_pos] != doc[b, kv_idx]\n{lets}    keep if a{levels}\n"
    )


def wide(join: Callable[[list[str]], str], count: int) -> str:
    return f"    keep if {join([f'kv_idx // 3 != {7 * i}' for i in range(count)])}\n"


def variant(lines: str) -> Variant:
    return api.parse(f"attn 1\nvariant grown {{\n{lines}}}\n").variant


def calls(of: Variant) -> int:
    """Of Python's functions, while the rules and the key sets of a mask are found."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.settrace(called)  # setprofile would tell of C's functions, too
    try:
        analyse(of, 64, 64)
        analyse(of, 64, 64, "q")
        list(keep_masks(of, 64))
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("form", DOUBLED.values(), ids=DOUBLED)
def test_a_condition_that_is_doubled_again_and_again(form: str) -> None:
    few, more = (calls(variant(doubled(form, levels))) for levels in (1, 4))
    assert more < 8 * few, "written out it is 64 times as large"


@pytest.mark.parametrize("form", CHAINS.values(), ids=CHAINS)
def test_a_chain_of_conditions(form: str) -> None:
    few, more = (calls(variant(doubled(form, levels))) for levels in (8, 16))
    assert more < 4 * few


@pytest.mark.parametrize("join", WIDE.values(), ids=WIDE)
def test_many_conditions(join: Callable[[list[str]], str]) -> None:
    few, more = (calls(variant(wide(join, count))) for count in (30, 60))
    assert more < 2.8 * few


def test_rules_that_share_much_compare_in_linear_time() -> None:
    first, second = (analyse(variant(doubled(DOUBLED["each side of != twice"], 6)), 64, 64) for _ in range(2))
    assert first == second and hash(first.any_kept) == hash(second.any_kept)


def test_conditions_as_deep_as_the_language_takes() -> None:
    """Rules stay shallow, whatever a line says; and it is said of the line."""
    deep = variant(
        "    keep if " + "".join(f"(kv_idx > {i} if q_idx == {i} else " for i in range(100)) + "true" + ")" * 100 + "\n"
    )
    rules = analyse(deep, 64, 64)
    assert not rules.decides
    assert rules.undecided == ((0, "its conditions are nested too deep for a test of each tile"),)


def test_score_lines_count_as_levels_of_the_next() -> None:
    lines = [f"    score = tanh(score) + kv_idx * {i}.0\n" for i in range(50)]
    assert len(variant("".join(lines[:40])).scores) == 40
    with pytest.raises(AttnccError) as caught:
        variant("".join(lines))
    assert [item.code for item in caught.value.diagnostics] == ["A220"]
