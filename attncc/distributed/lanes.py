"""Streams that the launches of a call take in turn: one begins where the last thread blocks of the one before end.

Kernels are persistent: blocks of the next launch wait for a free multiprocessor, and of one stream for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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

    def begin(self, arriving: Arriving, launches: int) -> Turns:
        """The side lane goes on after what is queued. A single launch takes the current stream."""
        return Turns(arriving, self._side if launches > 1 else None)


@cache
def _stream_beside(device: Any) -> Any:
    """One for all calls: a GPU's streams share a few queues, where they wait for each other."""
    return torch.cuda.Stream(device)


class Turns:
    """Of one call. `arriving`: what its launches wait for, by groups of heads. As a context: the current stream goes on
    after all launches, also if one fails: what they use is free again then."""

    def __init__(self, arriving: Arriving, side: Any) -> None:
        self._arriving, self._side, self._number = arriving, side, -1
        self._main: Any = None
        self._there: dict[int, Any] = {}  # group: what tells that it is there, in the other lane
        self._known = [-1, -1]  # of each lane the last group that it has waited for
        if side is not None:
            side.wait_stream(torch.cuda.current_stream(side.device))

    @contextmanager
    def next(self, group: int | None = None) -> Iterator[None]:
        """For a launch that needs this group of heads, or own rows alone."""
        self._number += 1
        with self._lane():
            if group is not None:
                self._wait(group)
            yield

    @contextmanager
    def again(self, *results: Tensor) -> Iterator[None]:
        """In the lane of the last launch, after what the other has by now, which found these."""
        with self._lane():
            if self._side is not None and results:
                current = torch.cuda.current_stream(self._side.device)
                current.wait_stream(self._main if current == self._side else self._side)
                for x in results:
                    x.record_stream(current)
            yield

    def reach(self, group: int) -> None:
        """Also where no launch waited for the group: the next exchange begins on all ranks after the same ones."""
        if group > max(self._known):
            self._arriving.wait(group)

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        if self._side is not None:
            torch.cuda.current_stream(self._side.device).wait_stream(self._side)

    @contextmanager
    def _lane(self) -> Iterator[None]:
        if self._side is None or self._number % 2 == 0:
            yield
            return
        self._main = torch.cuda.current_stream(self._side.device)
        with torch.cuda.stream(self._side):
            yield

    def _wait(self, group: int) -> None:
        lane = self._number % 2 if self._side is not None else 0
        if group <= self._known[lane]:
            return
        self._known[lane] = group
        if group > self._known[1 - lane]:
            self._arriving.wait(group)
            if self._side is not None:
                self._there[group] = torch.cuda.current_stream(self._side.device).record_event()
        elif group in self._there:
            torch.cuda.current_stream(self._side.device).wait_event(self._there[group])
