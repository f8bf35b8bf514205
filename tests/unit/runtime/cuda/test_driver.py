"""The driver binding at its boundary, with a libcuda that only takes notes."""

from __future__ import annotations

import ctypes

import pytest

from attncc.diagnostics import AttnccError
from attncc.runtime.cuda import driver as module
from attncc.runtime.cuda.driver import Device, Driver
from tests.unit.runtime.fakes import CONTEXT, FakeCuda


def opened(**settings: int) -> tuple[Driver, FakeCuda]:
    cuda = FakeCuda({"kernel": ()}, **settings)
    return Driver(cuda), cuda  # type: ignore[arg-type]


def test_devices() -> None:
    driver, cuda = opened(capability=89, cuda_version=12080, devices=3)
    assert driver.capabilities() == {89}
    assert cuda.retained == []
    assert driver.device(1) == Device(1, "Fake GPU", 89, 132, 50 << 20, CONTEXT + 1)
    assert driver.device(1) is driver.device(1)
    assert driver.cuda_version == (12, 8)


def test_functions_are_loaded_in_the_devices_context() -> None:
    driver, cuda = opened()
    function = driver.load(driver.device(1), b"cubin", "kernel", 256, 100_000)
    assert (function.context, function.threads, function.shared_bytes) == (CONTEXT + 1, 256, 100_000)
    assert function.resident_blocks == 2
    assert cuda.contexts == [CONTEXT]


def test_a_refused_cubin_names_the_call_and_leaves_the_context() -> None:
    driver, cuda = opened()
    cuda.results["cuModuleLoadData"] = 209
    with pytest.raises(AttnccError, match=r"A510.*cuModuleLoadData.*CUDA error 209"):
        driver.load(driver.device(1), b"cubin", "kernel", 128, 0)
    assert cuda.contexts == [CONTEXT]


VERSIONS = [(12080, "12.9", True), (12080, "13.0", False), (13020, "12.8", True)]


@pytest.mark.parametrize(("version", "nvrtc", "fits"), VERSIONS)
def test_the_driver_must_be_as_new_as_the_compiler(version: int, nvrtc: str, fits: bool) -> None:
    driver, _ = opened(cuda_version=version)
    if fits:
        driver.check_version(nvrtc)
        return
    with pytest.raises(AttnccError, match=r"A504.*580"):
        driver.check_version(nvrtc)


def test_drivers_before_cuda_12_are_refused() -> None:
    with pytest.raises(AttnccError, match=r"A504.*attncc needs driver 525") as caught:
        opened(cuda_version=11080)
    assert "cuda11" not in caught.value.diagnostics[0].help


def test_a_machine_without_gpu_says_so() -> None:
    cuda = FakeCuda({})
    cuda.results["cuInit"] = 100
    with pytest.raises(AttnccError, match=r"A503.*finds no GPU"):
        Driver(cuda)  # type: ignore[arg-type]


def test_a_machine_without_driver_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    module.driver.cache_clear()
    with pytest.raises(AttnccError, match=r"A503.*no NVIDIA driver") as caught:
        module.driver()
    assert "libcuda.so.1" in caught.value.diagnostics[0].notes[0]


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_default_streams_are_those_of_the_device(stream: int) -> None:
    """Another device is current: its default stream would take the order to clear memory as its own."""
    driver, cuda = opened()
    driver.zero(CONTEXT + 1, 0x100, stream)
    driver.zero(CONTEXT, 0x200, stream, words=3)
    assert cuda.zeroed_in == [CONTEXT + 1, CONTEXT] and cuda.contexts == [CONTEXT]
    assert cuda.zeroed == [(0x100, stream, 0), (0x200, stream, 0)]


def test_other_streams_know_their_device() -> None:
    driver, cuda = opened()
    driver.zero(CONTEXT + 1, 0x100, 0xAB)
    assert cuda.zeroed_in == [CONTEXT]  # no look at contexts: the driver refuses what doesn't fit
