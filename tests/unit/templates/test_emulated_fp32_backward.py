"""The backward kernels on an emulated GPU (tests/emulator), mostly in fp32: calls of few rows, whose errors are few as
well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import api, reference, synthetic
from attncc.kernels.candidates import make_plan
from attncc.problem.gradients import Gradients
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.emulator.backward import Results, backward
from tests.gpu.cases import Case
from tests.unit.templates.test_emulated_backward import FULL, plans_of
from tests.unit.templates.test_emulated_kernels import qkv

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

SINK = "attn 1\nvariant sunken {\n    input logit: f32[head]\n    sink logit\n}\n"


def gradients(text: str, call: Call, by: float = 0.0, ulps: int = 0) -> tuple[Gradients, Gradients, np.ndarray]:
    """Those of the kernels, where lse is moved; those of the reference; and dout."""
    plan, dq_plan = plans_of(text, "fp32", (40, 40))
    out, lse = reference.forward(plan.variant, call.q, call.k, call.v, **call.arguments())
    dout = np.random.default_rng(3).standard_normal(out.shape).astype(np.float32)
    given = (lse + by).astype(np.float32)
    given += ulps * np.spacing(given)
    found = backward(plan, dq_plan, call, Results(dout, out.astype(np.float32), given))
    return found, reference.backward(plan.variant, dout, call.q, call.k, call.v, **call.arguments()), dout


def one_row() -> Call:
    plan, _ = plans_of(FULL, "fp32", (40, 40))
    return Call(*qkv(plan, (2, 2, 1), (2, 2, 300)))


@pytest.mark.parametrize("ulps", [-1, 0, 1])
def test_the_rounding_of_lse_is_made_up_for(ulps: int) -> None:
    """Here an ulp of lse is 4.8e-7 of all probabilities. With one row dV has them, times dout."""
    found, exact, _ = gradients(FULL, one_row(), ulps=ulps)
    errors = found.dv / exact.dv - 1
    assert np.sqrt(np.mean(errors**2)) < 1.2e-7 and np.abs(errors).max() < 6e-7
    for name in ("dq", "dk"):
        size = np.abs(getattr(exact, name)).max()
        np.testing.assert_allclose(getattr(found, name) / size, getattr(exact, name) / size, atol=4e-7, rtol=0)


@pytest.mark.parametrize("moved", [0.5, 1e-4, -1e-4])
def test_a_sum_that_no_rounding_explains_is_left(moved: float) -> None:
    """As where lse is of more keys than these: probabilities are what it says."""
    found, exact, _ = gradients(FULL, one_row(), by=moved)
    expected = exact.dv * np.exp(-moved)
    assert (np.abs(found.dv - expected) <= 8e-7 * np.abs(expected)).all()


def test_a_sink_has_its_share_of_the_row() -> None:
    call = one_row()
    call = Call(call.q, call.k, call.v, inputs={"logit": np.float32([4.0, -30.0])})
    found, exact, _ = gradients(SINK, call)
    assert (np.abs(found.dv - exact.dv) <= 8e-7 * np.abs(exact.dv)).all()


# ---------------------------------------------------------------- as tests/gpu/test_backward.py has them

SEED = 1234567
_SHORT = {"lengths": (1, 1000), "splits": 1, "dtype": "fp32", "loop": "q_outer", "packed": True}
ALIBI = Case("alibi_documents", head_dims=(96, 96), group=1, memory="strided", layout="bhsd", **_SHORT)
BIAS = Case("batch_bias", head_dims=(16, 16), group=8, memory="strided", layout="bshd", **_SHORT)
CAUSAL = Case("mini_causal", head_dims=(40, 40), group=3, memory="broadcast", layout="bshd", **_SHORT)
ONE_KEY = replace(ALIBI, lengths=(799, 3), group=4, dtype="fp16", memory="broadcast")  # at most, of what a row sees


@pytest.mark.parametrize(
    ("case", "seed"), [(ALIBI, 0), (ALIBI, 3), (ALIBI, 8), (BIAS, 0), (BIAS, 5), (CAUSAL, 2), (ONE_KEY, 5)], ids=str
)
def test_cases_of_few_rows_keep_the_rule(case: Case, seed: int) -> None:
    """As on the GPU: out and lse are those of the kernel, lse has a gradient, sums in fp32 have their roundoff."""
    torch = pytest.importorskip("torch")
    from tests.gpu import torch_backward
    from tests.gpu.accuracy import gradient_holds, judge
    from tests.gpu.calls import DTYPES
    from tests.gpu.torch_oracle import Arguments

    variant, call, dout, dlse = drawn(case, seed)
    sizes = {"dtype": case.dtype, "head_dim": call.q.shape[-1], "value_head_dim": call.v.shape[-1], "target": "sm_90"}
    asked = "decode" if call.q.shape[1] < 64 else "forward", "backward", "backward_dq"
    forward_plan, plan, dq_plan = (make_plan(variant, pass_name=name, **sizes) for name in asked)
    out, lse = forward(forward_plan, call)
    found = backward(plan, dq_plan, call, Results(dout, out, lse, dlse))
    inputs = {name: torch.from_numpy(np.array(array)) for name, array in call.inputs.items()}
    arguments = Arguments(variant, case.problem, *map(torch.from_numpy, (call.q, call.k, call.v)), inputs, seed=SEED)
    flowing = torch.from_numpy(dout), None if dlse is None else torch.from_numpy(dlse)
    exact = torch_backward.oracle(arguments, *flowing)
    plain = torch_backward.baseline(arguments, *flowing, DTYPES[case.dtype])
    for item in ("dq", "dk", "dv"):
        own, others = torch.from_numpy(getattr(found, item)), (getattr(plain, item), getattr(exact, item))
        accuracy = judge(own, *others, case.dtype, terms=plain.terms[item])
        assert gradient_holds(accuracy, *others), f"{item}: {accuracy}"


def drawn(case: Case, seed: int) -> tuple[Any, Call, np.ndarray, np.ndarray | None]:
    problem, variant = case.problem, api.parse(case.source("sm_90")).variant
    rng, kind = np.random.default_rng(seed), {"fp16": np.float16, "fp32": np.float32}[case.dtype]

    def rows(heads: int, length: int, size: int, *, alike: bool = False) -> np.ndarray:
        shape = (1 if alike else heads, length, size)
        return np.tile(rng.standard_normal(shape, np.float32), (heads // shape[0], 1, 1)).astype(kind)

    alike, heads = case.memory == "broadcast", problem.num_kv_heads
    q = rows(problem.num_heads, problem.q_len, problem.head_dim)
    k, v = (rows(heads, problem.kv_len, size, alike=alike) for size in (problem.head_dim, problem.value_head_dim))
    inputs = synthetic.inputs(variant, problem, np.random.default_rng(problem.q_len + 1000 * seed))
    dout = rows(problem.num_heads, problem.q_len, problem.value_head_dim)
    differentiable = problem.group == 3 or any(item.learnable for item in variant.inputs)
    dlse = rng.standard_normal(q.shape[:-1]).astype(np.float32) if differentiable else None
    cu = np.array(problem.q_starts, np.int32), np.array(problem.kv_starts, np.int32)
    return variant, Call(q, k, v, cu=cu, seed=SEED, inputs=inputs), dout, dlse
