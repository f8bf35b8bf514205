"""The cheap form of score lines: what it is, and that it equals them."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.algebra.algebra import TRUE
from attncc.analysis.score.gradient import final_score
from attncc.analysis.score.score_form import NEAR_SERIES, SERIES, ScoreForm, Series, score_form
from attncc.evaluate import Environment, evaluate
from attncc.ir import Score, Variant, apply, show
from tests.printed import variant

INPUTS = """
input slope: f32[head]
input rows: f32[batch, q]
input keys: f32[batch, kv]
input cap: f32
input far: i64
"""
VALUES = {
    "slope": np.array([-0.3, 0.7]),
    "rows": np.array([[0.3, -0.2, 0.8, 0.1]]),
    "keys": np.arange(5.0)[None],
    "cap": np.asarray(20.0),
    "far": np.asarray(3),
}


def form(lines: str) -> ScoreForm | None:
    return score_form(variant(INPUTS + lines), 64, 32)


@pytest.mark.parametrize(
    ("lines", "terms", "step", "curve"),
    [
        ("score = score + slope[h]", 1, "0.0", "0.0"),
        ("score = score + rows[b, q_idx] - log(kv_len)", 1, "0.0", "0.0"),
        ("score = score - slope[h] * (q_pos - kv_idx)", 1, "slope[h]", "0.0"),
        (
            "let d = 2 * (q_pos - kv_idx) + 1\nscore = (slope[h] * d + score) / 4",
            1,
            "(slope[h] * -0.5)",
            "0.0",
        ),
        ("score = -score * slope[h]\nscore = score + kv_idx / cap", 1, "(1.0 / cap)", "0.0"),
        ("score = score + rows[b, q_idx] * (kv_idx * h)", 1, "(to_float(h) * rows[b, q_idx])", "0.0"),
        ("score = cap * tanh(score / cap)", 3, "0.0", "0.0"),
        (
            "score = score - slope[h] * ((q_pos - kv_idx) * (q_pos - kv_idx))",
            1,
            "((slope[h] * 2.0) * to_float((q_pos - kv_idx)))",
            "neg(slope[h])",
        ),
        (
            "score = score + (1 + kv_idx / cap) * (rows[b, q_idx] - kv_idx)",
            1,
            "(neg((1.0 + (to_float(kv_idx) / cap))) + ((1.0 / cap) * (rows[b, q_idx] - to_float(kv_idx))))",
            "neg((1.0 / cap))",
        ),
        (
            "score = score + slope[h] * (kv_idx * kv_idx - 3 * q_pos * kv_idx)",
            1,
            "(slope[h] * ((to_float(kv_idx) * 2.0) - to_float((3 * q_pos))))",
            "slope[h]",
        ),
        ("score = 30 * tanh(score / 30) - 7\nscore = score + (kv_idx - q_pos) * slope[h]", 3, "slope[h]", "0.0"),
    ],
)
def test_the_form_equals_the_lines(lines: str, terms: int, step: str, curve: str) -> None:
    found = form(lines)
    assert found is not None and (len(found.terms), show(found.step), show(found.curve)) == (terms, step, curve)
    assert found.holds == TRUE
    kv_idx, product = np.meshgrid(np.arange(5), np.linspace(-12, 12, 25))
    symbols = {"b": 0, "h": 1, "q_idx": 2, "q_pos": 6, "kv_idx": kv_idx, "kv_len": 9, "scale": -0.7}
    places = Environment({**symbols, "score": 0.7 * product}, VALUES)
    factor = sum(evaluate(term, places) * product ** (2 * i) for i, term in enumerate(found.terms))
    first, keys = places.with_symbols(kv_idx=3), kv_idx - 3
    bias = evaluate(found.bias, first) + evaluate(found.step, first) * keys + evaluate(found.curve, first) * keys**2
    expected = evaluate(final_score(variant(INPUTS + lines)), places)
    np.testing.assert_allclose(product * factor + bias, expected, atol=3e-4 if terms > 1 else 1e-12)
    if terms > 1:
        assert abs(evaluate(found.argument, places) * 12) <= found.reach


@pytest.mark.parametrize(
    "lines",
    [
        "score = slope[h]",  # the product doesn't count
        "score = score * score",
        "score = score * rows[b, q_idx]",  # a factor for each row
        "score = 2 / score",
        "score = score + tanh(score)",
        "score = tanh(score + kv_idx)",
        "score = tanh(tanh(score))",
        "score = score + keys[b, kv_idx]",
        "score = score + abs(slope[h] * (q_pos - kv_idx))",  # nothing is known of a float
        "score = score + (1.0 if kv_idx % 7 == 3 else 0.0)",  # few tiles are on one side
        "score = score + (1.0 if keys[b, kv_idx] > 0.5 else 0.0)",
        "score = score + (keys[b, kv_idx] if kv_idx > q_pos else 0.0)",
        "score = score + kv_idx * kv_idx * kv_idx",  # of degree three
        "score = score + (1.0 if (q_pos - kv_idx) * (q_pos - kv_idx) < 50 else 0.0)",  # three arms in a row of tiles
        "score = score + 1 / (1 + kv_idx)",
        "score = score + (kv_idx + far)",  # may wrap
        "score = exp(score)",
        "score = score + rows[b, (q_idx + kv_idx) // 2 + kv_idx]",  # differs in any tile
        "score = score + keys[b, floor(log(1 + kv_idx))]",  # nothing is known of a float
        "score = score + keys[b, min(far + kv_idx, 3)] + (kv_idx % 4)",
    ],
)
def test_lines_without_such_a_form(lines: str) -> None:
    assert form(lines) is None


@pytest.mark.parametrize(
    "index",
    ["clamp(kv_idx - q_pos, -7, 9) + 7", "max(q_pos - kv_idx, 0) // 40", "5 - min(abs(kv_idx - q_pos) // 16, 3)"],
)
def test_a_lookup_counts_where_all_of_a_tile_read_one_entry(index: str) -> None:
    """Never where it isn't so, and in most tiles where it is."""
    found = form(f"let place = {index}\nscore = score + keys[b, place] * slope[h]")
    assert found is not None and show(found.step) == "0.0"
    place = variant(f"{INPUTS}score = score * ({index})").scores[0].value
    right = 0
    for q_first, kv_first in np.ndindex(12, 25):
        tile = {
            "q_first": 16 * q_first,
            "q_last": 16 * q_first + 15,
            "kv_first": 8 * kv_first,
            "kv_last": 8 * kv_first + 7,
        }
        sizes = {"q_len": 192, "kv_len": 200, "q_offset": 8, "h": 0, "b": 0, "score": 1.0}
        holds = bool(evaluate(found.holds, Environment({**tile, **sizes}, VALUES)))
        q_idx, kv_idx = np.ogrid[tile["q_first"] : tile["q_last"] + 1, tile["kv_first"] : tile["kv_last"] + 1]
        pairs = Environment({**sizes, "q_idx": q_idx, "q_pos": q_idx + 8, "kv_idx": kv_idx})
        same = len(np.unique(evaluate(place, pairs))) == 1
        assert same or not holds
        right += same == holds
    assert right >= 0.95 * 300


@pytest.mark.parametrize(
    "part",
    [
        "abs(q_pos - kv_idx)",
        "abs(2 * kv_idx - 200) - abs(kv_idx - q_idx)",
        "abs(abs(kv_idx - 100) - 40)",
        "min(abs(q_pos - kv_idx), 70)",
        "clamp(kv_idx - q_pos, -50, 20)",
        "max(q_pos - kv_idx - 30, 0)",
        "slope[0] * (q_pos - kv_idx) if q_pos >= kv_idx else 3.0 * kv_idx",
        "(slope[0] if q_pos >= kv_idx else slope[1]) * abs(q_pos - kv_idx)",
        "1.0 if kv_idx > q_pos and not kv_idx - q_pos > 60 else 0.25 * kv_idx",
        "abs(q_pos - kv_idx) * min(abs(q_pos - kv_idx), 30)",
    ],
)
def test_arms_count_where_one_holds_for_all_of_a_tile(part: str) -> None:
    """There it is affine; elsewhere the form doesn't hold, though in few tiles."""
    line = f"score = score - slope[h] * ({part})"
    found, exact = form(line), final_score(variant(INPUTS + line))
    assert found is not None
    held = 0
    for q_first, kv_first in np.ndindex(12, 25):
        ends = {
            "q_first": 16 * q_first,
            "q_last": 16 * q_first + 15,
            "kv_first": 8 * kv_first,
            "kv_last": 8 * kv_first + 7,
        }
        sizes = {"q_len": 192, "kv_len": 200, "q_offset": 8, "h": 0, "b": 0, "score": 1.0, "scale": 1.0}
        if not evaluate(found.holds, Environment({**ends, **sizes}, VALUES)):
            continue
        held += 1
        q_idx, kv_idx = np.ogrid[ends["q_first"] : ends["q_last"] + 1, ends["kv_first"] : ends["kv_last"] + 1]
        pairs = Environment({**sizes, "q_idx": q_idx, "q_pos": q_idx + 8, "kv_idx": kv_idx}, VALUES)
        first = pairs.with_symbols(kv_idx=kv_idx[:, :1])
        keys = kv_idx - kv_idx[:, :1]
        bias = evaluate(found.bias, first) + evaluate(found.step, first) * keys + evaluate(found.curve, first) * keys**2
        np.testing.assert_allclose(1.0 + bias - evaluate(exact, pairs) + 0 * q_idx, 0, atol=1e-12)
    assert held >= 0.7 * 300


@pytest.mark.parametrize(("name", "series"), [*SERIES.items(), *NEAR_SERIES.items()])
def test_series_are_accurate(name: str, series: Series) -> None:
    """To 1e-5 absolutely, and relatively to less than the rounding of a 16-bit score, which is at least 2^-12."""
    x = np.linspace(1e-6, series.reach, 100_001)
    expected = getattr(np, name)(x)
    found = x * sum(term * x ** (2 * i) for i, term in enumerate(series.terms))
    assert np.abs(found - expected).max() < 1e-5
    assert np.abs(found / expected - 1).max() < 1e-4


def test_lets_that_read_others_twice_are_looked_at_once() -> None:
    """Written out, they are 3**30 parts: the parser refuses them, but what brings a let into form shares them."""
    expr = final_score(variant("score = score * 0.5"))
    for _ in range(30):
        expr = apply("add", apply("mul", expr, expr), expr)
    assert score_form(Variant("doubling", statements=(Score(expr),)), 64, 64) is None
