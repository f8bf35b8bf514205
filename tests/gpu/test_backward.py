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
from tests.gpu.backward_cases import BackwardCase, backward_cases, learnable_cases, long_cases, of_hopper
from tests.gpu.kernels import backward_kernel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CASES = (*backward_cases(), *long_cases())
HOPPER_CASES = of_hopper((*CASES, *learnable_cases()))
FEW_ENTRIES = 64  # of an input; the errors of so few have no mean to speak of


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


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
def test_backward(case: BackwardCase, device: Device) -> None:
    check(case, device)


@pytest.mark.parametrize("case", HOPPER_CASES, ids=str)
def test_backward_hopper(case: BackwardCase, device: Device) -> None:
    if device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    check(case, device)


def check(case: BackwardCase, device: Device) -> None:
    from tests.gpu import torch_backward
    from tests.gpu.accuracy import judge
    from tests.gpu.backward_calls import backward_call
    from tests.gpu.calls import DTYPES, heads_first

    kernel = backward_kernel(case, device.target)
    call, problem, dtype = backward_call(case, kernel), case.forward.problem, case.forward.dtype
    found = call.run()
    exact = torch_backward.oracle(call.arguments, call.dout, call.dlse)
    plain = torch_backward.baseline(call.arguments, call.dout, call.dlse, DTYPES[dtype])
    rows, keys = torch_backward.untouched(call.arguments)
    for name, zeros in (("dq", rows), ("dk", keys), ("dv", keys)):
        own = heads_first(problem, getattr(found, name))
        accuracy = judge(own, getattr(plain, name), getattr(exact, name), dtype, terms=plain.terms[name])
        assert accuracy.holds, f"{name}: {accuracy}"
        assert not own[zeros].any(), f"{name}: rows and keys that nothing meets have gradients of exactly 0"
    for name, gradient in found.inputs.items():
        assert gradient.shape == call.arguments.inputs[name].shape
        if gradient.numel():
            check_input(name, gradient, plain, exact, dtype)
    if case.deterministic:
        again = call.run()
        pairs = [(getattr(found, name), getattr(again, name)) for name in ("dq", "dk", "dv")]
        for one, other in [*pairs, *((found.inputs[name], again.inputs[name]) for name in found.inputs)]:
            assert torch.equal(one, other), "deterministic calls differ"


def check_input(name: str, gradient: Any, plain: Any, exact: Any, dtype: str) -> None:
    """The rule for a learnable input: of few entries the largest error alone."""
    from tests.gpu.accuracy import judge

    others = plain.inputs[name], exact.inputs[name]
    accuracy = judge(gradient, *others, dtype, terms=plain.terms[name], spread=plain.spread[name])
    holds = accuracy.holds if gradient.numel() >= FEW_ENTRIES else accuracy.max_error <= accuracy.max_limit
    largest = float(exact.inputs[name].abs().max())
    assert holds, f"{name}, of {gradient.numel()} entries up to {largest:.3e}: {accuracy}"
