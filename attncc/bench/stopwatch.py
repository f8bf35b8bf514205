"""Timing by torch's events, with the meters of NVML."""

from __future__ import annotations

import statistics
import time
from importlib.util import find_spec
from typing import Any

import torch

from ..runtime.cuda.timing import Launch, Sustained

_BURST = 5


class TorchStopwatch:
    """Times launches on torch's current stream. Clock and power need pynvml (`nvidia-ml-py`); None without it."""

    def __init__(self) -> None:
        self._meters = Meters() if find_spec("pynvml") else None

    def window(self, launch: Launch, repeats: int, before: int = 0) -> float:
        start, end = _events()
        _queue(launch, before)
        start.record()
        _queue(launch, repeats)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / repeats

    def sustained(self, launch: Launch, repeats: int) -> Sustained:
        if self._meters is None:
            return Sustained(self.window(launch, repeats), None, None)
        start, end = _events()
        clocks, joules = [], -self._meters.joules()
        start.record()
        _queue(launch, repeats)
        end.record()
        while not end.query():
            clocks.append(self._meters.sm_clock_mhz())
            time.sleep(0.01)
        joules += self._meters.joules()
        seconds = start.elapsed_time(end) / 1e3
        clock = statistics.median(clocks[len(clocks) // 2 :]) if clocks else None
        return Sustained(seconds * 1e3 / repeats, clock, joules / seconds)

    def host(self, launch: Launch) -> float:
        return statistics.median(_burst(launch) for _ in range(5))


def _events() -> tuple[Any, Any]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def _queue(launch: Launch, repeats: int) -> None:
    for _ in range(repeats):
        launch()


def _burst(launch: Launch) -> float:
    """Milliseconds of the host for each of a few launches on an idle GPU."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    _queue(launch, _BURST)
    return (time.perf_counter() - begin) * 1e3 / _BURST


class Meters:
    """The SM clock and the energy counter of torch's current GPU."""

    def __init__(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml: Any = pynvml
        self._device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties().uuid}")

    def sm_clock_mhz(self) -> float:
        return float(self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM))

    def joules(self) -> float:
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device)) / 1e3
