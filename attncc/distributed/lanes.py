"""Streams that the launches of a call take in turn: one begins where the last thread blocks of the one before end.

Kernels are persistent: blocks of the next launch wait for a free multiprocessor, and of one stream for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from .call_parts import Arriving

Tensor = Any


class Lanes:
    """The current stream and one beside it. On the CPU, and where launches add to the same sums, there is one lane."""

    def __init__(self, device: Any, *, several: bool) -> None:
        on_gpu = torch.device(device).type == "cuda"
        self._side = _stream_beside(device) if on_gpu and several else None
        self._event = torch.cuda.Event() if self._side is not None else None

    def begin(self, arriving: Arriving, launches: int) -> Turns:
        """The side lane goes on after what is queued. A single launch takes the current stream."""
        return Turns(arriving, self._side if launches > 1 else None, self._event)


@cache
def _stream_beside(device: Any) -> Any:
    """One for all calls: a GPU's streams share a few queues, where they wait for each other."""
    return torch.cuda.Stream(device)


class Turns:
    """Of one call. `arriving`: what its launches wait for, by groups of heads. As a context: the current stream goes on
    after all launches, also if one fails: what they use is free again then.

    Streams are made current one by one, not as contexts, which ask for the device and its stream each time.
    """

    def __init__(self, arriving: Arriving, side: Any, event: Any) -> None:
        self._arriving, self._number, self._event = arriving, -1, event
        self._streams = () if side is None else (torch.cuda.current_stream(side.device), side)
        self._there: dict[int, Any] = {}  # group: what tells that it is there, in the other lane
        self._known = [-1, -1]  # of each lane the last group that it has waited for
        self._held: list[Tensor] = []  # what one lane found and the other reads
        if self._streams:
            self._follow(1, 0)

    def next(self, group: int | None = None) -> None:
        """What follows is a launch that needs this group of heads, or own rows alone, and what goes on in its lane."""
        self._number += 1
        if self._streams:
            torch.cuda.set_stream(self._streams[self._number % 2])
        if group is not None:
            self._wait(group)

    def join(self, results: Iterable[Tensor]) -> None:
        """The lane of the last launch goes on after what the other has by now, which found these."""
        if self._streams:
            here = self._number % 2
            self._held += results
            self._follow(here, 1 - here)

    def reach(self, group: int) -> None:
        """Also where no launch waited for the group: the next exchange begins on all ranks after the same ones."""
        if group > max(self._known):
            self._arriving.wait(group)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        if self._streams:
            torch.cuda.set_stream(self._streams[0])
            self._follow(0, 1)
        self._held.clear()  # not before: this memory may be another launch's then

    def _follow(self, lane: int, other: int) -> None:
        """A lane goes on after what the other has by now."""
        self._event.record(self._streams[other])
        self._streams[lane].wait_event(self._event)

    def _wait(self, group: int) -> None:
        lane = self._number % 2 if self._streams else 0
        if group <= self._known[lane]:
            return
        self._known[lane] = group
        if group > self._known[1 - lane]:
            self._arriving.wait(group)
            if self._streams:
                self._there[group] = self._streams[lane].record_event()
        elif group in self._there:
            self._streams[lane].wait_event(self._there[group])
