from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attncc.evaluate import Environment
from attncc.ir import Const, Keep, Load, Score, Type, Variant, apply, const, symbol
from attncc.statements import dropout_rate, effective_scale, keep_condition, scored, sink_logits
from tests.loaded import variant
from tests.plans import FULL, KEEP_CAUSAL, KEEP_WINDOW, LET_OF_SCORE, declared

ENVIRONMENT = Environment({"head_dim": 64, "h": np.arange(4)[:, None, None], "b": 1, "kv_h": np.arange(4) // 2})


def test_keep_lines_are_anded() -> None:
    assert keep_condition(FULL) is None
    assert keep_condition(Variant("one", statements=(KEEP_CAUSAL,))) == KEEP_CAUSAL.condition
    both = keep_condition(Variant("two", statements=(KEEP_CAUSAL, KEEP_WINDOW)))
    assert both == apply("and", KEEP_CAUSAL.condition, KEEP_WINDOW.condition)


def test_scored() -> None:
    environment = Environment(ENVIRONMENT.symbols, {}, LET_OF_SCORE.lets)
    np.testing.assert_array_equal(scored(LET_OF_SCORE, environment, np.array([1.0, -2.0])), [3.0, -6.0])
    untouched = np.array([1.0])
    assert scored(FULL, environment, untouched) is untouched


def test_scored_reads_what_came_before() -> None:
    twice = Score(apply("mul", symbol("score"), symbol("score")))
    squares = Variant("squares", statements=(twice, Keep(const(True)), twice))
    np.testing.assert_array_equal(scored(squares, ENVIRONMENT, np.array([2.0, 3.0])), [16.0, 81.0])


def test_effective_scale() -> None:
    assert effective_scale(FULL, ENVIRONMENT, None) == 1 / 8
    assert effective_scale(FULL, ENVIRONMENT, -2) == -2.0
    lined = Variant("lined", scale=apply("div", Const(Type.FLOAT, 1.0), apply("to_float", symbol("head_dim"))))
    assert effective_scale(lined, ENVIRONMENT, None) == 1 / 64
    assert effective_scale(lined, ENVIRONMENT, 0.0) == 0.0


@pytest.mark.parametrize(
    ("axes", "array", "expected"),
    [
        ((), np.float32(3), 3.0),
        (("head",), np.arange(4), np.arange(4)[:, None, None]),
        (("batch", "head"), np.arange(8).reshape(2, 4), 4 + np.arange(4)[:, None, None]),
        (("kv_head",), np.array([5, 6]), [5, 5, 6, 6]),
    ],
)
def test_sink_logits(axes, array, expected) -> None:
    variant = Variant("sunk", inputs=(declared("logit", "f32", *axes),), sink="logit")
    environment = Environment(ENVIRONMENT.symbols, {"logit": np.asarray(array, np.float32)})
    np.testing.assert_array_equal(sink_logits(variant, environment), expected)
    assert sink_logits(FULL, environment) is None


def test_dropout_rate() -> None:
    assert dropout_rate(FULL, ENVIRONMENT) == 0
    assert dropout_rate(Variant("fixed", dropout=Const(Type.FLOAT, 0.5)), ENVIRONMENT) == 0.5
    rated = Variant("rated", dropout=Load(Type.FLOAT, "rate", ()))
    assert dropout_rate(rated, Environment({}, {"rate": np.array(0.25, np.float32)})) == 0.25


def test_a_variant_is_shown_as_it_is_written() -> None:
    """Lines of its own, on one line each and without comments; what a mask brings stands in its call alone."""
    items = "mask image(size) {\n  let i = kv_idx // size\n  keep if i == q_idx // size\n}"
    let = "let d = q_pos\n   - kv_idx  # far"
    lines = f"const size: int = 64\n{let}\nkeep if image(size)\nscore = score / 2 * d\nscale 1 / 4"
    written = variant(lines, items, size=32)
    assert written.show().splitlines() == [
        "variant v",
        "  const size = 32",
        "  let d = q_pos - kv_idx",
        "  keep if image(size)",
        "  score = score / 2 * d",
        "  scale 1 / 4",
    ]
    assert "  let image__i: int = (kv_idx // 32)" in written.show_lowered().splitlines()
    unspanned = replace(written, statements=tuple(replace(item, span=None) for item in written.statements))
    assert unspanned.show().splitlines()[2:6] == written.show_lowered().splitlines()[2:6]
