"""Every spec on the GPU against the fp64 oracle, over a covering design.

Each pair of values of every two factors (lengths, head dims, splits, group, dtype, memory, loop order, layout, packing)
meets in some case. So does each spec of `cases.CORE` with each value; the other specs meet every group, dtype, memory,
loop order, layout and packing, and three lengths, head dims and numbers of splits each.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.devices import Device, cuda
from tests.gpu.accuracy import check_forward
from tests.gpu.cases import LENGTHS, Case, cases, of_hopper

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CASES = cases(LENGTHS)
HOPPER_CASES = of_hopper(CASES)


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.fixture(scope="module")
def kernels(device: Device) -> dict[Case, Any]:
    from tests.gpu.calls import compiled

    return compiled(CASES, device.target)


@pytest.fixture(scope="module")
def hopper_kernels(device: Device) -> dict[Case, Any]:
    from tests.gpu.calls import compiled

    if device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    return compiled(HOPPER_CASES, device.target)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case: Case, device: Device, kernels: dict[Case, Any]) -> None:
    check(case, device, kernels[case])


@pytest.mark.parametrize("case", HOPPER_CASES, ids=str)
def test_forward_hopper(case: Case, device: Device, hopper_kernels: dict[Case, Any]) -> None:
    check(case, device, hopper_kernels[case])


def check(case: Case, device: Device, kernel: Any) -> None:
    from tests.gpu.calls import call

    check_forward(*call(case, kernel, device.target), case.dtype)
