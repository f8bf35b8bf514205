"""Which heads of K and V travel together: the first are computed while the next are on their way.

What a rank computes without others' rows hides the exchange, and so do groups of heads. The first group's exchange is
exposed, and each further group costs launches; so few groups are best, a small one first. In the backward pass the last
is small too, since nothing hides its gradients' way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

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
        shares = [group / sum(groups) for group in groups]
        now, further = self.local + self.local_launches - self.launch, 1
        for share, arrived in zip(shares, accumulate(shares), strict=True):
            now = np.maximum(now, arrived * self.travel) + share * self.rest + further * self.launches
            further = FURTHER
        return float(now.max())

    def backward(self, groups: Groups) -> float:
        """K and V come once more. Gradients go back behind them on the same links."""
        shares = [group / sum(groups) for group in groups]
        now, link = BACKWARD * self.local + LAUNCH * (self.local_launches - self.launch), self.travel
        for share, arrived in zip(shares, accumulate(shares), strict=True):
            now = np.maximum(now, arrived * self.travel) + BACKWARD * share * self.rest + LAUNCH * self.launches
            link = np.maximum(link, now) + share * WIDE * self.travel
        return float(np.maximum(now, link).max())

    def groups(self, heads: int, *, back: bool = False) -> Groups:
        """Those with which the slowest rank is done first: the fewest that take the same within a thousandth."""
        if not self.travel.any():
            return (heads,)
        found = {some: (self.backward if back else self.forward)(some) for some in _candidates(heads)}
        most = 1.001 * min(found.values())
        return min((some for some in found if found[some] <= most), key=lambda some: (len(some), found[some]))


@lru_cache(maxsize=64)
def _candidates(heads: int) -> tuple[Groups, ...]:
    return tuple(dict.fromkeys(_each(heads)))


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
