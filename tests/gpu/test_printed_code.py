"""Printed functions against `evaluate`, on a GPU: the same bits for masks and tile rules, few ulp for floats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncc.analysis.mask.grid import rule_tables
from attncc.analysis.mask.tiles import analyse
from attncc.evaluate import Environment, evaluate
from attncc.ir import Input, Load, Score, Type, Variant, apply, const, symbol
from attncc.kernels.registry import facts_of
from attncc.operators import FLOAT_FUNCTIONS, WHOLE_FUNCTIONS
from attncc.problem import Problem
from attncc.problem.arrays import environment, sequence_inputs
from attncc.problem.facts import INPUT_DTYPES
from attncc.problem.inputs import passed_axes
from attncc.problem.problem import Sequence
from attncc.statements import keep_condition
from tests import plans
from tests.random_ir import random_variant

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

DENSE = Problem(2, 4, 2, 21, 33, 16, 16)
PACKED = Problem(3, 4, 2, 30, 41, 16, 16, packed=True, q_starts=(0, 9, 14, 30), kv_starts=(0, 20, 21, 41))
PROBLEMS = {"dense": DENSE, "packed": PACKED}
SHARED_LENGTH = 12  # of axes that the sequences of a packed batch share; some sequences are longer


def run(*arguments: Any, **keywords: Any) -> np.ndarray:
    from tests.gpu.printed_code import run as launch

    return launch(torch, *arguments, **keywords)


def random_arrays(variant: Variant, problem: Problem, seed: int) -> dict[str, np.ndarray]:
    """Inputs as a call passes them: small ints, and a few that fill their type."""
    generator = np.random.default_rng(seed)
    lengths = {"batch": problem.batch, "head": 4, "kv_head": 2, "q": problem.q_len, "kv": problem.kv_len}
    lengths |= {"pos": problem.kv_len + 5}

    def array(item: Input) -> np.ndarray:
        shared = problem.packed and not any(axis.tag == "batch" for axis in item.axes)
        known = {**lengths, **dict.fromkeys(("q", "kv", "pos"), SHARED_LENGTH)} if shared else lengths
        shape = tuple(axis.length or known.get(axis.tag or "", 19) for axis in passed_axes(item, problem))
        if item.type is Type.FLOAT:
            dtype = ml_dtypes.bfloat16 if item.dtype == "bf16" else INPUT_DTYPES[item.dtype]
            return generator.normal(size=shape).astype(dtype)
        if item.type is Type.BOOL:
            return generator.random(shape) < 0.5
        wide = generator.integers(-(2**63), 2**63 - 1, shape) if item.dtype == "i64" else 0
        small = generator.integers(-5, 40, shape)
        if item.nondecreasing:
            return np.sort(small, axis=-1).astype(INPUT_DTYPES[item.dtype])
        return np.asarray(np.where(generator.random(shape) < 0.8, small, wide)).astype(INPUT_DTYPES[item.dtype])

    return {item.name: array(item) for item in variant.inputs}


def known_to(
    variant: Variant, problem: Problem, sequence: Sequence, inputs: dict[str, np.ndarray], dtype: Any = np.float32
) -> Environment:
    """What the pairs of a sequence read."""
    seen = sequence_inputs(variant, problem, sequence, inputs)
    q_idx, kv_idx = np.ogrid[: sequence.q_len, : sequence.kv_len]
    q_pos = q_idx + sequence.kv_len - sequence.q_len
    places = {"q_idx": q_idx, "kv_idx": kv_idx, "q_pos": q_pos, "scale": 0.25}
    return environment(variant, problem, sequence, seen, dtype).with_symbols(**places)


# -------------------------------------------------------------------- masks and tiles


@pytest.mark.parametrize("layout", PROBLEMS)
@pytest.mark.parametrize("seed", range(60))
def test_masks_agree_bit_for_bit(seed: int, layout: str) -> None:
    from tests.gpu.printed_code import KEEP

    problem, variant = PROBLEMS[layout], random_variant(seed + 1000 * (layout == "packed"))
    inputs, condition = random_arrays(variant, problem, seed), keep_condition(variant)
    assert condition is not None
    for sequence in problem.sequences():
        shape = (sequence.q_len, sequence.kv_len)
        found = run(
            plans.plan(variant, skip="never"), KEEP, problem=problem, sequence=sequence, shape=shape, inputs=inputs
        )
        wanted = evaluate(condition, known_to(variant, problem, sequence, inputs))
        np.testing.assert_array_equal(found, np.broadcast_to(wanted, found.shape).astype(np.float32))


TILED = {variant.name: variant for variant in plans.VARIANTS if variant.keeps}
HINTED = tuple(replace(item, nondecreasing=True) for item in plans.DOCUMENTS.inputs)
TILED["hinted documents"] = replace(plans.DOCUMENTS, inputs=HINTED)
TILED |= {f"random {seed}": random_variant(seed, depth=2) for seed in range(40)}


@pytest.mark.parametrize("layout", PROBLEMS)
@pytest.mark.parametrize("name", TILED)
def test_tile_rules_agree_bit_for_bit(name: str, layout: str) -> None:
    from tests.gpu.printed_code import KV_BOUNDS, TILE_KIND

    variant, problem, block_q, block_kv = TILED[name], PROBLEMS[layout], 16, 16
    rules = analyse(variant, block_q, block_kv)
    plan = plans.plan(variant, rules=rules, block_q=block_q, block_kv=block_kv, warps=1, skip="in_kernel")
    inputs = random_arrays(variant, problem, 3)
    tables = rule_tables(rules, variant, problem, inputs)
    passed = inputs | {name: table[0] if problem.packed else table for name, table in tables.items()}
    for sequence in problem.sequences():
        q_first, kv_first = np.arange(0, sequence.q_len, block_q)[:, None], np.arange(0, sequence.kv_len, block_kv)
        q_last = np.minimum(q_first + block_q, sequence.q_len) - 1
        kv_last = np.minimum(kv_first + block_kv, sequence.kv_len) - 1
        seen = environment(
            variant, problem, sequence, {**sequence_inputs(variant, problem, sequence, inputs), **tables}, np.float32
        )
        rows = seen.with_symbols(q_first=q_first, q_last=q_last)
        bounds = (rules.kv_begin, rules.full_begin, rules.full_end, rules.kv_end)
        shape = (q_first.size, len(bounds))
        wanted = [np.broadcast_to(evaluate(bound, rows), (4, q_first.size, 1)) for bound in bounds]
        found = run(plan, KV_BOUNDS, problem=problem, sequence=sequence, shape=shape, inputs=passed)
        np.testing.assert_array_equal(found, np.concatenate(wanted, axis=-1))
        if facts_of(plan).uses_tile_kind:
            tiles = rows.with_symbols(kv_first=kv_first, kv_last=kv_last)
            some, every = evaluate(rules.any_kept, tiles), evaluate(rules.all_kept, tiles)
            kinds = np.where(some, np.where(every, 2, 1), 0)
            shape = (q_first.size, kv_first.size)
            found = run(plan, TILE_KIND, problem=problem, sequence=sequence, shape=shape, inputs=passed)
            np.testing.assert_array_equal(found, np.broadcast_to(kinds, found.shape))


# -------------------------------------------------------------------- scores

DOMAINS = {
    "exp": (-80, 80), "exp2": (-120, 120), "log": (1e-3, 50), "tanh": (-12, 12), "sigmoid": (-60, 60),
    "erf": (-5, 5), "sqrt": (0, 1e6), "sin": (-200, 200), "cos": (-200, 200), "log2": (1e-3, 50),
    "softplus": (-40, 40), "gelu": (-2, 6), "gelu_tanh": (-3, 6),
}  # fmt: skip
ULP = {"sigmoid": 4, "sin": 4, "cos": 4, "softplus": 4, "silu": 6, "gelu": 12, "gelu_tanh": 24}


def scored(variant: Variant, scores: np.ndarray, inputs: dict[str, np.ndarray], dtype: Any) -> tuple[Any, Any]:
    """The printed score lines, and an environment in which to evaluate them."""
    from tests.gpu.printed_code import SCORE

    sequence = next(DENSE.sequences())
    shape = (sequence.q_len, sequence.kv_len)
    found = run(plans.plan(variant), SCORE, problem=DENSE, sequence=sequence, shape=shape, inputs=inputs, scores=scores)
    return found, known_to(variant, DENSE, sequence, inputs, dtype).with_symbols(score=scores.astype(dtype))


@pytest.mark.parametrize("name", FLOAT_FUNCTIONS)
def test_functions_are_accurate(name: str) -> None:
    low, high = DOMAINS.get(name, (-6, 6))
    scores = np.random.default_rng(1).uniform(low, high, (4, 21, 33)).astype(np.float32)
    scores[0] *= 2.0 ** -np.arange(21)[:, None]  # and small ones
    variant = Variant("function", statements=(Score(apply(name, symbol("score"))),))
    found, seen = scored(variant, scores, {}, np.float64)
    exact = evaluate(variant.scores[0].value, seen)
    errors = np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert errors.max() <= ULP.get(name, 2.5), (name, errors.max(), scores.ravel()[errors.argmax()])


@pytest.mark.parametrize("name", WHOLE_FUNCTIONS)
def test_functions_that_give_ints(name: str) -> None:
    scores = (np.arange(4 * 21 * 33).reshape(4, 21, 33) - 1000).astype(np.float32) / 8
    line = Score(apply("to_float", apply(name, symbol("score"))))
    found, seen = scored(Variant("whole", statements=(line,)), scores, {}, np.float32)
    np.testing.assert_array_equal(found, evaluate(line.value, seen))


def test_signs() -> None:
    """Of floats, and of ints of both widths."""
    distance = apply("sub", symbol("q_pos"), symbol("kv_idx"))
    far = apply("mul", distance, const(2**40))
    ints = apply("add", apply("sign", distance), apply("mul", apply("sign", far), const(3)))
    line = Score(apply("add", apply("sign", symbol("score")), apply("to_float", ints)))
    scores = np.random.default_rng(4).normal(size=(4, 21, 33)).astype(np.float32)
    scores[0, :4] = np.array([[0.0], [-0.0], [np.nan], [np.inf]], np.float32)
    found, seen = scored(Variant("signs", statements=(line,)), scores, {}, np.float32)
    np.testing.assert_array_equal(found, evaluate(line.value, seen))


def test_special_values_of_floor_and_min() -> None:
    values = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.5, 2.5, 2.0**31, -(2.0**31) - 300]
    floored = apply("to_float", apply("floor", symbol("score")))
    line = Score(apply("min", floored, apply("max", symbol("score"), const(-1e20))))
    variant = Variant("special", statements=(line,))
    found, seen = scored(variant, np.resize(np.float32(values), (4, 21, 33)), {}, np.float32)
    np.testing.assert_array_equal(found, evaluate(line.value, seen))


def test_score_lines() -> None:
    """Two lines, a scalar, and a division by a value that all pairs share."""
    cap, slope = Load(Type.FLOAT, "cap", ()), Load(Type.FLOAT, "slope", (symbol("h"),))
    distance = apply("to_float", apply("sub", symbol("q_pos"), symbol("kv_idx")))
    lines = (
        Score(apply("sub", symbol("score"), apply("mul", slope, distance))),
        Score(apply("mul", cap, apply("tanh", apply("div", symbol("score"), cap)))),
    )
    inputs = (Input("cap", "f32", ()), plans.declared("slope", "f32", "head"))
    variant = Variant("scored", inputs=inputs, statements=lines)
    arrays = {"cap": np.float32(7.5), "slope": np.float32([0.5, 0.25, 0.125, 0.0])}
    scores = np.random.default_rng(2).normal(size=(4, 21, 33)).astype(np.float32) * 9
    found, seen = scored(variant, scores, arrays, np.float64)
    first = evaluate(lines[0].value, seen)
    np.testing.assert_allclose(found, evaluate(lines[1].value, seen.with_symbols(score=first)), rtol=2e-6, atol=2e-6)
