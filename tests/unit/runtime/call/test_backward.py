"""`Kernel.backward` on the CPU: every spec against the dense reference, and arrays of every framework."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncc
from attncc import reference, synthetic
from attncc.diagnostics import AttnccError
from attncc.problem.gradients import Gradients
from attncc.problem.problem import Problem
from attncc.resources import folder
from tests import plans
from tests.unit.runtime.fakes import FakeStore

torch = pytest.importorskip("torch")

SPECS = folder("specs")
FILES = sorted(path.name for path in SPECS.glob("*.attn") if path.stem != "masks")
DENSE = Problem(2, 6, 2, 75, 90, 16, 24)
PACKED = Problem(
    3, 4, 2, 80, 102, 16, 16, layout="bshd", packed=True, q_starts=(0, 35, 35, 80), kv_starts=(0, 41, 50, 102)
)


def call_of(variant: Any, problem: Problem, rng: np.random.Generator) -> dict[str, Any]:
    call: dict[str, Any] = {"layout": problem.layout, **synthetic.inputs(variant, problem, rng)}
    if variant.dropout is not None:
        call["seed"] = 3
    if problem.packed:
        call["cu_seqlens_q"] = np.array(problem.q_starts, np.int32)
        call["cu_seqlens_kv"] = np.array(problem.kv_starts, np.int32)
    return call


@pytest.mark.parametrize("problem", [DENSE, PACKED], ids=["dense", "packed"])
@pytest.mark.parametrize("name", FILES)
def test_every_spec_agrees_with_the_reference(name: str, problem: Problem) -> None:
    dims = {"head_dim": problem.head_dim, "value_head_dim": problem.value_head_dim}
    kernel = attncc.compile(SPECS / name, dtype="fp64", **dims)
    softmax = kernel.variant.normalize == "softmax"
    rng = np.random.default_rng(5)
    q, k, v = synthetic.qkv(problem, "fp64", rng)
    call = call_of(kernel.variant, problem, rng)
    out, lse = kernel(q, k, v, return_lse=True, **call) if softmax else (kernel(q, k, v, **call), None)
    dout = rng.standard_normal(problem.out_shape)
    dlse = rng.standard_normal(problem.lse_shape) if softmax else None
    found = kernel.backward(dout, q, k, v, out, lse, dlse=dlse, **call)
    exact = reference.backward(kernel.variant, dout, q, k, v, dlse=dlse, **call)
    for got, expected in ((found.dq, exact.dq), (found.dk, exact.dk), (found.dv, exact.dv)):
        np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-10)
    assert found.inputs.keys() == exact.inputs.keys()
    for learned, value in exact.inputs.items():
        np.testing.assert_allclose(found.inputs[learned], value, rtol=1e-5, atol=1e-5, err_msg=learned)


# -------------------------------------------------------------------- frameworks


def call(**changed: Any) -> dict[str, Any]:
    return {**plans.arguments(plans.ALIBI, 2, 4, 70), **changed}


def alibi(dtype: str) -> Any:
    from attncc.runtime.kernel import Kernel

    return Kernel(FakeStore(plans.plan(plans.ALIBI, dtype)))


def gradients(dtype: str) -> tuple[Gradients, tuple[Any, ...]]:
    arrays = plans.qkv(dtype)
    out, lse = alibi(dtype)(*arrays, return_lse=True, **call())
    dout = np.random.default_rng(2).standard_normal(out.shape).astype(out.dtype)
    return alibi(dtype).backward(dout, *arrays, out, lse, **call()), (dout, *arrays, out, lse)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_torch_gives_the_same_bits(dtype: str) -> None:
    from tests.unit.runtime.test_kernel import bits, tensor

    expected, arrays = gradients(dtype)
    inputs = {"slope": tensor(call()["slope"]), "cap": torch.tensor(5.0)}
    found = alibi(dtype).backward(*map(tensor, arrays), **call(**inputs))
    for name in ("dq", "dk", "dv"):
        assert isinstance(getattr(found, name), torch.Tensor)
        assert np.array_equal(bits(getattr(found, name)), getattr(expected, name).view(np.int8))


def test_foreign_arrays_come_back_as_they_came() -> None:
    from tests.unit.runtime.test_kernel import Foreign

    expected, arrays = gradients("fp32")
    found = alibi("fp32").backward(*map(Foreign, arrays), slope=Foreign(call()["slope"]), cap=5.0)
    assert isinstance(found.dq, Foreign)
    np.testing.assert_array_equal(found.dq.array, expected.dq)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"dout": np.zeros((2, 4, 45, 16), np.float16)}, "A604"),
        ({"lse": None}, "A623"),
        ({"slope": np.zeros(3, np.float32)}, "A609"),
        ({"unknown": 1}, "A608"),
        ({"k_new": np.zeros(3)}, "no gradients of such calls"),
        ({"deterministic": np.zeros(2)}, "A614"),
        ({"dlse": torch.zeros(2, 4, 45)}, "A654"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str) -> None:
    _, (dout, q, k, v, out, lse) = gradients("fp32")
    results = {"dout": dout, "out": out, "lse": lse}
    own = {name: changed.pop(name, value) for name, value in results.items()}
    with pytest.raises(AttnccError) as caught:
        alibi("fp32").backward(own["dout"], q, k, v, own["out"], own["lse"], **call(**changed))
    assert code in str(caught.value)
