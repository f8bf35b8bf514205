"""The gradients of every spec on the GPU against fp64 autograd of the dense formula, over a covering design.

The rule is that of the forward pass, with an unfused backward pass as the baseline: docs/backward.md. All memory that a
call takes is full of NaN before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.devices import Device, cuda
from tests.gpu.backward_cases import BackwardCase, backward_cases, of_hopper
from tests.gpu.kernels import Kernels, asked_for, backward_kernel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CASES = backward_cases()
HOPPER_CASES = of_hopper(CASES)
INPUT_TOLERANCE = {"fp16": 5e-3, "bf16": 3e-2, "fp32": 1e-4}  # of the largest entry


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.fixture(scope="module")
def kernels(request: pytest.FixtureRequest, device: Device) -> Iterator[Kernels[BackwardCase]]:
    everything = (*CASES, *HOPPER_CASES) if device.target == "sm_90" else CASES
    with Kernels(backward_kernel, asked_for(request.session, everything), device.target) as found:
        yield found


@pytest.fixture
def hopper_kernels(device: Device, kernels: Kernels[BackwardCase]) -> Kernels[BackwardCase]:
    if device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    return kernels


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
def test_backward(case: BackwardCase, kernels: Kernels[BackwardCase]) -> None:
    check(case, kernels[case])


@pytest.mark.parametrize("case", HOPPER_CASES, ids=str)
def test_backward_hopper(case: BackwardCase, hopper_kernels: Kernels[BackwardCase]) -> None:
    check(case, hopper_kernels[case])


def check(case: BackwardCase, kernel: Any) -> None:
    from tests.gpu import torch_backward
    from tests.gpu.accuracy import judge
    from tests.gpu.backward_calls import backward_call
    from tests.gpu.calls import DTYPES, heads_first

    call, problem, dtype = backward_call(case, kernel), case.forward.problem, case.forward.dtype
    found = call.run()
    exact = torch_backward.oracle(call.arguments, call.dout, call.dlse)
    plain = torch_backward.baseline(call.arguments, call.dout, call.dlse, DTYPES[dtype])
    rows, keys = torch_backward.untouched(call.arguments)
    for name, zeros in (("dq", rows), ("dk", keys), ("dv", keys)):
        own = heads_first(problem, getattr(found, name))
        accuracy = judge(own, getattr(plain, name), getattr(exact, name), dtype, plain.terms[name])
        assert accuracy.holds, f"{name}: {accuracy}"
        assert not own[zeros].any(), f"{name}: rows and keys that nothing meets have gradients of exactly 0"
    for name, gradient in found.inputs.items():
        assert gradient.shape == call.arguments.inputs[name].shape
        if gradient.numel():
            # What all pairs of a row share has a gradient of 0: there the sum of what `out`, so delta, is rounded by.
            rows = problem.q_len if problem.packed else problem.batch * problem.q_len
            size = exact.inputs[name].abs().max().clamp_min(math.sqrt(rows))
            error = float((gradient.double() - exact.inputs[name]).abs().max() / size)
            assert error <= INPUT_TOLERANCE[dtype], (name, error)
    if case.deterministic:
        again = call.run()
        pairs = [(getattr(found, name), getattr(again, name)) for name in ("dq", "dk", "dv")]
        for one, other in [*pairs, *((found.inputs[name], again.inputs[name]) for name in found.inputs)]:
            assert torch.equal(one, other), "deterministic calls differ"
