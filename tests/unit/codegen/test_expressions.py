"""The C text of expressions, by kind of operator."""

from __future__ import annotations

import math

import pytest

from attncc.codegen.floats import float_literal
from attncc.codegen.nodes import int_literal
from tests.printed import body, code, kept


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("q_pos >= kv_idx", "row.q_pos >= kv_idx"),
        ("not q_pos >= kv_idx", "!(row.q_pos >= kv_idx)"),
        ("q_idx - (kv_idx - 3) < 5", "row.q_idx - (kv_idx - 3) < 5"),
        ("-q_idx - -3 < kv_idx * 2", "-row.q_idx - -3 < kv_idx * 2"),
        ("q_idx < 5 and kv_idx < 7 or h == 1", "((row.q_idx < 5) & (kv_idx < 7)) | (ctx.h == 1)"),
        ("(kv_idx if q_idx < 3 else h) == 4", "(row.q_idx < 3 ? kv_idx : ctx.h) == 4"),
        ("(q_idx < 3) == (kv_idx < 3)", "(row.q_idx < 3) == (kv_idx < 3)"),
        ("abs(q_idx - kv_idx) <= head_dim", "abs(row.q_idx - kv_idx) <= 16"),
        ("min(q_idx, kv_idx) + num_heads > b", "min(row.q_idx, kv_idx) + params.num_heads > ctx.b"),
    ],
)
def test_operators_print_with_few_parentheses(condition: str, text: str) -> None:
    assert kept(condition) == text


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("kv_idx // 3 == 1", "kv_idx / 3 == 1"),  # not negative: C's division is right
        ("kv_idx % 64 == 1", "kv_idx % 64 == 1"),
        ("(q_pos - kv_idx) // 64 == 1", "((row.q_pos - kv_idx) >> 6) == 1"),
        ("(q_pos - kv_idx) % 64 == 1", "((row.q_pos - kv_idx) & 63) == 1"),
        ("(q_pos - kv_idx) % 3 == 1", "floor_remainder(row.q_pos - kv_idx, 3) == 1"),
        ("(q_pos - kv_idx) // 3 == 1", "floor_divide(row.q_pos - kv_idx, 3) == 1"),
        ("kv_idx // -3 == 1", "floor_divide(kv_idx, -3) == 1"),
        ("kv_idx // q_idx == 1", "floor_divide(kv_idx, row.q_idx) == 1"),  # q_idx may be 0
        ("kv_idx // (q_idx + 1) == 1", "kv_idx / (row.q_idx + 1) == 1"),
    ],
)
def test_division_rounds_down(condition: str, text: str) -> None:
    assert kept(condition) == text


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("kv_idx >> 3 == 1", "(kv_idx >> 3) == 1"),
        ("kv_idx >> 40 == 1", "(int)shift_right(kv_idx, 40) == 1"),
        ("kv_idx >> q_idx == 1", "(int)shift_right(kv_idx, row.q_idx) == 1"),
        ("1 << kv_idx % 8 == 1", "(1 << (kv_idx % 8)) == 1"),
        ("kv_idx << 3 == 1", "shift_left(kv_idx, 3) == 1"),  # may pass 32 bits
        ("-kv_idx << 3 == q_idx", "shift_left(-kv_idx, 3) == row.q_idx"),
    ],
)
def test_shifts_are_total(condition: str, text: str) -> None:
    assert kept(condition) == text


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("q_idx + kv_idx < 5", "row.q_idx + kv_idx < 5"),  # positions are below 2**30
        ("q_idx * kv_idx < 5", "(long long)row.q_idx * kv_idx < 5"),
        ("h * q_idx * kv_idx < 5", "wrapping_mul((long long)ctx.h * row.q_idx, kv_idx) < 5"),
        ("q_idx + 3000000000 < kv_idx", "row.q_idx + 3000000000LL < kv_idx"),
        ("(q_idx * kv_idx) % 8 == h", "(int)((long long)row.q_idx * kv_idx % 8) == ctx.h"),
        ("big[b, kv_idx] + 1 < h", "wrapping_add(load(ctx.big_base + kv_idx * params.big_stride1), 1) < ctx.h"),
        ("auto[b, kv_idx] + 1 < h", "(long long)load(ctx.auto_base + kv_idx * params.auto__stride1) + 1 < ctx.h"),
    ],
)
def test_ints_are_as_wide_as_their_ranges_ask(condition: str, text: str) -> None:
    assert kept(condition, "input big: i64[batch, kv]\ninput auto: i32[batch, kv]") == text


def test_float_arithmetic_is_single_and_accurate() -> None:
    lines = "score = exp(score) / (1 + exp2(-score)) + sigmoid(sqrt(abs(score)))"
    text = body(code(lines).score)[-1]
    assert text == "return expf(score) / (1.0f + exp2f(-score)) + sigmoid(sqrtf(fabsf(score)));"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1f"),
        (1e30, "1e+30f"),
        (16777217.0, "1.6777216e+07f"),
        (-2.0, "-2.0f"),
        (-0.0, "-0.0f"),
        (math.inf, "__int_as_float(0x7f800000)"),
        (-math.inf, "__int_as_float(0xff800000)"),
        (math.nan, "__int_as_float(0x7fffffff)"),
    ],
)
def test_float_literals_are_the_nearest_singles(value: float, text: str) -> None:
    assert float_literal(value).form == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (-5, "-5"),
        (2**31 - 1, "2147483647"),
        (-(2**31), "(-2147483647 - 1)"),
        (2**31, "2147483648LL"),
        (-(2**63), "(-9223372036854775807LL - 1)"),
    ],
)
def test_int_literals_have_their_type(value: int, text: str) -> None:
    assert int_literal(value).form == text


def test_a_score_is_divided_by_a_shared_value_once() -> None:
    printed = code("input cap: f32\nscore = cap * tanh(score / cap)")
    assert "ctx.inverse_cap = 1.0f / ctx.cap;" in printed.context
    assert body(printed.score) == ["return ctx.cap * tanh_branchless(score * ctx.inverse_cap);"]


def test_products_in_masks_are_rounded_before_they_are_added_to() -> None:
    """As NumPy does it. In scores a product may fuse with a sum, whose rounding decides nothing."""
    assert kept("kv_idx * 0.5 + kv_idx * 0.2 < 9.0").count("__fmul_rn(") == 2
    printed = code("let slant = 0.7 * kv_idx\nscore = score + 3.0 * kv_idx\nkeep if q_idx + slant < 9.0")
    assert "__fmul_rn" not in printed.score.replace("__fmul_rn(0.7f", "") and "0.7f" in printed.keep
    assert "__fmul_rn(0.7f" in printed.keep


def test_other_divisions_are_exact() -> None:
    """`7 / 7 == 1` must hold in a mask."""
    printed = code("input period: f32\nkeep if kv_idx / period == 1.0")
    assert body(printed.keep) == ["return (float)kv_idx / ctx.period == 1.0f;"]


def test_floor_gives_a_total_int() -> None:
    assert kept("floor(kv_idx / 2.5) == q_idx") == "floor_to_int((float)kv_idx / 2.5f) == row.q_idx"
