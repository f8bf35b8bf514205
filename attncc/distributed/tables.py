"""What searches for an assignment read of all masks together: one table of each kind, so that a step makes few calls
of NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .cost import Floats, Loads, Owners, combined_work, ideal_seconds

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Tables:
    """`by_pair`: of each mask, rows of each kv chunk that each q chunk needs, [masks, q chunk, kv chunk]."""

    loads: Loads
    by_pair: Rows

    @classmethod
    def of(cls, loads: Loads) -> Tables:
        return cls(loads, np.stack([load.by_pair for load in loads]))

    def faster(self, times: int) -> Tables:
        """On a GPU that computes so many times as fast."""
        return Tables(tuple(replace(load, seconds=load.seconds / times) for load in self.loads), self.by_pair)

    @cached_property
    def by_chunk(self) -> Floats:
        """Seconds of each chunk of queries, of one layer: [masks, chunks]."""
        return np.stack([load.by_chunk for load in self.loads])

    @cached_property
    def layers(self) -> Rows:
        """[masks, 1]"""
        return np.array([[load.layers] for load in self.loads], np.float32)

    @cached_property
    def row_bytes(self) -> Rows:
        """[masks, 1]"""
        return np.array([[load.row_bytes] for load in self.loads], np.float32)

    @cached_property
    def work(self) -> Floats:
        """Seconds of each chunk over all layers."""
        return combined_work(self.loads)

    @cached_property
    def bytes_by_pair(self) -> Rows:
        """Bytes that each chunk of q needs of each chunk of k, of all layers of each mask: [chunks, masks · chunks]."""
        return np.concatenate(list(self._bytes()), axis=1)

    def _bytes(self) -> Iterator[Rows]:
        for load, by_pair in zip(self.loads, self.by_pair, strict=True):
            yield by_pair * (load.layers * load.row_bytes)

    def compute(self, owners: Owners, ranks: int) -> tuple[Floats, Floats]:
        """Seconds that each rank computes: for one layer of each mask, [masks, ranks], and for all layers."""
        seconds = np.concatenate([self.by_chunk, self.work[None]])
        rank = owners + np.arange(len(seconds))[:, None] * ranks
        found = np.asarray(np.bincount(rank.ravel(), seconds.ravel(), len(seconds) * ranks), np.float64)
        return found.reshape(-1, ranks)[:-1], found[-ranks:]

    def ideal_seconds(self, ranks: int) -> float:
        return ideal_seconds(self.loads, ranks)
