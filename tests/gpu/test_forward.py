"""Every spec on the GPU against the fp64 oracle, over a covering design.

Each pair of values of every two factors (lengths, head dims, splits, group, dtype, memory, loop order, layout, packing)
meets in some case. So does each spec of `cases.CORE` with each value; the other specs meet every group, dtype, memory,
loop order, layout and packing, and three lengths, head dims and numbers of splits each.
"""

from __future__ import annotations

import pytest

from tests.devices import Device, cuda
from tests.gpu.accuracy import check_forward
from tests.gpu.cases import LENGTHS, Case, cases, of_hopper
from tests.gpu.kernels import forward_kernel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CASES = cases(LENGTHS)
HOPPER_CASES = of_hopper(CASES)


@pytest.fixture(scope="module")
def device() -> Device:
    return cuda()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case: Case, device: Device) -> None:
    check(case, device)


@pytest.mark.parametrize("case", HOPPER_CASES, ids=str)
def test_forward_hopper(case: Case, device: Device) -> None:
    if device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    check(case, device)


def check(case: Case, device: Device) -> None:
    from tests.gpu.calls import call

    check_forward(*call(case, forward_kernel(case, device.target), device.target), case.dtype)
