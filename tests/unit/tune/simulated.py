"""A GPU that is made up: a clock that drifts, noise with a heavy tail, and a time that passes as kernels run."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Simulated:
    """A launch. `milliseconds`: of a cold card, without noise."""

    milliseconds: float

    def __call__(self) -> None: ...


class SimulatedGpu:
    """Times launches as a card does that warms up under load: kernels get slower by `warming` over some seconds, so
    that who runs first looks fast; the clock also swings by `swing`. A window is off by `noise`, and one of twenty is
    much too long. Each launch is off by up to `placement` for good, as the same kernel at another address is.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        noise: float = 0.005,
        warming: float = 0.06,
        swing: float = 0.01,
        placement: float = 0.001,
        spikes: float = 0.05,
    ) -> None:
        self._random = random.Random(seed)
        self.noise, self.warming, self.swing, self.placement, self.spikes = noise, warming, swing, placement, spikes
        self.seconds = 0.0
        self.launches = 0  # that were timed, or ran before those
        self._heat = 0.0
        self._places: dict[int, float] = {}

    def clock(self) -> float:
        return self.seconds

    def rest(self, seconds: float) -> None:
        """The card cools down."""
        self.seconds += seconds
        self._heat *= math.exp(-seconds / 5)

    def window(self, launch: Callable[[], object], repeats: int, before: int = 0) -> float:
        assert isinstance(launch, Simulated)
        place = self._places.setdefault(id(launch), self._random.uniform(-self.placement, self.placement))
        pace = (1 + place) * (1 + self.warming * self._heat) * (1 + self.swing * math.sin(self.seconds / 3))
        busy = launch.milliseconds * pace * (repeats + before) / 1e3
        self._heat = 1 - (1 - self._heat) * math.exp(-busy / 5)
        self.seconds += busy + 50e-6
        self.launches += repeats + before
        off = self._random.gauss(0, self.noise)
        if self._random.random() < self.spikes:
            off += 0.02 * self._random.paretovariate(1.5)
        return launch.milliseconds * pace * (1 + off)
