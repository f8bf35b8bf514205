"""The normal form of a random predicate says the same of every pair, whatever the inputs hold."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.analysis.algebra.algebra import Algebra
from attncc.analysis.algebra.canonical import Canonical
from attncc.evaluate import Environment, evaluate
from attncc.ir import show
from tests.examples import examples

from .masks import boolean, integer, mask_of, random_environment, random_variant


def pairs(environment: Environment) -> Environment:
    q_len, kv_len = (int(environment.symbols[name]) for name in ("q_len", "kv_len"))
    q_idx, kv_idx = np.arange(q_len)[:, None], np.arange(kv_len)
    return environment.with_symbols(q_idx=q_idx, kv_idx=kv_idx, q_pos=q_idx + kv_len - q_len)


@pytest.mark.parametrize("numbers", examples(1500, every_day=300))
def test_ints_equal_their_normal_form(numbers: range) -> None:
    """With inputs at the ends of their dtypes in every other case, so that sums wrap; its range holds them all."""
    for index in numbers:
        random = np.random.default_rng((31, index))
        algebra = Algebra(random_variant(random), 32, 32)
        expr = integer(random, 4)
        normal = Canonical(algebra, {}).of(expr)
        seen = pairs(random_environment(random, *random.integers(1, 60, 2), extreme=index % 2 == 0))
        values = evaluate(expr, seen)
        assert (evaluate(normal, seen) == values).all(), f"{show(expr)}\n{show(normal)}"
        low, high = algebra.range(normal)
        assert low <= values.min() and values.max() <= high, show(expr)


@pytest.mark.parametrize("numbers", examples(1000, every_day=200))
def test_bools_equal_their_normal_form_and_contradict_its_negation(numbers: range) -> None:
    for index in numbers:
        random = np.random.default_rng((32, index))
        algebra = Algebra(random_variant(random), 32, 32)
        expr = boolean(random, 3, floats=0.5)
        normal = Canonical(algebra, {}).of(expr)
        seen = pairs(random_environment(random, *random.integers(1, 60, 2), extreme=index % 2 == 0))
        values = evaluate(expr, seen)
        assert (evaluate(normal, seen) == values).all(), f"{show(expr)}\n{show(normal)}"
        assert (evaluate(algebra.negation(normal), seen) != values).all(), show(expr)


def test_masks_of_the_generator_vary() -> None:
    """The generator is worth its time: most of its masks keep some pairs and leave out others."""
    mixed = 0
    for index in range(200):
        random = np.random.default_rng((34, index))
        mask = mask_of(random_variant(random), random_environment(random, 100, 120))
        mixed += mask.any() and not mask.all()
    assert mixed > 100
