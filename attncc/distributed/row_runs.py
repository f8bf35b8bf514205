"""Some rows of an axis, read and written by one copy for each run of neighbours; where these are many, by an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from .plan_data import Rows

Tensor = Any

WORD, LARGE = torch.complex128, 1 << 19  # elements

MOST_RUNS = 8  # copies that take less time than one gather, which reads an index and no wide words


class RowRuns:
    """`runs`: from the first row to before the last, in the order in which they stand in what is read."""

    def __init__(self, runs: Sequence[Rows], device: Any) -> None:
        self.runs = tuple(_joined(runs))
        self.count = sum(end - begin for begin, end in self.runs)
        self._device = device

    @cached_property
    def _index(self) -> Tensor:
        return torch.from_numpy(rows_of(self.runs)).to(self._device)

    def read(self, x: Tensor, axis: int, into: Tensor) -> None:
        """Copies these rows of `x` to `into`, which has them alone, in its own type."""
        if len(self.runs) > MOST_RUNS:
            into.copy_(x.index_select(axis, self._index))
            return
        for begin, end, place in self.places:
            copy(part(into, axis, place, end - begin), part(x, axis, begin, end - begin))

    def write(self, x: Tensor, axis: int, rows: Tensor) -> None:
        """The inverse."""
        if len(self.runs) > MOST_RUNS:
            x.index_copy_(axis, self._index, rows.to(x.dtype))
            return
        for begin, end, place in self.places:
            copy(part(x, axis, begin, end - begin), part(rows, axis, place, end - begin))

    def add(self, x: Tensor, axis: int, rows: Tensor) -> None:
        """Adds to these rows of `x`, in its type. No row is there twice, so sums don't depend on an order."""
        if len(self.runs) > MOST_RUNS:
            x.index_add_(axis, self._index, rows.to(x.dtype))
            return
        for begin, end, place in self.places:
            part(x, axis, begin, end - begin).add_(part(rows, axis, place, end - begin))

    def zero(self, x: Tensor, axis: int) -> None:
        if len(self.runs) > MOST_RUNS:
            x.index_fill_(axis, self._index, 0)
            return
        for begin, end in self.runs:
            x.narrow(axis, begin, end - begin).zero_()

    @cached_property
    def places(self) -> list[tuple[int, int, int]]:
        """Each run, and where it begins among all rows."""
        lengths = np.cumsum([0, *(end - begin for begin, end in self.runs)]).tolist()
        return [(begin, end, place) for (begin, end), place in zip(self.runs, lengths, strict=False)]


def part(x: Tensor, axis: int, begin: int, length: int) -> Tensor:
    """`x.narrow(axis, begin, length)`; x itself where that is all of it, since a view takes the host's time."""
    return x if length == x.shape[axis] else x.narrow(axis, begin, length)


def copy(into: Tensor, x: Tensor) -> None:
    """`into.copy_(x)`. torch copies parts of tensors by element: large ones go by 16 bytes, half the time of two."""
    if x.numel() >= LARGE and x.dtype == into.dtype and has_words(x) and has_words(into):
        into, x = into.view(WORD), x.view(WORD)
    into.copy_(x)


def has_words(x: Tensor) -> bool:
    """Whether x may be seen as words of 16 bytes."""
    *steps, last = x.stride()
    size = x.element_size()
    lengths = x.shape[-1], x.storage_offset(), *steps
    return last == 1 and size < WORD.itemsize and not any(n * size % WORD.itemsize for n in lengths)


def _joined(runs: Sequence[Rows]) -> list[Rows]:
    found = list[Rows]()
    for begin, end in runs:
        if found and found[-1][1] == begin:
            found[-1] = found[-1][0], end
        elif end > begin:
            found.append((begin, end))
    return found


def runs_of(rows: Any) -> list[Rows]:
    """The runs of increasing row numbers."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, cuts) if run.size]


def joined(runs: Sequence[Rows]) -> list[Rows]:
    """The runs of all rows that any of these has, in order."""
    found = list[Rows]()
    for begin, end in sorted(runs):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > begin:
            found.append((begin, end))
    return found


def among(rows: Any) -> Callable[[Rows], Rows]:
    """Where a run stands among these increasing row numbers, which have all of it."""

    def place(run: Rows) -> Rows:
        first = int(np.searchsorted(rows, run[0]))
        return first, first + run[1] - run[0]

    return place


def rows_of(runs: Sequence[Rows]) -> Any:
    """The row numbers of runs."""
    return np.concatenate([np.arange(0), *(np.arange(begin, end) for begin, end in runs)])


def others(rows: Sequence[Rows], total: int) -> list[Rows]:
    """The runs between those of `rows`, of so many rows in all."""
    found, begin = list[Rows](), 0
    for first, end in sorted(rows):
        if first > begin:
            found.append((begin, first))
        begin = max(begin, end)
    return [*found, (begin, total)] if begin < total else found
