"""Counters of persistent kernels, which launches find at 0: the next block to claim, or who has come to an item.

Launches of one stream use memory one after the other, even where one begins before the other is over
(`kernel_ahead.cuh`), and each leaves 0 behind (`tile_scheduler.cuh`, `partial_results.cuh`). So only the first on a
stream clears its counters: that takes the host as long as a launch. What a graph records may be replayed beside
whatever the stream does then: it has counters of its own, if there are some ahead that are clear.
"""

from __future__ import annotations

from threading import Lock

from .driver import LEGACY_STREAM, THREADS_STREAM, Device, Driver

_MOST_STREAMS = 64  # with counters of their own
_LINE_WORDS = 32  # from one to the next: those of two streams are in different lines of the L2 cache
_WORD_BYTES = 4
_LEGACY = -1  # in place of the legacy stream's id


class Counters:
    """Those of one GPU: so many `words` for a launch, and as many clear ones for launches that graphs `record`. Threads
    may share them."""

    def __init__(self, driver: Driver, device: Device, words: int = 1, recorded: int = 0) -> None:
        self._driver, self._context = driver, device.context
        self.words = words
        line = -(-words // _LINE_WORDS) * _LINE_WORDS
        self._spacing = line * _WORD_BYTES
        self._base = driver.allocate(device, _MOST_STREAMS * self._spacing)
        clear = driver.zeros(device, recorded * line) if recorded else 0
        self._clear = [clear + number * self._spacing for number in range(recorded)]
        self._addresses: dict[int, int] = {}  # by the ids of streams, not their handles, which come again
        self._lock = Lock()

    def of(self, stream: int) -> int | None:
        """The counters of a stream, or of the launch that is recorded on it. None where the next launch needs some that
        the call owns: if there are more streams than counters, or none are clear."""
        if stream in LEGACY_STREAM:
            key: int | None = _LEGACY
        elif stream == THREADS_STREAM:
            return None
        else:
            key = self._driver.stream_id(stream)
        if key is None:
            return self._take_clear()
        found = self._addresses.get(key)
        return self._assign(key, stream) if found is None else found

    def _take_clear(self) -> int | None:
        """They are the graph's from now on."""
        try:
            return self._clear.pop()
        except IndexError:
            return None

    def _assign(self, key: int, stream: int) -> int | None:
        with self._lock:
            number = len(self._addresses)
            if key not in self._addresses and number < _MOST_STREAMS:
                address = self._base + number * self._spacing
                self._driver.zero(self._context, address, stream, self.words)
                self._addresses[key] = address
            return self._addresses.get(key)
