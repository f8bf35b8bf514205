"""Every spec on the GPU against the fp64 oracle, over a covering design.

Each pair of values of every two factors in `cases.FACTORS` (spec, lengths, head dims, splits, group, dtype, memory,
loop order, layout, packing) meets in some case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import attncc
from attncc import synthetic
from attncc.problem import Problem
from attncc.reference.accuracy import EPSILON, Accuracy
from tests.devices import Cuda, cuda
from tests.gpu.cases import CASES, Case

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
SEED = 1234567


@pytest.fixture(scope="module")
def kernels() -> dict[Case, Any]:
    """All kernels, compiled at once on every core."""
    device = cuda()

    def compiled(case: Case) -> Any:
        key, value = case.head_dims
        return attncc.compile(case.source(device.target), dtype=case.dtype, head_dim=key, value_head_dim=value)

    with ThreadPoolExecutor() as pool:
        return dict(zip(CASES, pool.map(compiled, CASES), strict=True))


def qkv(case: Case) -> list[Any]:
    """Normal q, k and v in the case's layout, laid out in memory as it says."""
    problem, generator = case.problem, torch.Generator("cuda").manual_seed(1)
    batch = 1 if problem.packed else problem.batch

    def laid_out(heads: int, length: int, dim: int, memory: str) -> Any:
        shape = {
            "contiguous": (batch, heads, length, dim),
            "strided": (batch, length, heads + 1, dim + 8),  # cut out of an array with more heads and wider rows
            "broadcast": (1, 1, length, dim),
        }[memory]
        array = torch.randn(shape, generator=generator, device="cuda").to(DTYPES[case.dtype])
        if memory == "strided":
            array = array[:, :, :heads, :dim].transpose(1, 2)
        array = heads_first(problem, array.expand(batch, heads, length, dim))
        array = array.contiguous() if memory == "contiguous" else array
        return array[0] if problem.packed else array

    of_q = "contiguous" if case.memory == "broadcast" else case.memory
    return [
        laid_out(problem.num_heads, problem.q_len, problem.head_dim, of_q),
        laid_out(problem.num_kv_heads, problem.kv_len, problem.head_dim, case.memory),
        laid_out(problem.num_kv_heads, problem.kv_len, problem.value_head_dim, case.memory),
    ]


def heads_first(problem: Problem, array: Any) -> Any:
    """From the problem's layout to bhsd, or from bhsd to it."""
    return array if problem.layout == "bhsd" else array.transpose(-3, -2)


def judge(out: Any, plain: Any, exact: Any, dtype: str) -> Accuracy:
    """`attncc.reference.accuracy`, computed where the arrays are."""
    own, other = (out.double() - exact).abs(), (plain - exact).abs()
    allowance = EPSILON[dtype] * float(exact.square().mean().sqrt())
    return Accuracy(float(own.max()), float(own.mean()), float(other.max()), float(other.mean()), allowance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case: Case, kernels: dict[Case, Callable[..., Any]]) -> None:
    from tests.gpu.torch_oracle import Arguments, baseline, oracle

    problem, dtype, arrays = case.problem, DTYPES[case.dtype], qkv(case)
    variant = attncc.parse(case.source(Cuda(torch).target)).variant
    drawn = synthetic.inputs(variant, problem, np.random.default_rng(problem.q_len))
    inputs = {name: torch.from_numpy(array).cuda() for name, array in drawn.items()}
    call: dict[str, Any] = {"layout": problem.layout, "return_lse": variant.normalize == "softmax"}
    if variant.dropout is not None:
        call["seed"] = SEED
    if problem.packed:
        call["cu_seqlens_q"] = torch.tensor(problem.q_starts, dtype=torch.int32, device="cuda")
        call["cu_seqlens_kv"] = torch.tensor(problem.kv_starts, dtype=torch.int32, device="cuda")

    out = torch.full(problem.out_shape, math.nan, dtype=dtype, device="cuda")
    result = kernels[case](*arrays, out=out, **call, **inputs)

    arguments = Arguments(variant, problem, *(heads_first(problem, item) for item in arrays), inputs, seed=SEED)
    exact, exact_lse = oracle(arguments)
    accuracy = judge(heads_first(problem, out), baseline(arguments, dtype), exact, case.dtype)
    assert accuracy.holds, accuracy
    if call["return_lse"]:
        torch.testing.assert_close(result[1].double(), exact_lse, rtol=1e-5, atol=1e-3)
