"""Comparisons and logic in normal form."""

from __future__ import annotations

import pytest

from attncc.analysis.algebra.algebra import FALSE, TRUE, Relation
from attncc.ir import show

from ..tile_cases import box_of, variant_of

INPUTS = ("input w: i32", "input n: i64", "input x: f32[pos]", "input ok: bool[pos]")


def normal(text: str) -> str:
    """The normal form of a bool expression of `.attn`."""
    variant = variant_of(*INPUTS, f"keep if {text}")
    _, canonical = box_of(variant, 32, 32)
    return show(canonical.of(variant.keeps[0].condition))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("q_pos >= kv_idx", "(kv_idx <= (q_idx + q_offset))"),
        ("2 * q_idx < 2 * kv_idx + 1", "(kv_idx >= q_idx)"),
        ("2 * q_idx == 2 * kv_idx + 1", "false"),
        ("kv_idx < kv_len", "true"),
        ("q_idx - kv_idx + kv_idx >= 0", "true"),
        ("kv_idx < w", "(kv_idx <= (w - 1))"),
        ("kv_idx < n", "((kv_idx + 1) <= n)"),
        ("kv_idx % 64 >= kv_idx", "((kv_idx // 64) <= 0)"),
        ("not kv_idx < 3", "(kv_idx >= 3)"),
        ("not (kv_idx < 3 or q_idx == 4)", "((kv_idx >= 3) and (q_idx != 4))"),
        ("not ok[kv_idx]", "not(ok[kv_idx])"),
        ("not not ok[kv_idx]", "ok[kv_idx]"),
        ("(kv_idx < 3) == (q_idx < 3)", "((q_idx <= 2) if (kv_idx <= 2) else (q_idx >= 3))"),
        ("not x[kv_idx] < 0.5", "not((x[kv_idx] < 0.5))"),
    ],
)
def test_comparisons(text: str, form: str) -> None:
    assert normal(text) == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("kv_idx < 3 or kv_idx >= 3", "true"),
        ("kv_idx < 3 and kv_idx >= 3", "false"),
        ("kv_idx < 7 or kv_idx > 5", "true"),
        ("kv_idx < 5 and kv_idx < 9 and q_idx == 1", "((kv_idx <= 4) and (q_idx == 1))"),
        ("kv_idx < 5 or kv_idx < 9", "(kv_idx <= 8)"),
        ("q_idx == kv_idx or q_idx != kv_idx", "true"),
        ("ok[kv_idx] and not ok[kv_idx]", "false"),
        ("ok[kv_idx] and (ok[kv_idx] and ok[q_pos])", "(ok[kv_idx] and ok[(q_idx + q_offset)])"),
    ],
)
def test_logic_is_merged(text: str, form: str) -> None:
    assert normal(text) == form


def test_an_empty_window_is_found_at_run_time() -> None:
    assert normal("0 <= q_idx - kv_idx < w").endswith("and (w >= 1))")
    assert normal("q_idx - kv_idx >= w or q_idx < kv_idx").endswith("or (w <= 0))")


def test_a_comparison_knows_what_it_says() -> None:
    variant = variant_of("keep if q_idx - 2 * kv_idx < 5")
    box, canonical = box_of(variant, 32, 32)
    relation, form = box.algebra.relations[canonical.of(variant.keeps[0].condition)]
    named = {show(atom): c for atom, c in form.terms.items()}
    assert (relation, named, form.const) == (Relation.BELOW, {"q_idx": 1, "kv_idx": -2}, -4)


def test_sides_that_may_wrap_are_not_brought_together() -> None:
    """q_idx < q_idx + n could be taken for 0 < n, were n not so large that the sum wraps."""
    assert normal("q_idx < q_idx + n") == "((q_idx + 1) <= (q_idx + n))"


def test_negation_is_its_own_inverse() -> None:
    variant = variant_of(*INPUTS, "keep if kv_idx < 3 and (ok[kv_idx] or q_idx == w) or not x[kv_idx] < 1.0")
    box, canonical = box_of(variant, 32, 32)
    found = canonical.of(variant.keeps[0].condition)
    assert box.algebra.negation(box.algebra.negation(found)) is found
    assert box.algebra.negation(TRUE) is FALSE
