"""Gradients of rows of K and V, as sums of what launches found, each of its own keys, and what other ranks did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from .plan_data import Rows
from .row_runs import MOST_RUNS, RowRuns, among, copy, joined, part, rows_of, runs_of

Tensor = Any
Places = Sequence[tuple[int, int, int]]  # rows from the first to before the second, and where they begin in a tensor


class _Segment(NamedTuple):
    """Neighbouring rows that the same tensors have terms of."""

    begin: int  # in the tensor of the sums
    length: int
    terms: list[tuple[int, int]]  # the number of a tensor, and where the rows begin in it


class Sums:
    """Rows that are each the sum of those that some tensors have: `into` and `terms` say which rows are where."""

    def __init__(self, into: Places, terms: Sequence[Places]) -> None:
        self._segments = list[_Segment]()
        cuts = sorted({row for places in terms for begin, end, _ in places for row in (begin, end)})
        for first, last, place in into:
            ends = [first, *(row for row in cuts if first < row < last), last]
            for begin, end in pairwise(ends):
                found = [
                    (number, at + begin - start)
                    for number, places in enumerate(terms)
                    for start, stop, at in places
                    if start <= begin < stop
                ]
                self._segments.append(_Segment(place + begin - first, end - begin, found))

    def __len__(self) -> int:
        return len(self._segments)

    def write(self, result: Tensor, axis: int, tensors: Sequence[Tensor]) -> None:
        """In the order of the tensors; of more than two in fp32 or wider, where the last sum is rounded as it is
        written."""
        for begin, length, terms in self._segments:
            found = [part(tensors[number], axis, first, length) for number, first in terms]
            _write_sum(part(result, axis, begin, length), found)


class OwnGradients:
    """`own`: own rows among those of all ranks; `going`: those of them that each rank found gradients of too, in the
    same count; `keys`: the rows that each launch found gradients of.

    Rows that others found gradients of are added up in fp32 or wider and rounded once; so are the others, which no
    memory in fp32 is spent on.
    """

    def __init__(self, own: RowRuns, going: Sequence[RowRuns], rows: int, keys: Sequence[Rows], device: Any) -> None:
        self._own, self._rows, self._keys = own, rows, tuple(keys)
        launches: list[Places] = [[(begin, end, 0)] for begin, end in keys]
        self._sums = Sums(own.places, [*launches, *(some.places for some in going)])
        place = among(rows_of(own.runs))
        found = joined([place(run) for some in going for run in some.runs])
        numbers, among_found = rows_of(own.runs), among(rows_of(found))
        self._found = RowRuns(found, device)  # by others, as own rows are numbered
        self._found_of_all = RowRuns([run for begin, end in found for run in runs_of(numbers[begin:end])], device)
        self._parts = [RowRuns([among_found(place(run)) for run in some.runs], device) for some in going]

    def write(self, result: Tensor, axis: int, found: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
        """`result`: own rows; `found`: of the keys of each launch; `parts`: those of `going`, by rank."""
        if len(self._sums) <= MOST_RUNS:
            self._sums.write(result, axis, [*found, *parts])
            return
        whole = assembled(found, self._keys, self._rows, axis, result)
        if self._found.count < self._own.count:
            self._own.read(whole, axis, result)
        if self._found.count:
            shape, axis = list(result.shape), axis % result.dim()
            shape[axis] = self._found.count
            total = torch.empty(shape, dtype=torch.promote_types(result.dtype, torch.float32), device=result.device)
            self._found_of_all.read(whole, axis, total)
            for rows, some in zip(self._parts, parts, strict=True):
                rows.add(total, axis, some)
            self._found.write(result, axis, total)


def assembled(found: Sequence[Tensor], keys: Sequence[Rows], rows: int, axis: int, like: Tensor) -> Tensor:
    """The sum of what launches found of these keys, of all rows: of one launch in its type, of more in fp32 or wider.
    `like`: some rows of the result."""
    axis %= like.dim()
    if len(found) == 1 and keys[0] == (0, rows):
        return found[0]
    shape = (*like.shape[:axis], rows, *like.shape[axis + 1 :])
    dtype = torch.promote_types(like.dtype, torch.float32) if len(found) > 1 else like.dtype
    whole = torch.zeros(shape, dtype=dtype, device=like.device)
    for x, (begin, end) in zip(found, keys, strict=True):
        part(whole, axis, begin, end - begin).add_(x)
    return whole


def _write_sum(result: Tensor, terms: Sequence[Tensor]) -> None:
    if not terms:
        result.zero_()
        return
    first, *others = terms
    if not others:
        copy(result, first)
        return
    *between, last = others
    wide = torch.promote_types(result.dtype, torch.float32)
    if between or result.dtype == wide:
        # A sum of two 16-bit tensors would be rounded to their type, also on its way to a wider one.
        first = torch.empty(first.shape, dtype=wide, device=first.device).copy_(first)
        for x in between:
            first.add_(x)
    torch.add(first, last, out=result)
