"""What users read of single functions: values, tails, kinks, and what the mask analysis makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from attncc.analysis.mask.tiles import analyse
from attncc.analysis.score.gradient import gradient
from attncc.evaluate import Environment, evaluate
from attncc.ir import Type
from tests.printed import variant


def scored(expression: str, score: np.ndarray) -> np.ndarray:
    return evaluate(variant(f"score = {expression}").scores[0].value, Environment({"score": score}))


def slope(expression: str, score: float) -> float:
    found = gradient(variant(f"score = {expression}")).score
    return float(evaluate(found, Environment({"score": np.array(score)})))


def test_round_takes_the_even_one_of_two() -> None:
    given = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4999, -7.6])
    assert scored("round(score)", given).tolist() == [-2, -2, 0, 0, 2, 2, 2, -8]
    assert variant("let n = round(score)\nscore = score + n").lets["n"].value.type is Type.INT


def test_round_and_sign_of_ints() -> None:
    kept = variant("keep if round(kv_idx) == kv_idx and sign(kv_idx - 3) == -1").keeps[0].condition
    found = evaluate(kept, Environment({"kv_idx": np.arange(6)}))
    assert found.tolist() == [True, True, True, False, False, False]


EXACT: dict[str, Callable[[float], float]] = {
    "softplus": lambda x: math.log1p(math.exp(x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "log2": lambda x: math.log2(abs(x) + 1),
}


@pytest.mark.parametrize("name", EXACT)
def test_values(name: str) -> None:
    given = np.array([-3.2, -1.0, -1e-4, 0.0, 1e-4, 0.7, 2.0, 5.5])
    written = "log2(abs(score) + 1)" if name == "log2" else f"{name}(score)"
    np.testing.assert_allclose(scored(written, given), [EXACT[name](x) for x in given], rtol=1e-12, atol=1e-17)


def test_tails_keep_their_digits() -> None:
    np.testing.assert_allclose(scored("softplus(score)", np.array([-80.0, 90.0])), [math.exp(-80), 90], rtol=1e-12)
    np.testing.assert_allclose(
        scored("gelu(score)", np.array([-9.0])), [-4.5 * math.erfc(9 / math.sqrt(2))], rtol=1e-12
    )


def test_the_two_forms_of_gelu_differ_a_little() -> None:
    given = np.linspace(-6, 6, 500)
    apart = np.abs(scored("gelu(score)", given) - scored("gelu_tanh(score)", given))
    assert 1e-4 < apart.max() < 5e-4


@pytest.mark.parametrize(
    ("expression", "score", "expected"),
    [
        ("sign(score)", 0.0, 0.0), ("sign(score)", 3.0, 0.0), ("score * sign(score)", -2.0, -1.0),
        ("score + round(score)", 0.5, 1.0), ("score + round(score)", 0.7, 1.0),
        ("softplus(score)", 0.0, 0.5), ("silu(score)", 0.0, 0.5), ("gelu(score)", 0.0, 0.5),
        ("gelu_tanh(score)", 0.0, 0.5),
    ],
)  # fmt: skip
def test_gradients(expression: str, score: float, expected: float) -> None:
    assert slope(expression, score) == pytest.approx(expected, abs=1e-12)


def test_tiles_of_a_mask_by_sign_are_decided() -> None:
    """It grows with its argument, so the ends of a tile tell: as of `q_pos >= kv_idx`."""
    rules = analyse(variant("keep if sign(q_pos - kv_idx) >= 0"), 32, 32)
    plain = analyse(variant("keep if q_pos >= kv_idx"), 32, 32)
    tiles = {
        "q_len": 256,
        "kv_len": 256,
        "q_offset": 0,
        "q_first": np.arange(0, 256, 32)[:, None],
        "kv_first": np.arange(0, 256, 32),
    }
    tiles |= {"q_last": tiles["q_first"] + 31, "kv_last": tiles["kv_first"] + 31}
    seen = Environment(tiles)
    for rule in ("any_kept", "all_kept"):
        np.testing.assert_array_equal(evaluate(getattr(rules, rule), seen), evaluate(getattr(plain, rule), seen))
