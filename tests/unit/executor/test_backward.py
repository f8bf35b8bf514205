"""The executor's backward pass against the dense reference, and what it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import executor, reference, synthetic
from attncc.analysis.cost.cost import Traffic
from attncc.analysis.mask.grid import rule_tables
from attncc.analysis.mask.tiles import analyse
from attncc.analysis.rules import TileKind
from attncc.diagnostics import AttnccError
from attncc.evaluate import Environment
from attncc.executor.run import plan_grid
from attncc.ir import Variant
from attncc.kernels.registry import facts_of
from attncc.problem import Problem, Signature, bind_arrays
from attncc.problem.gradients import Gradients
from attncc.reference import accuracy
from attncc.resources import folder
from attncc.schedule.plan import KernelPlan
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.plans import ALIBI, FULL, SIGMOID, UNNORMALISED, VARIANTS, arguments, plan, qkv

LENGTHS = (45, 70)
LEARNABLE = """attn 1
variant learned {
    input slope: f32[head] learnable
    input cap:   f32 learnable
    input bias:  f32[batch, pos] learnable
    input logit: f32[head] learnable

    let distance = q_pos - kv_idx
    keep if 0 <= distance
    keep if q_idx >= 5
    score = score - slope[h] * distance
    score = cap * tanh(score / cap) + bias[b, kv_idx]
    sink logit
    dropout 0.25
}
"""
LEARNED = load(SourceFile("learned", LEARNABLE)).variants[0]


def call_of(variant: Variant, packed: bool) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    call = arguments(variant, 2, 4, LENGTHS[1]) if variant is not LEARNED else _learned(rng)
    if variant.dropout is not None:
        call["seed"] = 11
    if packed:
        call |= {"cu_seqlens_q": np.array([0, 20, 45], np.int32), "cu_seqlens_kv": np.array([0, 25, 70], np.int32)}
        call |= {name: call[name][0] for name in ("bias", "doc") if name in call}
    return call


def _learned(rng: np.random.Generator) -> dict[str, Any]:
    shapes = {"slope": (4,), "bias": (2, LENGTHS[1]), "logit": (4,)}
    return {"cap": 3.0, **{name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}}


def operands(dtype: str, packed: bool) -> tuple[Any, ...]:
    q, k, v = qkv(dtype, lengths=LENGTHS, head_dims=(16, 24))
    dout = np.random.default_rng(5).standard_normal((*q.shape[:-1], 24)).astype(q.dtype)
    return tuple(array[0] if packed else array for array in (dout, q, k, v))


def plans(variant: Variant, dtype: str) -> tuple[KernelPlan, KernelPlan]:
    """Of blocks that own keys, and of those that own rows, in tiles of other sizes."""
    keys = plan(variant, dtype, 16, 24, pass_name="backward", loop="kv_outer", block_q=16, block_kv=32)
    return keys, plan(variant, dtype, 16, 24, pass_name="backward_dq", block_q=32, block_kv=16)


def both(
    variant: Variant, dtype: str, packed: bool = False, *, deterministic: bool = False
) -> tuple[Gradients, Gradients]:
    """What the executor gives, and the reference."""
    own, call = plan(variant, dtype, 16, 24), call_of(variant, packed)
    dout, q, k, v = operands(dtype, packed)
    forward = executor.run(own, q, k, v, **call)
    results: dict[str, Any] = {}
    if forward.lse is not None:
        results["dlse"] = np.random.default_rng(6).standard_normal(forward.lse.shape).astype(forward.lse.dtype)
        call_back = {"out": forward.out, "lse": forward.lse, **results}
    else:
        call_back = {"out": forward.out}
    found = executor.run_backward(
        plans(variant, dtype), dout, q, k, v, deterministic=deterministic, **call_back, **call
    )
    return found.gradients, reference.backward(variant, dout, q, k, v, **results, **call)


@pytest.mark.parametrize("variant", [*VARIANTS, LEARNED], ids=lambda variant: variant.name)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_agrees_with_the_reference(variant: Variant, deterministic: bool, packed: bool) -> None:
    found, expected = both(variant, "fp64", packed, deterministic=deterministic)
    for name in ("dq", "dk", "dv"):
        got = getattr(found, name)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, getattr(expected, name), rtol=1e-9, atol=1e-11, err_msg=name)
    assert found.inputs.keys() == expected.inputs.keys()
    for name, value in expected.inputs.items():
        assert found.inputs[name].shape == np.shape(value)
        np.testing.assert_allclose(found.inputs[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("variant", [ALIBI, LEARNED, SIGMOID, UNNORMALISED], ids=lambda variant: variant.name)
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_keeps_the_accuracy_rule(variant: Variant, dtype: str) -> None:
    found, exact = both(variant, dtype)
    dout, q, k, v = operands(dtype, packed=False)
    dlse = np.random.default_rng(6).standard_normal(q.shape[:-1]).astype(np.float32)
    given = {"dlse": dlse} if variant.normalize == "softmax" else {}
    plain = reference.baseline_backward(variant, dout, q, k, v, **given, **call_of(variant, packed=False))
    for name in ("dq", "dk", "dv"):
        figures = accuracy(getattr(found, name), getattr(plain, name), getattr(exact, name), dtype)
        assert figures.holds, (name, str(figures))
        assert figures.max_error > 0


def test_gradients_of_inputs_have_their_types() -> None:
    found, _ = both(LEARNED, "bf16")
    assert {name: array.dtype for name, array in found.inputs.items()} == dict.fromkeys(
        ("slope", "cap", "bias", "logit"), np.dtype(np.float32)
    )
    assert found.inputs["cap"].shape == ()


def test_empty_rows_are_exactly_zero_and_nothing_is_nan() -> None:
    found, _ = both(LEARNED, "bf16")
    assert not found.dq[:, :, :5].any()
    assert all(np.isfinite(array.astype(float)).all() for array in (found.dq, found.dk, found.dv))


def test_bytes_by_hand() -> None:
    """Two query heads on one key head: keys are read once for both."""
    rows, keys, half, single = 2 * 64, 48, 2, 4
    q_row, v_row = 16 * half, 24 * half
    out_and_lse = {"out": rows * v_row, "lse": rows * single}
    added, alone = traffic("fp16", deterministic=False), traffic("fp16", deterministic=True)
    assert added.reads == {
        **out_and_lse, "k": keys * q_row, "v": keys * v_row, "q": 2 * rows * q_row, "dout": 3 * rows * v_row,
        "statistics": 2 * rows * 2 * single, "partial_dq": rows * 16 * single,
    }  # fmt: skip
    assert added.writes == {
        "statistics": rows * 2 * single, "partial_dq": 3 * rows * 16 * single,
        "dq": rows * q_row, "dk": keys * q_row, "dv": keys * v_row,
    }  # fmt: skip
    assert alone.reads == {
        **out_and_lse, "k": keys * q_row + 2 * 2 * keys * q_row, "v": keys * v_row + 2 * 2 * keys * v_row,
        "q": 3 * rows * q_row, "dout": 4 * rows * v_row, "statistics": 3 * rows * 2 * single,
    }  # fmt: skip
    assert "partial_dq" not in alone.writes


def test_bytes_in_fp32() -> None:
    """dQ is made on its own, and statistics of a row are 16 bytes: in the format of kernels, what lse lost is there."""
    found, ordered = traffic("fp32", deterministic=False), traffic("fp32", deterministic=True)
    assert found == ordered
    assert "partial_dq" not in found.writes
    assert (found.reads["statistics"], found.writes["statistics"]) == (3 * 128 * 16, 128 * 16)


def traffic(dtype: str, *, deterministic: bool) -> Traffic:
    q, k, v = qkv(dtype, batch=1, heads=(2, 1), lengths=(64, 48), head_dims=(16, 24))
    forward = executor.run(plan(FULL, dtype, 16, 24), q, k, v)
    given = {"out": forward.out, "lse": forward.lse, "deterministic": deterministic}
    return executor.run_backward(plans(FULL, dtype), forward.out, q, k, v, **given).traffic


def test_empty_tiles_are_skipped() -> None:
    causal = VARIANTS[1]
    q, k, v = qkv("fp32", batch=1, heads=(1, 1), lengths=(64, 64), head_dims=(16, 24))
    own = plans(causal, "fp32")
    forward = executor.run(plan(causal, "fp32", 16, 24, block_q=16, block_kv=32), q, k, v)
    found = executor.run_backward(own, forward.out, q, k, v, out=forward.out, lse=forward.lse)
    assert found.tiles[TileKind.PARTIAL] == forward.tiles[TileKind.PARTIAL] == 4
    assert found.tiles[TileKind.FULL] == forward.tiles[TileKind.FULL] == 2


@pytest.mark.parametrize("block_q", [16, 32, 128])
@pytest.mark.parametrize("name", ["causal", "sliding_window", "documents", "natten", "prefix_lm", "dilated_window"])
def test_bounds_of_rows_leave_nothing_out(name: str, block_q: int) -> None:
    """Tiles by the rules for blocks of keys, against the mask itself."""
    variant = load(SourceFile.read(folder("specs") / f"{name}.attn")).variants[0]
    problem = Problem(2, 2, 1, 150, 190, 16, 16)
    inputs = synthetic.inputs(variant, problem, np.random.default_rng(0))
    kept = np.broadcast_to(reference.mask(variant, 150, 190, batch=2, num_heads=2, **inputs), (2, 2, 150, 190))
    rules = analyse(variant, block_q, 32, inner="q")
    own = plan(variant, rules=rules, pass_name="backward", loop="kv_outer", block_q=block_q, block_kv=32)
    bound = bind_arrays(Signature(variant), *synthetic.qkv(problem, "fp32", np.random.default_rng(0)), **inputs)
    skipped = 0
    for sequence in bound.problem.sequences():
        tables = rule_tables(rules, variant, bound.problem, bound.inputs)
        seen = bound.environment(sequence, np.float64)
        grid = plan_grid(own, Environment(seen.symbols, {**seen.inputs, **tables}, seen.lets))
        kinds = np.broadcast_to(grid.kinds, (2, *grid.kinds.shape[1:]))
        for head, q_tile, kv_tile in np.ndindex(kinds.shape):
            pairs = kept[sequence.b, head, grid.q_rows(q_tile), grid.kv_rows(kv_tile)]
            kind = kinds[head, q_tile, kv_tile]
            skipped += kind == TileKind.EMPTY
            assert kind != TileKind.EMPTY or not pairs.any()
            assert kind != TileKind.FULL or pairs.all()
    assert skipped or block_q > 32


@pytest.mark.parametrize(
    ("variant", "changed", "code"),
    [
        (FULL, {"lse": None}, "A623"),
        (FULL, {"out": None}, "A623"),
        (SIGMOID, {"lse": np.zeros((2, 4, 45), np.float32)}, "A623"),
        (FULL, {"lse": np.zeros((2, 4, 45))}, "A604"),
        (FULL, {"lse": np.zeros((2, 45, 4), np.float32)}, "A602"),
        (FULL, {"out": np.zeros((2, 4, 45, 24), np.float32)}, "A604"),
        (FULL, {"out": np.zeros((2, 4, 24, 45), np.float16).swapaxes(2, 3)}, "A606"),
        (FULL, {"dlse": np.zeros((2, 4, 1), np.float32)}, "A602"),
    ],
)
def test_what_is_refused(variant: Variant, changed: dict[str, Any], code: str) -> None:
    dout, q, k, v = operands("fp16", packed=False)
    forward = executor.run(plan(variant, "fp16", 16, 24), q, k, v)
    results = {"out": forward.out, "lse": forward.lse, **changed}
    with pytest.raises(AttnccError) as caught:
        executor.run_backward(plans(variant, "fp16"), dout, q, k, v, **results)
    assert code in str(caught.value)


def test_a_plan_that_orders_the_sum_of_dq_makes_it_in_all_calls() -> None:
    dout, q, k, v = operands("fp16", packed=False)
    (keys, rows), forward = plans(FULL, "fp16"), executor.run(plan(FULL, "fp16", 16, 24), q, k, v)
    ordered, results = replace(keys, family="hopper"), {"out": forward.out, "lse": forward.lse}
    assert facts_of(ordered).orders_dq and facts_of(keys).separates_dq and not facts_of(ordered).separates_dq
    found = executor.run_backward((ordered,), dout, q, k, v, deterministic=True, **results).gradients
    expected = executor.run_backward((keys, rows), dout, q, k, v, **results).gradients
    np.testing.assert_array_equal(found.dq, expected.dq)
