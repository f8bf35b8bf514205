"""Static ranges: exact on small boxes where an operator is monotone, never wrong anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.algebra.ranges import INT32, INT64, Range, StaticRanges, transfer
from attncc.evaluate import Environment, evaluate
from attncc.ir import MAX_LENGTH, Axis, Input, Let, Load, Local, Type, Variant, apply, const, size_symbol, symbol

BINARY = ["add", "sub", "mul", "min", "max", "floordiv", "mod", "bitand", "bitor", "bitxor", "shl", "shr", "select"]
UNARY = ("neg", "abs", "bitnot")


def values_of(op: str, *ranges: Range) -> np.ndarray:
    grids = np.meshgrid(*(np.arange(x.low, x.high + 1) for x in ranges), indexing="ij")
    args = [symbol("q_idx"), symbol("kv_idx")][: len(ranges)]
    if op == "select":
        args = [apply("lt", symbol("b"), const(1)), *args]
    symbols = dict(zip(("q_idx", "kv_idx"), (grid.ravel() for grid in grids), strict=False)) | {"b": 0}
    found = evaluate(apply(op, *args), Environment(symbols))
    other = evaluate(apply(op, *args), Environment(symbols | {"b": 1}))
    return np.concatenate([found, other])


@pytest.mark.parametrize("op", BINARY + list(UNARY))
def test_no_value_leaves_the_range(op: str) -> None:
    random = np.random.default_rng(7)
    for _ in range(300):
        ends = np.sort(random.integers(-70, 70, size=(2, 2)) // random.choice([1, 10]), axis=1)
        ranges = [Range(int(low), int(high)) for low, high in ends][: 1 if op in UNARY else 2]
        found = transfer(op, tuple(ranges))
        values = values_of(op, *ranges)
        assert found.low <= values.min() and values.max() <= found.high, (op, ranges)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "min", "max", "neg", "abs", "bitnot", "floordiv", "select"])
def test_monotone_operators_are_exact(op: str) -> None:
    random = np.random.default_rng(8)
    for _ in range(200):
        ends = np.sort(random.integers(-20, 20, size=(2, 2)), axis=1)
        ranges = [Range(int(low), int(high)) for low, high in ends][: 1 if op in UNARY else 2]
        values = values_of(op, *ranges)
        assert transfer(op, tuple(ranges)) == (values.min(), values.max()), (op, ranges)


def test_what_may_wrap_is_unknown() -> None:
    big = Range(0, 2**62)
    assert transfer("add", (big, big)) == INT64
    assert transfer("mul", (big, Range(2, 2))) == INT64
    assert transfer("abs", (INT64,)) == INT64
    assert transfer("neg", (INT64,)) == INT64
    assert transfer("floordiv", (INT64, Range(-1, -1))) == INT64
    assert transfer("shl", (Range(1, 1), Range(0, 63))) == INT64


def test_a_remainder_by_a_constant() -> None:
    assert transfer("mod", (Range(65, 70), Range(64, 64))) == (1, 6)
    assert transfer("mod", (Range(60, 70), Range(64, 64))) == (0, 63)
    assert transfer("mod", (Range(0, 5), Range(64, 64))) == (0, 5)
    assert transfer("mod", (INT64, Range(0, 0))) == (0, 0)


def test_positions_fit_32_bits() -> None:
    variant = Variant("v", inputs=(Input("width", "i32", ()), Input("doc", "i64", (Axis("pos"), Axis(None, 7)))))
    ranges = StaticRanges(variant)
    distance = apply("sub", apply("add", symbol("q_idx"), symbol("kv_len")), symbol("q_len"))
    assert ranges.of(distance).fits(32)
    width = Load(Type.INT, "width", ())
    assert ranges.of(width) == INT32
    assert not ranges.of(apply("sub", symbol("q_idx"), width)).fits(32)
    assert ranges.of(Load(Type.INT, "doc__max", (symbol("kv_idx"), const(0)))) == INT64
    assert ranges.of(size_symbol("doc", 1)) == (7, 7)
    assert ranges.of(size_symbol("doc", 0)) == (0, INT32.high)


def test_lets_are_followed() -> None:
    half = Let("half", apply("floordiv", symbol("kv_idx"), const(2)))
    ranges = StaticRanges(Variant("v", statements=(half,)))
    assert ranges.of(apply("neg", Local(Type.INT, "half"))) == (-((MAX_LENGTH - 1) // 2), 0)
    condition = apply("lt", Local(Type.INT, "half"), const(3))
    assert ranges.of(apply("select", condition, const(3), const(9))) == (3, 9)
