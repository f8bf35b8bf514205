from __future__ import annotations

import pytest

from attncc.analysis.cost.cost import Traffic
from attncc.analysis.cost.roofline import DEVICES, Device, roofline

SMALL = Device(
    "small",
    flops_16_bit=100.0,
    flops_32_bit=50.0,
    bytes_per_second=10.0,
    capability=80,
    multiprocessors=1,
    source="made up",
)


def test_bound_by_compute() -> None:
    bound = roofline(1000, Traffic({"q": 50}), SMALL)
    assert (bound.seconds, bound.bound_by, bound.intensity, bound.ridge) == (10.0, "compute", 20.0, 10.0)


def test_bound_by_memory() -> None:
    bound = roofline(100, Traffic({"q": 30}, {"out": 20}), SMALL, element_bytes=4)
    assert (bound.seconds, bound.bound_by, bound.intensity, bound.ridge) == (5.0, "memory", 2.0, 5.0)


def test_nothing_to_do() -> None:
    assert roofline(0, Traffic(), SMALL).seconds == 0


@pytest.mark.parametrize("name", ["a100", "h100", "h200", "b200", "l40s", "rtx4090", "rtx5090"])
def test_devices_are_plausible(name) -> None:
    device = DEVICES[name]
    assert device.name == name
    assert device.source
    assert 1e12 <= device.flops(4) < device.flops(2) < 1e16
    assert 5e11 < device.bytes_per_second < 1e13
