"""The calls that tell where forms of a serving call cross: for each of `Crossings` the values to try, and calls between
them, whose form depends on it.

Sizes follow from the number of multiprocessors. Keys and values are far larger than the L2 cache, or come in as many
copies as that takes. `NEVER` among the values: one of the two forms is never faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..kernels.crossings import NEVER, Chip
from ..problem import Problem

HEAD_DIM = 128
LATENT_DIMS = 576, 512  # of MLA: v is the first columns of k
_KEY_TILE = 64  # keys, of the decode kernel


class Sample(NamedTuple):
    """A dense call without a mask. `latent`: v is the first columns of k."""

    batch: int
    group: int  # query heads of a key head
    kv_heads: int
    q_len: int
    kv_len: int
    latent: bool = False

    @property
    def head_dims(self) -> tuple[int, int]:
        return LATENT_DIMS if self.latent else (HEAD_DIM, HEAD_DIM)

    @property
    def problem(self) -> Problem:
        heads = self.group * self.kv_heads
        return Problem(self.batch, heads, self.kv_heads, self.q_len, self.kv_len, *self.head_dims)


@dataclass(frozen=True)
class Point:
    """One of `Crossings`, by name: what it decides, for people; the values to try."""

    name: str
    decides: str
    values: tuple[float, ...]
    samples: Callable[[Chip], Iterator[Sample]]


def _split_keys(chip: Chip) -> Iterator[Sample]:
    heads = max(chip.multiprocessors // 16, 1)
    return (Sample(1, 1, heads, 128, keys) for keys in (768, 1536, 3072, 6144))


def _idle_share(chip: Chip) -> Iterator[Sample]:
    shares = 2.5, 3.5, 5, 7, 12
    return (Sample(1, 1, max(int(chip.multiprocessors / share), 1), 128, 8192) for share in shares)


def _wide_keys(chip: Chip) -> Iterator[Sample]:
    return (Sample(16, 16, 1, 1, keys, latent=True) for keys in (384, 768, 1536, 3072, 6144, 12288))


def _many_rows(chip: Chip) -> Iterator[Sample]:
    return (Sample(max(chip.multiprocessors // 2, 1), group, 4, 4, 2048) for group in (5, 6, 7, 8))


def _more_rows(chip: Chip) -> Iterator[Sample]:
    return (Sample(max(chip.multiprocessors // 2, 1), 8, 4, q_len, 2048) for q_len in (5, 6, 7, 8))


def _one_block_rows(chip: Chip) -> Iterator[Sample]:
    batch = max(chip.multiprocessors // 8, 1)
    rows = (8, 1), (8, 2), (7, 3), (7, 4), (8, 5), (8, 6), (8, 8)
    return (Sample(batch, group, 4, q_len, 8192) for group, q_len in rows)


def _one_block_keys(chip: Chip) -> Iterator[Sample]:
    return (Sample(chip.multiprocessors, 4, 1, 1, keys) for keys in (768, 1536, 3072, 6144, 12288))


def _one_block_share(chip: Chip) -> Iterator[Sample]:
    shares = 0.66, 0.72, 0.78, 0.84, 0.9, 0.97
    return (Sample(max(int(chip.multiprocessors * share), 1), 4, 1, 1, 8192) for share in shares)


def _run_keys(chip: Chip, tiles: float, heads: int) -> int:
    """Keys, so that a multiprocessor has about so many tiles of some heads."""
    return int(chip.multiprocessors * tiles) // heads * _KEY_TILE


def _short_run(chip: Chip) -> Iterator[Sample]:
    return (Sample(1, 4, 8, 1, _run_keys(chip, tiles, 8)) for tiles in (6, 10, 14, 17, 21, 28, 40))


def _short_run_rows(chip: Chip) -> Iterator[Sample]:
    more = 1, 3, 6, 12
    return (Sample(1, 4, 8, 4, _run_keys(chip, chip.crossings.short_run + tiles, 8)) for tiles in more)


def _merged_rows(chip: Chip) -> Iterator[Sample]:
    yield from (Sample(1, 8, 1, 1, keys) for keys in (2048, 8192, 32768))
    yield from (Sample(1, 4, 8, 4, keys) for keys in (1024, 4096))


POINTS = (
    Point(
        "split_keys", "forward -> decode, few thread blocks: keys", (512, 1024, 2048, 4096, 8192, NEVER), _split_keys
    ),
    Point(
        "idle_share",
        "forward -> decode: multiprocessors for each thread block",
        (2, 3, 4, 6, 8, 16, NEVER),
        _idle_share,
    ),
    Point(
        "wide_keys",
        "decode -> the kernel of wide heads, few rows: keys",
        (256, 512, 1024, 2048, 4096, 8192, 16384, NEVER),
        _wide_keys,
    ),
    Point("many_rows", "decode -> its kernel for 17 rows and more: rows", (17, 22, 26, 30, NEVER), _many_rows),
    Point("more_rows", "-> its kernel for 33 rows and more: rows", (33, 44, 52, 60, NEVER), _more_rows),
    Point(
        "one_block_rows",
        "two thread blocks a multiprocessor -> one: rows",
        (1, 12, 18, 24, 33, 44, 56, NEVER),
        _one_block_rows,
    ),
    Point(
        "one_block_keys",
        "the same, where each has a head: keys",
        (512, 1024, 2048, 4096, 8192, 16384, NEVER),
        _one_block_keys,
    ),
    Point(
        "one_block_share",
        "the same: heads for each multiprocessor",
        (0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, NEVER),
        _one_block_share,
    ),
    Point(
        "short_run",
        "one part of the keys a multiprocessor -> two: tiles of one row",
        (2, 6, 10, 13, 16, 20, 26, 40),
        _short_run,
    ),
    Point("short_run_rows", "the same: rows that count as a tile", (1, 2, 4, 8, NEVER), _short_run_rows),
    Point(
        "merged_rows", "few parts -> many: rows merged in the time of a tile", (6, 12, 24, 48, 96, NEVER), _merged_rows
    ),
)
