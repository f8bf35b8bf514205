"""Where one form of a serving call becomes faster than another. Every form is right everywhere: these points change
times, and the order in which floats are added.

The defaults were timed on an H200, in bf16 without a mask (docs/notebook/2026-11-decode.md, 2026-11-serving.md). On
another GPU they are guesses until `attncc tune --crossings` has measured it (docs/tune.md).
"""

from __future__ import annotations

from typing import NamedTuple


class Crossings(NamedTuple):
    """Forward beside decode, the kernels for many rows, thread blocks a multiprocessor, and parts of an item's keys."""

    # The decode kernel takes calls that aren't its own if the forward kernel leaves the GPU idle. It shares their keys
    # out among all multiprocessors. Its start and its merge take as long as the forward kernel takes for so many keys,
    split_keys: float = 400
    # under a mask, whose blocks of queries don't see equally many keys,
    masked_split_keys: float = 800
    # and so many times as long for the keys where no multiprocessor is idle.
    idle_share: float = 2.5
    # The kernel of wide heads takes the calls of few rows from the decode kernel: over so many keys.
    wide_keys: float = 4096
    # Decode calls of so many rows (queries times the query heads of a key head) run the kernels for 17 rows and more,
    many_rows: float = 17
    # and for 33 rows and more.
    more_rows: float = 33
    # One thread block a multiprocessor, with larger tiles, in place of two: for so many rows,
    one_block_rows: float = 33
    # or for so many keys, if each multiprocessor has a head:
    one_block_keys: float = 1024
    # heads, as a share of the multiprocessors.
    one_block_share: float = 11 / 16
    # One part of the keys a multiprocessor in place of two: up to so many tiles of one row,
    short_run: float = 16
    # and one more for each so many rows, because the more rows there are to merge, the fewer parts there should be.
    short_run_rows: float = 2
    # Rows of one part that a thread block merges in the time of a tile: it bounds the parts of few keys.
    merged_rows: float = 32


NEVER = 1e30  # as a number of keys, rows, heads: more than there are ever


class Chip(NamedTuple):
    """What the choice among the forms of a call asks of a GPU."""

    multiprocessors: int
    crossings: Crossings = Crossings()
