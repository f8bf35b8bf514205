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

NARROW, HEAD_DIM, WIDE = 64, 128, 256
LATENT_DIMS = 576, 512  # of MLA: v is the first columns of k
_KEY_TILE = 64  # keys, of the decode kernel


class Sample(NamedTuple):
    """A dense call, without a mask or causal."""

    batch: int
    group: int  # query heads of a key head
    kv_heads: int
    q_len: int
    kv_len: int
    head_dims: tuple[int, int] = (HEAD_DIM, HEAD_DIM)
    causal: bool = False

    @property
    def latent(self) -> bool:
        """Whether v is the first columns of k."""
        return self.head_dims == LATENT_DIMS

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


_QUERIES = (8, 1), (8, 2), (7, 3), (8, 4), (8, 5), (8, 6), (8, 8)  # a group, and queries


def _split_keys(chip: Chip) -> Iterator[Sample]:
    """Few thread blocks of the forward kernel, and a sixth of the multiprocessors' number; a causal mask over a cache
    too, of which all queries see about as much."""
    for head_dim in (NARROW, HEAD_DIM, WIDE):
        for blocks in (chip.multiprocessors // 16, chip.multiprocessors // 6):
            dims, heads = (head_dim, head_dim), max(blocks, 1)
            yield from (Sample(1, 1, heads, 128, keys, dims) for keys in (256, 512, 1024, 1536, 2304))
            yield from (Sample(1, 1, heads, 128, keys, dims, causal=True) for keys in (1024, 2304))


def _uneven_split_keys(chip: Chip) -> Iterator[Sample]:
    """Without a cache: the first queries see few keys, the last all."""
    for head_dim in (NARROW, HEAD_DIM, WIDE):
        for heads in (chip.multiprocessors // 64, chip.multiprocessors // 32, chip.multiprocessors // 16):
            for keys in (512, 1024, 2048, 4096):
                yield Sample(1, 1, max(heads, 1), keys, keys, (head_dim, head_dim), causal=True)


def _row_block_cost(chip: Chip) -> Iterator[Sample]:
    """So many blocks of 64 rows: of heads by themselves, and of groups of heads with few queries."""
    for head_dim in (NARROW, HEAD_DIM, WIDE):
        for share in (2, 1.5, 1.25):
            blocks, dims = max(int(chip.multiprocessors / share), 1), (head_dim, head_dim)
            yield Sample(1, 1, max(blocks // 2, 1), 128, 6144, dims)
            yield Sample(1, 1, max(blocks // 8, 1), 512, 16384, dims)
            yield Sample(1, 8, 8, blocks, 8192, dims)


def _combine_keys(chip: Chip) -> Iterator[Sample]:
    """Chunks of queries of grouped heads, with blocks of 128 rows for a few multiprocessors and for half of them."""
    for head_dim in (NARROW, HEAD_DIM, WIDE):
        for share in (16, 4):
            heads = max(chip.multiprocessors // share, 1)
            yield from (Sample(1, 4, heads, 32, keys, (head_dim, head_dim)) for keys in (768, 1536, 3072, 6144))


def _wide_keys(chip: Chip) -> Iterator[Sample]:
    for batch in (1, 16, 64, 128):
        yield from (Sample(batch, 16, 1, 1, keys, LATENT_DIMS) for keys in (384, 768, 1536, 3072, 6144, 12288))


def _one_block_rows(chip: Chip) -> Iterator[Sample]:
    """A head for each multiprocessor, for each second one, and for a few."""
    some = max(chip.multiprocessors // 8, 1)
    for group, q_len in _QUERIES:
        yield Sample(some, group, 8, q_len, 4096)
        yield Sample(some, group, 4, q_len, 8192)
        yield Sample(1, group, 8, q_len, 32768)


def _one_block_keys(chip: Chip) -> Iterator[Sample]:
    return (Sample(chip.multiprocessors, 4, 1, 1, keys) for keys in (768, 1024, 1280, 1536, 2048, 3072, 6144))


def _one_block_share(chip: Chip) -> Iterator[Sample]:
    for share in (0.66, 0.72, 0.78, 0.84, 0.9, 0.97):
        heads = max(int(chip.multiprocessors * share), 1)
        yield from (Sample(heads, 4, 1, 1, keys) for keys in (4096, 16384))


def _many_rows(chip: Chip) -> Iterator[Sample]:
    """As `_one_block_rows`, and with more heads than multiprocessors."""
    for group in (5, 6, 7, 8):
        yield from _of_rows(chip, group, 4)


def _more_rows(chip: Chip) -> Iterator[Sample]:
    for q_len in (5, 6, 7, 8):
        yield from _of_rows(chip, 8, q_len)


def _of_rows(chip: Chip, group: int, q_len: int) -> Iterator[Sample]:
    some = max(chip.multiprocessors // 8, 1)
    yield Sample(4 * some, group, 4, q_len, 2048)
    yield Sample(2 * some, group, 8, q_len, 4096)
    yield Sample(some, group, 4, q_len, 8192)
    yield Sample(1, group, 8, q_len, 32768)
    yield Sample(4 * some, group, 4, q_len, 4096, (NARROW, NARROW))
    yield Sample(1, group, 8, q_len, 65536, (NARROW, NARROW))


def _run_keys(chip: Chip, tiles: float, heads: int) -> int:
    """Keys, so that a multiprocessor has about so many tiles of some heads."""
    return max(int(chip.multiprocessors * tiles) // heads, 1) * _KEY_TILE


def _short_run(chip: Chip) -> Iterator[Sample]:
    return (Sample(1, 4, 8, 1, _run_keys(chip, tiles, 8)) for tiles in (6, 10, 14, 17, 21, 28, 40))


def _short_run_rows(chip: Chip) -> Iterator[Sample]:
    more = 1, 3, 6, 12
    return (Sample(1, 4, 8, 4, _run_keys(chip, chip.crossings.short_run + tiles, 8)) for tiles in more)


def _merged_rows(chip: Chip) -> Iterator[Sample]:
    yield from (Sample(1, 8, 1, 1, keys) for keys in (2048, 8192, 32768, 131072))
    yield from (Sample(1, 8, 2, 1, keys) for keys in (2048, 16384))
    yield from (Sample(1, 4, 8, 4, keys) for keys in (1024, 4096))


# In the order in which they are measured: which kernel for many rows is best is asked of calls that don't have one
# thread block a multiprocessor.
POINTS = (
    Point(
        "split_keys",
        "forward to decode, few thread blocks: keys to start",
        (100, 150, 200, 250, 300, 400, 600, 800, NEVER),
        _split_keys,
    ),
    Point(
        "uneven_split_keys",
        "the same where a mask lets blocks see few keys and many",
        (200, 400, 600, 800, 1000, 1500, 2000, NEVER),
        _uneven_split_keys,
    ),
    Point("row_block_cost", "the same: times as long, all busy", (0.75, 1, 1.25, 1.5, 1.75, 2, 3), _row_block_cost),
    Point(
        "combine_keys",
        "forward or decode to the kernel that splits keys: keys",
        (200, 400, 600, 800, 1000, 1300, 1700, 2500, NEVER),
        _combine_keys,
    ),
    Point(
        "wide_keys",
        "decode to the kernel of wide heads: keys",
        (256, 512, 1024, 2048, 4096, 8192, 16384, NEVER),
        _wide_keys,
    ),
    Point("one_block_rows", "one block a multiprocessor: rows", (1, 12, 18, 24, 33, 44, 56, NEVER), _one_block_rows),
    Point(
        "one_block_keys",
        "the same, where each has a head: keys",
        (640, 896, 1152, 1408, 1792, 2560, 4096, 8192, NEVER),
        _one_block_keys,
    ),
    Point(
        "one_block_share",
        "the same: heads a multiprocessor",
        (0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, NEVER),
        _one_block_share,
    ),
    Point("many_rows", "to the kernel for 17 rows: rows", (17, 22, 26, 30, NEVER), _many_rows),
    Point("more_rows", "to the kernel for 33 rows: rows", (33, 44, 52, 60, NEVER), _more_rows),
    Point(
        "short_run",
        "two parts of the keys a multiprocessor: tiles",
        (2, 6, 10, 13, 16, 20, 26, 40),
        _short_run,
    ),
    Point("short_run_rows", "the same: rows that count as a tile", (1, 2, 4, 8, NEVER), _short_run_rows),
    Point(
        "merged_rows", "more parts: rows merged in a tile's time", (6, 12, 16, 24, 32, 48, 64, 96, NEVER), _merged_rows
    ),
)
