"""The dense reference of the backward pass against torch's autograd of an independent dense formula, in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc import reference, synthetic
from attncc.diagnostics import AttnccError
from attncc.ir import Variant
from attncc.problem.gradients import Gradients
from attncc.problem.problem import Problem
from attncc.resources import folder
from attncc.semantics.load import load
from attncc.source import SourceFile

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

SPECS = folder("specs")
FILES = sorted(path.name for path in SPECS.glob("*.attn") if path.stem != "masks")
DENSE = Problem(2, 6, 2, 21, 37, 8, 12)
PACKED = Problem(3, 4, 2, 40, 51, 8, 8, packed=True, q_starts=(0, 15, 15, 40), kv_starts=(0, 21, 30, 51))

# What the library lacks: every learnable rank, all features together, functions of learnable inputs, merged axes.
EVERYTHING = """
    input slope: f32[head] learnable
    input cap:   f32 learnable
    input table: f32[kv_head, 2, _, 5] learnable
    input bias:  f32[batch, pos] learnable
    input row:   f32[batch, q] learnable
    input logit: f32[head] learnable
    input rate:  f32

    let distance = q_pos - kv_idx
    keep if distance >= 3
    keep if kv_idx != 4 or h != 1
    score = score - slope[h] * distance + table[kv_h, q_idx % 2, kv_idx - 3, q_idx % 7] * logit[h]
    score = cap * tanh(score / cap) + bias[b, kv_idx] * score + bias[b, q_pos] + exp(row[b, q_idx])
    sink logit
    dropout rate
"""
SIGMOID = "input slope: f32[head] learnable\nscore = score * slope[h]\nkeep if q_pos >= kv_idx\nnormalize sigmoid\n"
NONE = "input slope: f32[head] learnable\nscore = score * slope[h] * score\ndropout 0.5\nnormalize none\n"
LOCAL = {"everything": EVERYTHING, "sigmoid": SIGMOID, "none": NONE}


def variant_of(name: str) -> Variant:
    if name in LOCAL:
        return load(SourceFile(name, f"attn 1\nvariant {name} {{\n{LOCAL[name]}\n}}")).variants[0]
    return load(SourceFile.read(SPECS / name)).variants[0]


def call_of(variant: Variant, problem: Problem) -> dict[str, Any]:
    call: dict[str, Any] = {"seed": 3} if variant.dropout is not None else {}
    if problem.packed:
        call["cu_seqlens_q"] = np.array(problem.q_starts, np.int32)
        call["cu_seqlens_kv"] = np.array(problem.kv_starts, np.int32)
    return call


def fields(found: Gradients) -> dict[str, Any]:
    return {"q": found.dq, "k": found.dk, "v": found.dv, **found.inputs}


@pytest.mark.parametrize("problem", [DENSE, PACKED], ids=["dense", "packed"])
@pytest.mark.parametrize("name", [*FILES, *LOCAL])
def test_agrees_with_autograd(name: str, problem: Problem) -> None:
    from tests.gpu.torch_backward import oracle
    from tests.gpu.torch_oracle import Arguments

    variant = variant_of(name)
    rng = np.random.default_rng(7)
    q, k, v = synthetic.qkv(problem, "fp32", rng)
    inputs = synthetic.inputs(variant, problem, rng)
    dout = rng.standard_normal(problem.out_shape)
    dlse = rng.standard_normal(problem.lse_shape) if variant.normalize == "softmax" else None
    found = fields(reference.backward(variant, dout, q, k, v, dlse=dlse, **call_of(variant, problem), **inputs))

    tensors = [torch.from_numpy(item) for item in (q, k, v)]
    arguments = Arguments(variant, problem, *tensors, {key: torch.from_numpy(x) for key, x in inputs.items()}, seed=3)
    exact = oracle(arguments, torch.from_numpy(dout), None if dlse is None else torch.from_numpy(dlse))
    expected = {"q": exact.dq, "k": exact.dk, "v": exact.dv, **exact.inputs}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key].dtype == np.float64
        np.testing.assert_allclose(found[key], value.numpy(), rtol=1e-8, atol=1e-10, err_msg=key)


def test_layouts_give_the_same() -> None:
    variant = variant_of("alibi.attn")
    rng = np.random.default_rng(1)
    q, k, v = synthetic.qkv(DENSE, "fp32", rng)
    inputs = synthetic.inputs(variant, DENSE, rng)
    dout = rng.standard_normal(DENSE.out_shape)
    one = reference.backward(variant, dout, q, k, v, **inputs)
    swapped = (array.swapaxes(1, 2) for array in (dout, q, k, v))
    other = reference.backward(variant, *swapped, layout="bshd", **inputs)
    for name in ("dq", "dk", "dv"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name).swapaxes(1, 2))


def test_rows_with_nothing_kept_have_gradients_of_zero() -> None:
    variant = load(SourceFile("x", "attn 1\nvariant x {\n keep if q_idx >= 10\n keep if kv_idx < 20\n}")).variants[0]
    rng = np.random.default_rng(1)
    q, k, v = synthetic.qkv(DENSE, "fp32", rng)
    dlse = rng.standard_normal(DENSE.lse_shape)
    found = reference.backward(variant, rng.standard_normal(DENSE.out_shape), q, k, v, dlse=dlse)
    assert not found.dq[:, :, :10].any()
    assert found.dq[:, :, 10:].all()
    assert not found.dk[:, :, 20:].any()
    assert not found.dv[:, :, 20:].any()


def test_scores_of_minus_infinity_weigh_nothing_whatever_their_derivative() -> None:
    text = "attn 1\nvariant x {\n let far = kv_idx >= 20\n score = log(score - score) if far else score\n}"
    variant = load(SourceFile("x", text)).variants[0]
    rng = np.random.default_rng(1)
    q, k, v = synthetic.qkv(DENSE, "fp32", rng)
    found = reference.backward(variant, rng.standard_normal(DENSE.out_shape), q, k, v)
    assert np.isfinite(found.dq).all()
    assert not found.dk[:, :, 20:].any()


def test_the_baseline_is_as_close_as_its_type() -> None:
    variant = variant_of("softcap.attn")
    rng = np.random.default_rng(1)
    q, k, v = synthetic.qkv(DENSE, "fp16", rng)
    dout = rng.standard_normal(DENSE.out_shape).astype(np.float16)
    exact, plain = (f(variant, dout, q, k, v) for f in (reference.backward, reference.baseline_backward))
    for name in ("dq", "dk", "dv"):
        assert getattr(plain, name).dtype == np.float16
        np.testing.assert_allclose(getattr(plain, name), getattr(exact, name), rtol=5e-3, atol=5e-3)
        assert (getattr(plain, name) != getattr(exact, name)).any()


@pytest.mark.parametrize(
    ("name", "changed", "code"),
    [
        ("full.attn", {"dout": np.zeros((2, 6, 21, 8))}, "A602"),
        ("full.attn", {"dlse": np.zeros((2, 21, 6))}, "A602"),
        ("sigmoid", {"dlse": np.zeros((2, 6, 21))}, "A623"),
        ("full.attn", {"dout": None}, "A622"),
    ],
)
def test_what_is_refused(name: str, changed: dict[str, Any], code: str) -> None:
    variant = variant_of(name)
    rng = np.random.default_rng(1)
    q, k, v = synthetic.qkv(DENSE, "fp32", rng)
    call = {"dout": np.zeros(DENSE.out_shape), **synthetic.inputs(variant, DENSE, rng), **changed}
    with pytest.raises(AttnccError) as caught:
        reference.backward(variant, call.pop("dout"), q, k, v, **call)
    assert code in str(caught.value)
