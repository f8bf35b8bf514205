"""The min/max tables that rules read, and how long their blocks are."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ..rules import MinMaxTable

MOST_ENTRIES = 16  # of an input that a tile reads one by one

_FEW_ENTRIES = 9

_SMALLEST_BLOCK, _LARGEST_BLOCK = 8, 64


@dataclass
class MinMaxTables:
    """The min/max tables that the rules of one variant read, in order of first use."""

    used: dict[str, MinMaxTable]
    block: int

    @classmethod
    def for_tiles(cls, block_q: int, block_kv: int) -> MinMaxTables:
        """About two blocks to a tile, so that tiles shifted against the blocks (q_pos, packed batches) meet few
        strangers, and of a size that tiles begin and end with, as far as `MOST_ENTRIES` allows."""
        longest, common = max(block_q, block_kv), gcd(block_q, block_kv)
        aligned = common & -common
        block = min(max(aligned // 2, _SMALLEST_BLOCK), _LARGEST_BLOCK)
        while longest // block + 2 > (_FEW_ENTRIES if block < aligned else MOST_ENTRIES):
            block *= 2
        return cls({}, block)

    def read(self, input_name: str) -> MinMaxTable:
        return self.used.setdefault(input_name, MinMaxTable(input_name, self.block))
