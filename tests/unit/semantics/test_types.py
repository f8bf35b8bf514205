from __future__ import annotations

import numpy as np
import pytest

from attncc.evaluate import Environment, evaluate
from attncc.ir import Const, Type, show
from tests.loaded import codes, lowered, scored

OPERANDS = {"int": "kv_idx", "float": "score", "bool": "flag"}
INPUT = "input flag: bool"

# What `left op right` gives for these operand types; everything else is the error beside it.
GOOD = {
    **{op: {("int", "int"): "int", ("int", "float"): "float", ("float", "float"): "float"} for op in "+-*"},
    "/": {("int", "int"): "float", ("int", "float"): "float", ("float", "float"): "float"},
    **{op: {("int", "int"): "int"} for op in ("//", "%", "&", "|", "^", "<<", ">>")},
    **{op: {("int", "int"): "bool", ("int", "float"): "bool", ("float", "float"): "bool"} for op in ("<", ">=")},
    **{
        op: {("int", "int"): "bool", ("int", "float"): "bool", ("float", "float"): "bool", ("bool", "bool"): "bool"}
        for op in ("==", "!=")
    },
    **{op: {("bool", "bool"): "bool"} for op in ("and", "or")},
}
ERROR = {
    **dict.fromkeys(("+", "-", "*", "/", "//", "%"), "A201"),
    **dict.fromkeys(("&", "|", "^", "<<", ">>"), "A202"),
    **dict.fromkeys(("<", ">=", "==", "!="), "A207"),
    **dict.fromkeys(("and", "or"), "A206"),
}


@pytest.mark.parametrize("op", GOOD)
@pytest.mark.parametrize("left", OPERANDS)
@pytest.mark.parametrize("right", OPERANDS)
def test_binary_operators(op: str, left: str, right: str) -> None:
    """Each operator on each pair of types: the type that it gives, or the code of its error."""
    result = GOOD[op].get((left, right)) or GOOD[op].get((right, left))
    text = f"{OPERANDS[left]} {op} {OPERANDS[right]}"
    if result is None:
        assert set(codes(f"{INPUT}\nlet x = {text}")) == {ERROR[op]}
    elif result == "bool":
        assert "score" in text or lowered(text, INPUT).type is Type.BOOL
        assert codes(f"{INPUT}\nscore = (1 if {text} else 0) + (0 if flag else 1)") == []
    else:
        assert codes(f"input table: i32[_]\nscore = table[{text}]") == ([] if result == "int" else ["A201"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("score + kv_idx", "(score + to_float(kv_idx))"),
        ("score + 1", "(score + 1.0)"),
        ("q_idx / 2", "(to_float(q_idx) / 2.0)"),
        ("score * (kv_idx + 1)", "(score * to_float((kv_idx + 1)))"),
        ("score if q_idx > 0 else 0", "(score if (q_idx > 0) else 0.0)"),
        ("max(score, 0, q_idx)", "max(max(score, 0.0), to_float(q_idx))"),
        ("exp(kv_idx)", "exp(to_float(kv_idx))"),
        ("floor(score)", "to_float(floor(score))"),
        ("floor(kv_idx)", "to_float(kv_idx)"),
        ("+score", "score"),
        ("-score - -1", "(neg(score) - -1.0)"),
    ],
)
def test_where_ints_become_floats(text: str, shown: str) -> None:
    assert show(scored(text)) == shown


def test_comparisons_chain() -> None:
    assert show(lowered("0 <= q_pos - kv_idx < 8")) == "((0 <= (q_pos - kv_idx)) and ((q_pos - kv_idx) < 8))"
    flat = lowered("q_idx < 4 and kv_idx < 4 and 0 < q_idx < kv_idx")
    assert len(flat.children) == 4


@pytest.mark.parametrize(("text", "value"), [("7 // 2 * 2 + 1 << 2", 28), ("-7 // 2", -4), ("~0 & 6", 6), ("-(3)", -3)])
def test_known_ints_are_worked_out(text: str, value: int) -> None:
    assert lowered(f"kv_idx < {text}").children[1] == Const(Type.INT, value)


def test_known_floats_are_left_to_the_kernel() -> None:
    """Their sum may round differently in f32; only the sign is exact."""
    assert show(scored("score + (0.1 + 0.2) - -0.5")) == "((score + (0.1 + 0.2)) - -0.5)"


@pytest.mark.parametrize("x", [-3.0, -2.0, 0.5, 5.0, 9.0])
@pytest.mark.parametrize("bounds", [(-2.0, 5.0), (5.0, -2.0), (1.0, 1.0)])
@pytest.mark.parametrize("declared", ["", "input low: f32\ninput high: f32"])
def test_clamp_of_floats(x: float, bounds: tuple[float, float], declared: str) -> None:
    low, high = bounds
    expr = scored("clamp(score, low, high)" if declared else f"clamp(score, {low}, {high})", declared)
    inputs = {"low": np.asarray(low), "high": np.asarray(high)}
    assert evaluate(expr, Environment({"score": x}, inputs)) == min(max(x, low), high)
    assert "min(max(score" not in show(expr), "the derivative at a bound is that of x"
    of_nan = evaluate(expr, Environment({"score": np.nan}, inputs))
    assert of_nan == min(low, high), "as `max` has it, NaN becomes the bound"


@pytest.mark.parametrize("x", [-3.0, 9.0])
def test_clamp_by_a_bound_that_is_nan(x: float) -> None:
    expr = scored("clamp(score, low, 5.0)", "input low: f32")
    assert evaluate(expr, Environment({"score": x}, {"low": np.asarray(np.nan)})) == min(x, 5.0)


def test_clamp_of_ints_keeps_its_bounds_visible() -> None:
    assert show(lowered("clamp(kv_idx, 2, 5) == 3")) == "(min(max(kv_idx, 2), 5) == 3)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("any(i == kv_idx for i in range(3))", "((0 == kv_idx) or (1 == kv_idx) or (2 == kv_idx))"),
        ("all(i != kv_idx for i in range(1))", "(0 != kv_idx)"),
        ("sum(kv_idx >> i for i in range(3)) == 1", "((((kv_idx >> 0) + (kv_idx >> 1)) + (kv_idx >> 2)) == 1)"),
        ("any(all(i + j == kv_idx for j in range(2)) for i in range(1))", "((0 == kv_idx) and (1 == kv_idx))"),
    ],
)
def test_reductions(text: str, shown: str) -> None:
    assert show(lowered(text)) == shown


def test_reductions_over_nothing() -> None:
    nothing = "for i in range(0)"
    assert lowered(f"any(i == kv_idx {nothing})") == Const(Type.BOOL, False)
    assert lowered(f"all(i == kv_idx {nothing})") == Const(Type.BOOL, True)
    assert lowered(f"kv_idx < sum(i {nothing})").children[1] == Const(Type.INT, 0)
    assert scored(f"score + sum(1.0 * i {nothing})").children[1] == Const(Type.FLOAT, 0.0)


@pytest.mark.parametrize("text", ["not kv_idx == 3", "not (kv_idx == 3)"])
def test_not(text: str) -> None:
    assert show(lowered(text)) == "not((kv_idx == 3))"


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("q_pos >= kv_idx & kv_idx >= 0", True),
        ("q_pos >= (kv_idx & 7) >= 0", False),
        ("q_pos >= (kv_idx | 7)", False),
        ("q_pos == kv_idx | 3 == 0", True),
    ],
)
def test_bit_operators_between_comparisons(text: str, warned: bool) -> None:
    assert codes(f"keep if {text}") == ["A223"] * warned
