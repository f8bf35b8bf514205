"""Gradients of a rank's own rows of K and V: what it found itself, and what others did, in the order of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from .row_runs import MOST_RUNS, RowRuns, among, copy, joined, part, rows_of, runs_of

Tensor = Any


class _Segment(NamedTuple):
    """Neighbouring own rows that the same ranks found gradients of."""

    own: int  # the first among own rows
    row: int  # and among all rows
    length: int
    others: list[tuple[int, int]]  # who found them, and the first among those that it found


class OwnGradients:
    """`own`: own rows among those of all ranks; `going`: of own ones, those that each rank found gradients of too.

    Rows that others found gradients of are added up in fp32 or wider and rounded once; so are the others, which no
    memory in fp32 is spent on.
    """

    def __init__(self, own: RowRuns, going: Sequence[RowRuns], device: Any) -> None:
        found = joined([run for rows in going for run in rows.runs])
        numbers, among_found = rows_of(own.runs), among(rows_of(found))
        self._own = own
        self._found = RowRuns(found, device)  # by others, as own rows are numbered
        self._found_of_all = RowRuns([run for begin, end in found for run in runs_of(numbers[begin:end])], device)
        self._segments = list(_segments(own, going, numbers))
        self._parts = [RowRuns([among_found(run) for run in rows.runs], device) for rows in going]

    def write(self, result: Tensor, axis: int, found: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
        """`result`: own rows; `found`: of all ranks' rows; `parts`: those of `going`, by rank."""
        if len(self._segments) <= MOST_RUNS:
            for own, row, length, others in self._segments:
                terms = [part(x, axis, row, length) for x in found]
                terms += [part(parts[rank], axis, first, length) for rank, first in others]
                _write_sum(part(result, axis, own, length), terms)
            return
        if self._found.count < self._own.count:
            self._sum(result, axis, found)
        if self._found.count:
            total = self._wide(result, axis, self._found_of_all, found)
            for rows, some in zip(self._parts, parts, strict=True):
                rows.add(total, axis, some)
            self._found.write(result, axis, total)

    def _sum(self, result: Tensor, axis: int, found: Sequence[Tensor]) -> None:
        if len(found) == 1:
            self._own.read(found[0], axis, result)
        elif len(found) == 2:
            self._own.read_sum(found[0], found[1], axis, result)
        else:
            result.copy_(self._wide(result, axis, self._own, found))

    def _wide(self, result: Tensor, axis: int, rows: RowRuns, found: Sequence[Tensor]) -> Tensor:
        """The sum of some rows in fp32 or wider."""
        shape, axis = list(result.shape), axis % result.dim()
        shape[axis] = rows.count
        total = torch.empty(shape, dtype=torch.promote_types(result.dtype, torch.float32), device=result.device)
        rows.read(found[0], axis, total)
        for x in found[1:]:
            rows.add_to(total, x, axis)
        return total


def _segments(own: RowRuns, going: Sequence[RowRuns], numbers: Any) -> Iterator[_Segment]:
    cuts = {place for _, _, place in own.places}.union(*(run for rows in going for run in rows.runs))
    for begin, end in pairwise(sorted(cuts | {own.count})):
        others = [
            (rank, place + begin - first)
            for rank, rows in enumerate(going)
            for first, last, place in rows.places
            if first <= begin < last
        ]
        yield _Segment(begin, int(numbers[begin]), end - begin, others)


def _write_sum(result: Tensor, terms: Sequence[Tensor]) -> None:
    """In their order: of more than two in fp32 or wider, where the last sum is rounded as it is written."""
    first, *others = terms
    if not others:
        copy(result, first)
        return
    *between, last = others
    if between:
        wide = torch.promote_types(result.dtype, torch.float32)
        first = torch.empty(first.shape, dtype=wide, device=first.device).copy_(first)
        for x in between:
            first.add_(x)
    torch.add(first, last, out=result)
