"""The gradients of every spec on the GPU against fp64 autograd of the dense formula, over a covering design.

The rule is that of the forward pass, with an unfused backward pass as the baseline: docs/backward.md. All memory that a
call takes is full of NaN before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import attncc
from attncc import synthetic
from tests.devices import Device, cuda
from tests.gpu.backward_cases import BackwardCase, backward_cases, of_hopper

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CASES = backward_cases()
HOPPER_CASES = of_hopper(CASES)
INPUT_TOLERANCE = {"fp16": 5e-3, "bf16": 3e-2, "fp32": 1e-4}  # of the largest entry


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.fixture(scope="module")
def kernels(device: Device) -> dict[BackwardCase, Any]:
    return compiled(CASES, device)


@pytest.fixture(scope="module")
def hopper_kernels(device: Device) -> dict[BackwardCase, Any]:
    if device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    return compiled(HOPPER_CASES, device)


def compiled(cases: tuple[BackwardCase, ...], device: Device) -> dict[BackwardCase, Any]:
    def one(case: BackwardCase) -> Any:
        key, value = case.forward.head_dims
        arch = case.forward.target(device.target)
        source = case.source(device.target)
        kernel = attncc.compile(source, dtype=case.forward.dtype, head_dim=key, value_head_dim=value, arch=arch)
        kernel._store.machine_codes(kernel._store.backward_plans(kernel.configurations[0], arch))  # now, on all cores
        return kernel

    with ThreadPoolExecutor() as pool:
        return dict(zip(cases, pool.map(one, cases), strict=True))


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a call allocates holds NaN."""
    from attncc.runtime.torch_arrays import TorchArrays

    own = TorchArrays.allocator

    def allocator(self: Any, *shape_dtype_ordinal: Any) -> Callable[[], Any]:
        new = own(self, *shape_dtype_ordinal)
        return lambda: new().fill_(math.nan)

    monkeypatch.setattr(TorchArrays, "allocator", allocator)
    yield


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward(case: BackwardCase, device: Device, kernels: dict[BackwardCase, Any]) -> None:
    check(case, device, kernels[case])


@pytest.mark.parametrize("case", HOPPER_CASES, ids=str)
def test_backward_hopper(case: BackwardCase, device: Device, hopper_kernels: dict[BackwardCase, Any]) -> None:
    check(case, device, hopper_kernels[case])


def check(case: BackwardCase, device: Device, kernel: Any) -> None:
    from tests.gpu import torch_backward
    from tests.gpu.calls import DTYPES, SEED, heads_first, qkv
    from tests.gpu.test_forward import judge
    from tests.gpu.torch_oracle import Arguments

    problem, arrays = case.forward.problem, qkv(case.forward)
    variant = kernel.variant
    drawn = synthetic.inputs(variant, problem, np.random.default_rng(problem.q_len))
    inputs = {name: torch.from_numpy(array).cuda() for name, array in drawn.items()}
    keywords: dict[str, Any] = {"layout": problem.layout, **inputs}
    softmax = variant.normalize == "softmax"
    if variant.dropout is not None:
        keywords["seed"] = SEED
    if problem.packed:
        keywords["cu_seqlens_q"] = torch.tensor(problem.q_starts, dtype=torch.int32, device="cuda")
        keywords["cu_seqlens_kv"] = torch.tensor(problem.kv_starts, dtype=torch.int32, device="cuda")
    result = kernel(*arrays, return_lse=softmax, **keywords)
    out, lse = result if softmax else (result, None)
    generator = torch.Generator("cuda").manual_seed(2)
    dout = torch.randn(out.shape, generator=generator, device="cuda").to(out.dtype)
    dlse = torch.randn(lse.shape, generator=generator, device="cuda") if softmax and problem.group == 3 else None

    def gradients() -> Any:
        return kernel.backward(dout, *arrays, out, lse, dlse=dlse, deterministic=case.deterministic, **keywords)

    found = gradients()
    rows_first = [heads_first(problem, item) for item in (*arrays, dout)]
    arguments = Arguments(variant, problem, *rows_first[:3], inputs, seed=SEED)
    exact = torch_backward.oracle(arguments, rows_first[3], dlse)
    plain = torch_backward.baseline(arguments, rows_first[3], dlse, DTYPES[case.forward.dtype])
    rows, keys = torch_backward.untouched(arguments)
    for name, zeros in (("dq", rows), ("dk", keys), ("dv", keys)):
        own = heads_first(problem, getattr(found, name))
        accuracy = judge(own, getattr(plain, name), getattr(exact, name), case.forward.dtype)
        assert accuracy.holds, f"{name}: {accuracy}"
        assert not own[zeros].any(), f"{name}: rows and keys that nothing meets have gradients of exactly 0"
    for name, gradient in found.inputs.items():
        assert gradient.shape == inputs[name].shape
        if gradient.numel():
            # What all pairs of a row share has a gradient of 0: there the sum of what `out`, so delta, is rounded by.
            size = exact.inputs[name].abs().max().clamp_min(0.3 * math.sqrt(problem.total_q))
            error = float((gradient.double() - exact.inputs[name]).abs().max() / size)
            assert error <= INPUT_TOLERANCE[case.forward.dtype], (name, error)
    if case.deterministic:
        again = gradients()
        pairs = [(getattr(found, name), getattr(again, name)) for name in ("dq", "dk", "dv")]
        for one, other in [*pairs, *((found.inputs[name], again.inputs[name]) for name in found.inputs)]:
            assert torch.equal(one, other), "deterministic calls differ"
