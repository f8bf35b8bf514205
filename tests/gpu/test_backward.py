"""The gradients of every spec on the GPU against fp64 autograd of the dense formula, over a covering design.

The rule is that of the forward pass, with an unfused backward pass as the baseline: docs/backward.md. All memory that a
call takes is full of NaN before.

Each pair of values of every two factors (lengths, head dims, group, dtype, memory, layout, packing, whether sums have
one order) meets in some case. So does each spec of `cases.CORE` with each value; the other specs meet every dtype,
memory, layout, packing and order, and two lengths, head dims and groups each. Kernels of both families, where hopper
has one, are judged in each case: by one reference, for one forward call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from attncc.problem.gradients import Gradients
from tests.devices import Device, cuda
from tests.gpu.backward_cases import BackwardCase, backward_cases, learnable_cases, long_cases, of_hopper
from tests.gpu.kernels import backward_kernel, forward_kernel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CASES = (*backward_cases(), *long_cases())


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a call allocates holds NaN."""
    from attncc.runtime.frameworks.torch_arrays import TorchArrays

    own = TorchArrays.allocator

    def allocator(self: Any, *shape_dtype_ordinal: Any) -> Callable[[], Any]:
        new = own(self, *shape_dtype_ordinal)
        return lambda: new().fill_(math.nan)

    monkeypatch.setattr(TorchArrays, "allocator", allocator)
    yield


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward(case: BackwardCase, device: Device) -> None:
    check((case, *of_hopper([case] if device.target == "sm_90" else [])), device)


@pytest.mark.parametrize("case", of_hopper(learnable_cases()), ids=str)
def test_learnable_inputs(case: BackwardCase, device: Device) -> None:
    if device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    check((case,), device)


def check(cases: Sequence[BackwardCase], device: Device) -> None:
    """Those of one forward call."""
    from tests.gpu import torch_backward
    from tests.gpu.backward_calls import backward_call
    from tests.gpu.calls import DTYPES

    call = backward_call(cases[0], forward_kernel(cases[0].made_by, device.target))
    kernels = {case: backward_kernel(case, device.target) for case in cases}
    found = {case: call.run(kernel) for case, kernel in kernels.items()}
    exact = torch_backward.oracle(call.arguments, call.dout, call.dlse)
    plain = torch_backward.baseline(call.arguments, call.dout, call.dlse, DTYPES[cases[0].forward.dtype])
    untouched = torch_backward.untouched(call.arguments)
    for case, gradients in found.items():
        check_gradients(case, gradients, plain, exact, untouched)
        if case.deterministic:
            again = call.run(kernels[case])
            pairs = [(getattr(gradients, name), getattr(again, name)) for name in ("dq", "dk", "dv")]
            for one, other in [*pairs, *((x, again.inputs[name]) for name, x in gradients.inputs.items())]:
                assert torch.equal(one, other), f"{case}: deterministic calls differ"


def check_gradients(case: BackwardCase, found: Gradients, plain: Any, exact: Any, untouched: Any) -> None:
    from tests.gpu.accuracy import gradient_holds, judge
    from tests.gpu.calls import heads_first

    rows, keys = untouched
    for name, zeros in (("dq", rows), ("dk", keys), ("dv", keys)):
        own = heads_first(case.forward.problem, getattr(found, name))
        others = getattr(plain, name), getattr(exact, name)
        accuracy = judge(own, *others, case.forward.dtype, terms=plain.terms[name])
        assert gradient_holds(accuracy, *others), f"{case}, {name}: {accuracy}"
        assert not own[zeros].any(), f"{case}, {name}: what nothing meets has gradients of exactly 0"
    for name, gradient in found.inputs.items():
        assert gradient.shape == plain.terms[name].shape
        if gradient.numel():
            check_input(case, name, gradient, plain, exact)


def check_input(case: BackwardCase, name: str, gradient: Any, plain: Any, exact: Any) -> None:
    """The rule for a learnable input: of few entries the largest error alone."""
    from tests.gpu.accuracy import FEW_ERRORS, judge

    others = plain.inputs[name], exact.inputs[name]
    accuracy = judge(gradient, *others, case.forward.dtype, terms=plain.terms[name], spread=plain.spread[name])
    holds = accuracy.holds if gradient.numel() >= FEW_ERRORS else accuracy.max_error <= accuracy.max_limit
    largest = float(exact.inputs[name].abs().max())
    assert holds, f"{case}, {name}, of {gradient.numel()} entries up to {largest:.3e}: {accuracy}"
