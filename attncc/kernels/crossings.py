"""Where one form of a serving call becomes faster than another. Every form is right everywhere: these points change
times, and the order in which floats are added.

The defaults were measured on an H200 (docs/notebook/2026-11-tune.md). On another GPU they are guesses until
`attncc tune --crossings` has measured it (docs/tune.md).
"""

from __future__ import annotations

from typing import NamedTuple


class Crossings(NamedTuple):
    """Forward beside decode, the kernels for many rows, thread blocks a multiprocessor, and parts of an item's keys."""

    # Forward calls that would leave most of the GPU idle run the decode kernel, which shares their keys out among all
    # multiprocessors. Its start and its merge take as long as the forward kernel takes for so many keys.
    split_keys: float = 250
    # The same where a mask lets blocks of queries see from few keys to many, as causal calls without a cache: parts of
    # the keys don't end with blocks then, and parts that go on with another block start again.
    uneven_split_keys: float = 800
    # A tile of rows of the decode kernel takes so many times as long over keys as a tile of queries of the forward
    # kernel: timed for heads with keys of their own and for groups. By itself D64 has 0.6, D128 1, D256 1.2.
    row_block_cost: float = 1.25
    # Forward calls of few blocks of queries have a kernel that splits keys, and another that merges what the splits
    # found. Beside their share of the keys they take as long as the forward kernel takes for so many.
    combine_keys: float = 800
    # Calls of few rows over so many keys run the kernel of wide heads in place of the decode kernel.
    wide_keys: float = 4096
    # Decode calls of so many rows (queries times the query heads of a key head) run the kernel for 17 rows and more.
    many_rows: float = 17
    # The same for 33 rows and more.
    more_rows: float = 33
    # Dense calls of so many rows have one thread block a multiprocessor, with larger tiles, in place of two.
    one_block_rows: float = 33
    # So have calls over so many keys, if they have heads for most multiprocessors:
    one_block_keys: float = 1024
    # for such a share of them.
    one_block_share: float = 11 / 16
    # A multiprocessor has one part of the keys in place of two, if it has fewer tiles of one row than this.
    short_run: float = 16
    # So many more rows count as a tile: the more rows there are to merge, the fewer parts there should be.
    short_run_rows: float = 2
    # Rows of one part that a thread block merges in the time of a tile. It bounds the parts of few keys.
    merged_rows: float = 32


NEVER = 1e30  # a point that no call reaches: more keys, rows or heads than there can be


class Chip(NamedTuple):
    """What the choice among the forms of a call asks of a GPU."""

    multiprocessors: int
    crossings: Crossings = Crossings()

    def without_splits(self) -> Chip:
        """For kernels of which none splits the keys of forward calls."""
        return self._replace(crossings=self.crossings._replace(combine_keys=NEVER))
