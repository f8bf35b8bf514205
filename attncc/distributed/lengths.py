"""The lengths of what is shared between ranks, and its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..diagnostics import AttnccError
from ..problem.refusal import refused

CHUNKS_A_RANK = 8  # where the call doesn't say: 7 % of imbalance at most for causal masks, even without swaps
LEAST_CHUNK = 512  # rows; smaller ones make many launches of few tiles


@dataclass(frozen=True)
class Lengths:
    """Rows of q and of k: of each sequence of a packed batch, or of all sequences of a dense one the same."""

    q: tuple[int, ...]
    kv: tuple[int, ...]
    packed: bool = False

    @classmethod
    def of(cls, given: Any) -> Lengths:
        """`given` is an int, a list of ints (a packed batch), or a tuple of two of these: of q, of k.

        AttnccError A720 for anything else.
        """
        q, kv = given if isinstance(given, tuple) and len(given) == 2 else (given, given)
        try:
            (q_lens, packed), (kv_lens, kv_packed) = _each(q), _each(kv)
        except TypeError:
            raise _unfit(given) from None
        if packed != kv_packed or len(q_lens) != len(kv_lens) or min(q_lens + kv_lens, default=-1) < 0:
            raise _unfit(given)
        return cls(q_lens, kv_lens, packed)

    @property
    def q_rows(self) -> int:
        return sum(self.q)

    @property
    def kv_rows(self) -> int:
        return sum(self.kv)

    @property
    def q_starts(self) -> tuple[int, ...]:
        """cu_seqlens of q."""
        return tuple(accumulate(self.q, initial=0))

    def of_chunks(self, chunks: int) -> NDArray[np.int64]:
        """The sequences of the first and the last row of each chunk of q: [2, chunks]."""
        ends = np.arange(chunks + 1) * (self.q_rows // chunks)
        rows = np.stack([ends[:-1], ends[1:] - 1])
        return np.searchsorted(np.asarray(self.q_starts), rows, side="right") - 1

    @property
    def kv_starts(self) -> tuple[int, ...]:
        return tuple(accumulate(self.kv, initial=0))


def _each(given: Any) -> tuple[tuple[int, ...], bool]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(index(item) for item in given), True
    return (index(given),), False


def _unfit(given: Any) -> AttnccError:
    expected = "an int, a list of the lengths of a packed batch, or a tuple of two of these: of q, of k"
    return refused("A720", "`lengths` can't be used", expected=expected, came=repr(given)[:80])


def chunks_of(lengths: Lengths, ranks: int, chunk: int | None) -> int:
    """How many chunks q and k are cut into: a multiple of the ranks. `chunk` is the rows of q in each.

    AttnccError A720 where ranks can't have equal numbers of rows.
    """
    q_rows, kv_rows = lengths.q_rows, lengths.kv_rows
    each = q_rows // max(ranks, 1)
    if ranks < 1 or min(q_rows, kv_rows) < 1 or q_rows % ranks or kv_rows % ranks:
        raise _unequal(ranks, q_rows, kv_rows)
    if chunk is None:
        fits = [count for count in range(1, CHUNKS_A_RANK + 1) if not each % count and not kv_rows % (ranks * count)]
        large = [count for count in fits if each // count >= LEAST_CHUNK] or fits[:1]
        return ranks * max(large)
    if chunk < 1 or each % chunk or kv_rows % (q_rows // chunk):
        raise refused(
            "A720",
            f"`chunk` is {chunk}, which doesn't divide what each rank has",
            expected=f"a divisor of {each}, the rows of q on each of {ranks} ranks, that divides those of k as often",
            came=chunk,
        )
    return q_rows // chunk


def _unequal(ranks: int, q_rows: int, kv_rows: int) -> AttnccError:
    return refused(
        "A720",
        "ranks can't have equal numbers of rows",
        expected=f"rows of q and of k that are a multiple of {ranks}, the ranks",
        came=f"{q_rows} rows of q, {kv_rows} of k",
        help="pad the batch: a last sequence of the missing rows costs next to nothing",
    )
