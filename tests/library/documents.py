"""Masks over documents packed into one sequence. Documents may be empty, and padding may follow the last."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from attncc.evaluate import Array
from tests.library.cases import Drawn, Family, Random, distance, int32, last_rows

case = Family()

BATCH = 2


def cuts(random: Random, length: int) -> list[int]:
    """Where documents begin and the last one ends, [0, ..., length]: about six, some of them empty."""
    inner = np.sort(random.integers(0, length + 1, 5))
    return [0, *inner.tolist(), int(inner[-1]), length]


def per_position(starts: list[int], values: list[int]) -> Array:
    """`values` of documents, one for each of their positions."""
    return np.repeat(values, np.diff(starts))


def numbers(starts: list[int]) -> Array:
    return per_position(starts, list(range(len(starts) - 1)))


def same_document(starts: list[int], kv_len: int) -> Array:
    """[kv_len, kv_len]: one square of ones for each document."""
    square = np.zeros((kv_len, kv_len), bool)
    for first, end in pairwise(starts):
        square[first:end, first:end] = True
    return square


def packed(random: Random, q_len: int, kv_len: int) -> tuple[Array, Array]:
    """The documents' numbers [batch, kv_len], and which pairs share one [batch, 1, q_len, kv_len]."""
    starts = [cuts(random, kv_len) for _ in range(BATCH)]
    squares = np.stack([same_document(own, kv_len) for own in starts])[:, None]
    return int32([numbers(own) for own in starts]), last_rows(squares, q_len)


@case("documents")
def documents(random: Random, q_len: int, kv_len: int) -> Drawn:
    doc, same = packed(random, q_len, kv_len)
    return {"doc": doc}, same & (distance(q_len, kv_len) >= 0)


@case("documents_bidirectional")
def documents_bidirectional(random: Random, q_len: int, kv_len: int) -> Drawn:
    doc, same = packed(random, q_len, kv_len)
    return {"doc": doc}, same


@case("alibi_documents", {"width": 2}, {"width": 150})
def alibi_documents(random: Random, q_len: int, kv_len: int, *, width: int) -> Drawn:
    doc, same = packed(random, q_len, kv_len)
    return {"doc": doc}, same & np.isin(distance(q_len, kv_len), range(width))


def padded(random: Random, kv_len: int) -> list[int]:
    """Documents that leave up to a third of the positions to padding."""
    return cuts(random, kv_len - int(random.integers(0, kv_len // 3 + 1)))


def starts_of(starts: list[int], kv_len: int) -> Array:
    """Where the document of each position starts; that of padding starts beyond the keys."""
    return np.concatenate([per_position(starts, starts[:-1]), np.full(kv_len - starts[-1], kv_len)])


@case("documents_by_start")
def documents_by_start(random: Random, q_len: int, kv_len: int) -> Drawn:
    """The same documents as `documents` has, and nothing in rows of padding."""
    starts = [padded(random, kv_len) for _ in range(BATCH)]
    squares = np.stack([np.tril(same_document(own, kv_len)) for own in starts])[:, None]
    return {"start": int32([starts_of(own, kv_len) for own in starts])}, last_rows(squares, q_len)


@case("documents_prefix_lm")
def documents_prefix_lm(random: Random, q_len: int, kv_len: int) -> Drawn:
    start, prefix_end, squares = [], [], []
    for _ in range(BATCH):
        own = padded(random, kv_len)
        prefixes = [int(random.integers(0, end - first + 1)) for first, end in pairwise(own)]
        square = np.zeros((kv_len, kv_len), bool)
        for (first, end), length in zip(pairwise(own), prefixes, strict=True):
            square[first:end, first:end] = np.tri(end - first, dtype=bool)
            square[first:end, first : first + length] = True
        start.append(starts_of(own, kv_len))
        ends = per_position(own, [first + length for first, length in zip(own, prefixes, strict=False)])
        prefix_end.append(np.concatenate([ends, np.full(kv_len - own[-1], kv_len)]))
        squares.append(square)
    inputs = {"start": int32(start), "prefix_end": int32(prefix_end)}
    return inputs, last_rows(np.stack(squares)[:, None], q_len)


@case("shared_prefix")
def shared_prefix(random: Random, q_len: int, kv_len: int) -> Drawn:
    """Groups of a prompt and its answers: [prompt, answer, answer, prompt, answer, ...]."""
    start: list[Array] = []
    first_of: list[Array] = []
    end_of: list[Array] = []
    squares: list[Array] = []
    for _ in range(BATCH):
        own = padded(random, kv_len)
        continues = [0, 0, 0, 3, 3, 3, 3][: len(own) - 1]  # the prompt that each document continues
        square = np.zeros((kv_len, kv_len), bool)
        for i, prompt in enumerate(continues):
            rows = slice(own[i], own[i + 1])
            square[rows, rows] = np.tri(own[i + 1] - own[i], dtype=bool)
            if prompt != i:
                square[rows, own[prompt] : own[prompt + 1]] = True
        padding = np.full(kv_len - own[-1], own[-1])
        ranges = [(own[p], own[p + 1]) if p != i else (own[i], own[i]) for i, p in enumerate(continues)]
        for side, arrays in zip(zip(*ranges, strict=True), (first_of, end_of), strict=True):
            arrays.append(np.concatenate([per_position(own, list(side)), padding]))
        start.append(starts_of(own, kv_len))
        squares.append(square)
    inputs = {"start": int32(start), "prefix_first": int32(first_of), "prefix_end": int32(end_of)}
    return inputs, last_rows(np.stack(squares)[:, None], q_len)
