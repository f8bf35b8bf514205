"""Counters from which persistent kernels claim their blocks: each stream of a GPU has one, which launches find at 0.

Launches of one stream run one after the other, and each leaves 0 behind (`tile_scheduler.cuh`). So only the
first on a stream clears its counter: that takes the host as long as a launch.
"""

from __future__ import annotations

from threading import Lock

from .driver import LEGACY_STREAM, THREADS_STREAM, Device, Driver

_MOST_STREAMS = 64  # with a counter of their own
_SPACING = 128  # bytes from one to the next: those of two streams are in different lines of the L2 cache
_LEGACY = -1  # in place of the legacy stream's id


class Counters:
    """Those of one GPU. Threads may share them."""

    def __init__(self, driver: Driver, device: Device) -> None:
        self._driver, self._context = driver, device.context
        self._base = driver.allocate(device, _MOST_STREAMS * _SPACING)
        self._addresses: dict[int, int] = {}  # by the ids of streams, not their handles, which come again
        self._lock = Lock()

    def of(self, stream: int) -> int | None:
        """The counter of a stream. None where the next launch needs one that the call owns: if it is recorded in a
        graph, which may be replayed beside whatever the stream does then, or if there are more streams than counters.
        """
        if stream in LEGACY_STREAM:
            key: int | None = _LEGACY
        else:
            key = None if stream == THREADS_STREAM else self._driver.stream_id(stream)
        if key is None:
            return None
        found = self._addresses.get(key)
        return self._assign(key, stream) if found is None else found

    def _assign(self, key: int, stream: int) -> int | None:
        with self._lock:
            number = len(self._addresses)
            if key not in self._addresses and number < _MOST_STREAMS:
                address = self._base + number * _SPACING
                self._driver.zero(self._context, address, stream)
                self._addresses[key] = address
            return self._addresses.get(key)
