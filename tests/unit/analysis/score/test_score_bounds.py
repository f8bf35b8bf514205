"""What is proven of scores holds for scores: of caps and clamps by hand, of random lines by trying."""

from __future__ import annotations

from math import inf
from random import Random

import numpy as np
import pytest

from attncc import api
from attncc.analysis.score.score_bounds import score_bounds
from attncc.evaluate import Environment
from attncc.ir import Axis, Expr, Input, Load, Score, Type, Variant, apply, const, symbol
from attncc.operators import OPERATORS
from attncc.operators.float_ranges import ANY
from attncc.statements import scored

INPUTS = "input slope: f32[head]\ninput cap: f32\ninput table: i32[kv]\n"
DRAWS, LINES = 30, 400  # of lines that are proven bounded: 12,000 scores
EXTREMES = (0.0, -0.0, 1.0, -1.0, 1e-30, 88.0, -104.0, 1e5, -1e5, 3e38, -3e38, inf, -inf, np.nan)


def bounds(*lines: str) -> tuple[float, float] | None:
    used = "".join(line + "\n" for line in INPUTS.splitlines() if line.split()[1].split(":")[0] in " ".join(lines))
    return score_bounds(api.parse(f"attn 1\nvariant v {{\n{used}" + "\n".join(lines) + "\n}\n").variant)


@pytest.mark.parametrize(
    ("lines", "low", "high"),
    [
        (["score = 50 * tanh(score / 50)"], -50, 50),
        (["score = 10 * sigmoid(score)"], 0, 10),
        (["score = clamp(score, -10, 7)"], -10, 7),
        (["score = min(max(score, -10), 7)"], -10, 7),
        (["score = 3 * sin(score) - 1"], -4, 2),
        (["score = 3 * erf(score)"], -3, 3),
        (["score = score + slope[h] * kv_idx", "score = 30 * tanh(score / 30)"], -30, 30),  # under the cap
        (["score = 30 * tanh(score / 30) + clamp(slope[h], -2, 2)"], -32, 32),
        (["let c = clamp(cap, 1, 20)", "score = c * tanh(score / c)"], -20, 20),
        (["score = 5 * tanh(score) if q_idx > kv_idx else 8.0"], -5, 8),
        (["score = log(1 + exp(clamp(score, -5, 5)))"], 0, 5.0067),
        (["score = 5 * tanh(score) + table[kv_idx] % 4"], -5, 8),
    ],
)
def test_bounded(lines: list[str], low: float, high: float) -> None:
    found = bounds(*lines)
    assert found is not None
    assert found[0] <= low <= high <= found[1]
    np.testing.assert_allclose(found, (low, high), rtol=5e-3, atol=0.07)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["score = 2 * score"],
        ["score = min(score, 5)"],
        ["score = 30 * tanh(score / 30)", "score = score + slope[h] * kv_idx"],  # behind the cap
        ["score = cap * tanh(score / cap)"],
        ["score = sigmoid(score) / tanh(score)"],
        ["score = 1 / (1 + exp(score))"],  # the rule for quotients asks for bounded ones
        ["score = score if score < 5 else 5.0"],
        ["score = tanh(score)", "normalize sigmoid"],
    ],
)
def test_not_bounded(lines: list[str]) -> None:
    assert bounds(*lines) is None


def test_behind_the_cap_ints_bound_it_too_widely() -> None:
    found = bounds("score = 30 * tanh(score / 30) - 0.5 * (q_pos - kv_idx)")
    assert found is not None and found[1] - found[0] > 1e9


# -------------------------------------------------------------------- by trying

_VARIANT_INPUTS = (Input("slope", "f32", (Axis("kv"),)), Input("number", "i32", (Axis("kv"),)))
_LEAVES = (
    symbol("score"),
    Load(Type.FLOAT, "slope", (symbol("kv_idx"),)),
    apply("to_float", apply("mod", Load(Type.INT, "number", (symbol("kv_idx"),)), const(7))),
    *map(const, (0.0, 1.0, -2.5, 30.0, 1e4)),
)
_ONE = [name for name, item in OPERATORS.items() if item.arity == 1 and item.on_floats and item.gives is None]
_TWO = ("add", "sub", "mul", "div", "min", "max")


def line(random: Random, depth: int) -> Expr:
    """A float of every operator that has a rule."""
    if not depth or random.random() < 0.1:
        return random.choice(_LEAVES)
    kind, first = random.random(), line(random, depth - 1)
    if kind < 0.35:
        return apply(random.choice(("tanh", "sigmoid", *_ONE)), first)
    second = line(random, depth - 1)
    if kind < 0.8:
        return apply(random.choice(_TWO), first, second)
    sides = random.choice(((first, second), (second, first), (const(3.0), first)))
    return apply("select", apply(random.choice(("lt", "le", "gt", "ge", "eq")), first, second), *sides)


def test_random_lines_stay_within_their_bounds() -> None:
    """In fp32, as kernels compute; where a score isn't NaN."""
    random, numbers, bounded = Random(7), np.random.default_rng(7), 0
    while bounded < LINES:
        variant = Variant("v", inputs=_VARIANT_INPUTS, statements=(Score(line(random, 4)),))
        found = score_bounds(variant)
        if found is None:
            continue
        bounded += 1
        score, slope = (numbers.normal(size=DRAWS) * 10.0 ** numbers.integers(-3, 6, DRAWS) for _ in range(2))
        score[: len(EXTREMES)] = EXTREMES
        slope[-len(EXTREMES) :] = EXTREMES
        arrays = {"slope": slope.astype(np.float32), "number": numbers.integers(-99, 99, DRAWS).astype(np.int32)}
        with np.errstate(all="ignore"):
            values = scored(variant, _environment(variant, arrays), score.astype(np.float32))
        known = values[~np.isnan(values)]
        assert ((found[0] <= known) & (known <= found[1])).all(), variant.statements


def _environment(variant: Variant, arrays: dict[str, np.ndarray]) -> Environment:
    return Environment({"kv_idx": np.arange(DRAWS)}, arrays, variant.lets, np.dtype(np.float32))


def test_each_function_of_a_float_has_a_rule() -> None:
    """A new one needs none: nothing is known of it then. But these bound scores."""
    assert all(OPERATORS[name].on_floats.range is not None for name in _ONE)  # type: ignore[union-attr]
    assert OPERATORS["tanh"].on_floats.range(ANY)[:2] == pytest.approx((-1, 1), abs=1e-3)  # type: ignore
