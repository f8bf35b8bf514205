"""Which heads of K and V travel together: the first are computed while the next are on their way.

What a rank computes without others' rows hides the exchange, and so do groups of heads. The first group's exchange is
exposed, and each further group costs launches; so few groups are best, a small one first. In the backward pass the last
is small too, since nothing hides its gradients' way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

BACKWARD = 2.5  # times the forward pass's work
FURTHER = 2  # launches that one of a further group counts as: the host cuts tensors for it
LAUNCH = 6  # times the forward pass's launch: it is three kernels, and each ends with blocks that run alone
WIDE = 2  # times the bytes of K and V: their gradients in fp32, where they are 16-bit

Groups = tuple[int, ...]  # heads of k in each
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Times:
    """Seconds of each rank: work on own rows alone, all other work, the exchange, and the launches of both works."""

    local: Floats
    rest: Floats
    travel: Floats
    local_launches: Floats
    launches: Floats  # of each group
    launch: float  # one, that a whole call has in any case

    def forward(self, groups: Groups) -> float:
        """Of the slowest rank, with what of travel isn't hidden."""
        return float(self._forward(_Shares.of((groups,)))[0])

    def backward(self, groups: Groups) -> float:
        """K and V come once more. Gradients go back behind them on the same links."""
        return float(self._backward(_Shares.of((groups,)))[0])

    def _forward(self, some: _Shares) -> Floats:
        now = self.local + self.local_launches - self.launch
        for share, arrived, is_there, is_first in some.steps:
            launches = is_there * (1 if is_first else FURTHER) * self.launches
            now = np.maximum(now, arrived * self.travel) + share * self.rest + launches
        return np.asarray(now.max(axis=1))

    def _backward(self, some: _Shares) -> Floats:
        now, link = BACKWARD * self.local + LAUNCH * (self.local_launches - self.launch), self.travel
        for share, arrived, is_there, _ in some.steps:
            launches = is_there * LAUNCH * self.launches
            now = np.maximum(now, arrived * self.travel) + BACKWARD * share * self.rest + launches
            link = np.where(is_there, np.maximum(link, now) + share * WIDE * self.travel, link)
        return np.asarray(np.maximum(now, link).max(axis=1))

    def best(self, heads: int, *, back: bool = False) -> tuple[Groups, float]:
        """Groups with which the slowest rank is done first, and when: the fewest that take the same within a
        thousandth."""
        candidates, shares = _candidates(heads if self.travel.any() else 1)
        times = (self._backward if back else self._forward)(shares)
        if len(candidates) == 1:
            return (heads,), float(times[0])
        near = np.flatnonzero(times <= 1.001 * times.min()).tolist()
        which = min(near, key=lambda number: (len(candidates[number]), times[number]))
        return candidates[which], float(times[which])


@dataclass(frozen=True)
class _Shares:
    """Some ways to group heads, one in a row: each group's share of all heads, 0 behind the last."""

    of_groups: Floats

    @classmethod
    def of(cls, ways: tuple[Groups, ...]) -> _Shares:
        longest = max(map(len, ways))
        return cls(np.array([[*(heads / sum(way) for heads in way), *[0.0] * (longest - len(way))] for way in ways]))

    @cached_property
    def steps(self) -> tuple[tuple[Floats, Floats, NDArray[np.bool_], bool], ...]:
        """Of each group: the share, with those before it, whether there is such a group, all [ways, 1]; the first?"""
        arrived = np.cumsum(self.of_groups, axis=1)
        columns = [(self.of_groups[:, [number]], arrived[:, [number]]) for number in range(arrived.shape[1])]
        return tuple((share, so_far, share > 0, number == 0) for number, (share, so_far) in enumerate(columns))


@lru_cache(maxsize=64)
def _candidates(heads: int) -> tuple[tuple[Groups, ...], _Shares]:
    found = tuple(dict.fromkeys(_each(heads)))
    return found, _Shares.of(found)


def _each(heads: int) -> Iterator[Groups]:
    """All together; or small groups first and last, of powers of two, and one or two between them."""
    yield (heads,)
    small = [1 << power for power in range(heads.bit_length()) if 1 << power <= heads // 2][:4]
    for first in small:
        yield first, heads - first
        yield heads - first, first
        for other in small:
            rest = heads - first - other
            if rest > 0:
                yield first, rest, other
                yield first, other, rest
