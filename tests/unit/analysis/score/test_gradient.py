"""The symbolic gradient against central differences, at kinks, and in the form that kernels want."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from attncc.analysis.score.gradient import ScoreGradient, final_score, gradient
from attncc.evaluate import Environment, evaluate
from attncc.ir import Axis, Expr, Input, Load, Score, Type, Variant, apply, const, show, symbol
from attncc.semantics.load import load
from attncc.source import SourceFile

_INPUTS = (
    Input("table", "f32", (Axis(),), learnable=True),
    Input("cap", "f32", (), learnable=True),
    Input("fixed", "f32", (Axis(),)),
)
_DECLARED = """
    input table: f32[_] learnable
    input cap: f32 learnable
    input fixed: f32[_]
    input rows: f32[head, q] learnable
"""


def variant_of(lines: str) -> Variant:
    return load(SourceFile("test.attn", f"attn 1\nvariant test {{{_DECLARED}{lines}\n}}")).variants[0]


def environment(**symbols: float) -> Environment:
    places = {"b": 0, "h": 0, "kv_h": 0, "q_idx": 2, "kv_idx": 1, "q_pos": 3, "q_len": 8, "kv_len": 9, "score": 0.3}
    inputs = {
        "table": np.array([0.4, -1.1, 0.7, 2.0]),
        "cap": np.asarray(1.7),
        "fixed": np.array([0.2, 0.9, -0.5, 1.5]),
        "rows": np.array([[0.3, -0.2, 0.8, 0.1]]),
    }
    return Environment({**places, **symbols}, inputs)


def by_score(lines: str, score: float) -> float:
    return float(evaluate(gradient(variant_of(lines)).score, environment(score=score)))


# -------------------------------------------------------------------- random expressions


def random_score(random: Random, depth: int) -> Expr:
    """A float of every operator that has a derivative, over the score and the inputs of `_INPUTS`."""
    if depth == 0 or random.random() < 0.1:
        return _leaf(random)
    below = [random_score(random, depth - 1) for _ in range(3)]
    one, two = below[0], below[1]
    makers: tuple[Callable[[], Expr], ...] = (
        lambda: apply(random.choice(("add", "sub", "mul")), one, two),
        lambda: apply(random.choice(("min", "max")), one, two),
        lambda: apply("div", one, apply("add", const(2.0), apply("abs", two))),
        lambda: apply(random.choice(("neg", "abs", "tanh", "sigmoid", "erf", "sin", "cos")), one),
        lambda: apply(random.choice(("exp", "exp2")), apply("sin", one)),
        lambda: apply(random.choice(("log", "sqrt")), apply("add", const(1.5), apply("cos", one))),
        lambda: apply("select", apply(random.choice(("lt", "ge")), below[2], const(0.1)), one, two),
        lambda: apply("mul", one, apply("to_float", apply("floor", two))),
    )
    return random.choice(makers)()


def _leaf(random: Random) -> Expr:
    index = random.choice((const(0), symbol("kv_idx"), apply("sub", symbol("q_idx"), const(5))))
    choices = (
        symbol("score"), symbol("score"), const(round(random.uniform(-2, 2), 2)), Load(Type.FLOAT, "cap", ()),
        Load(Type.FLOAT, "table", (index,)), Load(Type.FLOAT, "fixed", (index,)),
    )  # fmt: skip
    return random.choice(choices)


@pytest.mark.parametrize("seed", range(120))
def test_central_differences(seed: int) -> None:
    random = Random(seed)
    first, second = random_score(random, 4), random_score(random, 3)
    variant = Variant("random", inputs=_INPUTS, statements=(Score(first), Score(second)))
    root, found = final_score(variant), gradient(variant)

    def at(place: Environment) -> float:
        return float(evaluate(root, place))

    where, step = environment(), 1e-6
    moved = [where.with_symbols(score=0.3 + side) for side in (step, -step)]
    close(evaluate(found.score, where), (at(moved[0]) - at(moved[1])) / (2 * step), seed)
    for name, total in _by_element(found, where).items():
        close(total, _difference(at, where, name, step), (seed, name))


def close(value: object, expected: object, what: object) -> None:
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-7, err_msg=str(what))


def _by_element(found: ScoreGradient, where: Environment) -> dict[str, np.ndarray]:
    totals = {item.name: np.zeros_like(where.inputs[item.name]) for item in _INPUTS if item.learnable}
    for read in found.inputs:
        place = tuple(int(evaluate(index, where)) for index in read.indices)
        if all(0 <= at < size for at, size in zip(place, totals[read.input].shape, strict=True)):
            totals[read.input][place] += evaluate(read.value, where)
    return totals


def _difference(at: Callable[[Environment], float], where: Environment, name: str, step: float) -> np.ndarray:
    array = where.inputs[name]
    total = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        ends = []
        for side in (step, -step):
            other = array.copy()
            other[place] += side
            ends.append(at(Environment(where.symbols, {**where.inputs, name: other})))
        total[place] = (ends[0] - ends[1]) / (2 * step)
    return total


# -------------------------------------------------------------------- kinks


@pytest.mark.parametrize(
    ("lines", "score", "expected"),
    [
        ("score = abs(score)", 0.0, 0.0),
        ("score = abs(score)", -2.0, -1.0),
        ("score = clamp(score, -1.0, 2.0)", -1.0, 1.0),
        ("score = clamp(score, -1.0, 2.0)", 2.0, 1.0),
        ("score = clamp(score, -1.0, 2.0)", 2.5, 0.0),
        ("score = max(score, 0.0)", 0.0, 0.5),
        ("score = min(score, 0.0)", 0.0, 0.5),
        ("score = min(score, 2 * score)", 0.0, 1.5),
        ("score = max(score, score)", 3.0, 1.0),
        ("score = score + floor(score)", 1.0, 1.0),
        ("score = score if score > 1 else 3 * score", 1.0, 3.0),
    ],
)
def test_kinks(lines: str, score: float, expected: float) -> None:
    assert by_score(lines, score) == expected


@pytest.mark.parametrize(
    "lines",
    [
        "score = sqrt(score) if score > 0 else score",
        "score = (sqrt(score) if score > 0 else 0.0) + score",
        "let root = sqrt(score)\nscore = (root if score > 0 else 0.0) + (root if score > 1 else score)",
        "score = max(log(score), -9.0) + score",
        "score = (1 / score if score != 0 else 0.0) + score",
    ],
)
def test_what_is_not_taken_may_be_infinite(lines: str) -> None:
    """A product with 0 would make NaN of it."""
    assert by_score(lines, 0.0) == 1.0


# -------------------------------------------------------------------- reads of inputs


def test_reads_at_the_same_place_are_one() -> None:
    found = gradient(variant_of("score = score + rows[h, q_idx] + 2 * rows[h, q_idx] + rows[h, q_idx + 1]"))
    assert [(read.input, show(read.indices[1]), show(read.value)) for read in found.inputs] == [
        ("rows", "q_idx", "3.0"),
        ("rows", "(q_idx + 1)", "1.0"),
    ]


def test_inputs_that_are_not_learnable_have_none() -> None:
    assert gradient(variant_of("score = score * fixed[kv_idx]")).inputs == ()


def test_a_learnable_sink() -> None:
    variant = load(
        SourceFile(
            "test.attn", "attn 1\nvariant test {\n input s: f32[head] learnable\n score = score + s[h]\n sink s\n}"
        )
    ).variants[0]
    found = gradient(variant)
    assert found.sink is not None
    assert [show(index) for index in found.sink.indices] == ["h"]
    assert [read.input for read in found.inputs] == ["s"]


def test_without_score_lines() -> None:
    assert gradient(Variant("full")) == ScoreGradient(const(1.0), ())


def test_a_score_that_is_replaced() -> None:
    found = gradient(variant_of("score = cap"))
    assert (found.score, [show(read.value) for read in found.inputs]) == (const(0.0), ["1.0"])


# -------------------------------------------------------------------- the form


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("score = cap * tanh(score / cap)", "(1.0 - (tanh((score / cap)) * tanh((score / cap))))"),
        ("score = 49.0 * tanh(score / 49.0)", "(1.0 - (tanh((score / 49.0)) * tanh((score / 49.0))))"),
        ("score = score - fixed[h] * (q_pos - kv_idx)", "1.0"),
        ("score = -(-score)", "1.0"),
        ("score = score * score", "(score * 2.0)"),
        ("score = score / num_heads * fixed[kv_idx]", "((1.0 / to_float(num_heads)) * fixed[kv_idx])"),
        ("score = exp(score) * 3", "(exp(score) * 3.0)"),
    ],
)
def test_is_simple(lines: str, expected: str) -> None:
    assert show(gradient(variant_of(lines)).score) == expected


def test_lets_keep_the_score_they_saw() -> None:
    lines = "let early = score * score\nscore = score + 1\nscore = score + early"
    assert show(gradient(variant_of(lines)).score) == "((score * 2.0) + 1.0)"


def test_expressions_are_closed_and_share_nodes() -> None:
    found = gradient(variant_of("let ratio = score / cap\nscore = cap * tanh(ratio)"))
    (cap,) = found.inputs
    tanh = next(arg for arg in found.score.children[1].children)
    assert all(tanh is child for child in found.score.children[1].children)
    assert "ratio" not in show(found.score) + show(cap.value)
    by_cap = float(evaluate(cap.value, environment(score=0.3)))
    t = np.tanh(0.3 / 1.7)
    assert by_cap == pytest.approx(t - (1 - t * t) * 0.3 / 1.7)
