"""The temporary device memory of one call, shared out by offsets: an allocation of the caller's framework, or, where it
is small, what was kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ..cuda.driver import Device, Driver

ALIGNMENT = 256  # bytes, as the frameworks' allocators have it
KEPT_BYTES = 1 << 20  # of each piece of memory that is kept


class Workspace:
    """Hands out offsets; `size` is what the call then allocates, in bytes."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, size: int) -> int:
        offset = self.size
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return offset


class KeptWorkspaces:
    """Memory for small calls on a GPU's default stream: to allocate it takes the host as long as a third of a launch.

    Launches of one stream use memory one after the other, so what a call used is another's as soon as its launches are
    queued. Of other streams it would have to be asked which they are, and whether they are recorded; this one never is.
    Threads may share them: each takes a piece that is idle, or a new one.
    """

    def __init__(self, driver: Driver, device: Device) -> None:
        self._driver, self._device = driver, device
        self._idle: list[int] = []
        self.give_back: Callable[[int], None] = self._idle.append

    def take(self) -> int:
        try:
            return self._idle.pop()
        except IndexError:
            return self._driver.allocate(self._device, KEPT_BYTES)


@cache
def kept_workspaces(driver: Driver, device: Device) -> KeptWorkspaces:
    """Those of one GPU, which all kernels share."""
    return KeptWorkspaces(driver, device)
