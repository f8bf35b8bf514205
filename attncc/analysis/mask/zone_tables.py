"""The zone maps that rules read, and how long their blocks are."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from ..rules import ZoneMap

MOST_ENTRIES = 16  # of an input that a tile reads one by one

_FEW_ENTRIES = 9

_SMALLEST_ZONE, _LARGEST_ZONE = 8, 64


@dataclass
class ZoneTables:
    """The zone maps that the rules of one variant read, in order of first use."""

    used: dict[str, ZoneMap]
    block: int

    @classmethod
    def for_tiles(cls, block_q: int, block_kv: int) -> ZoneTables:
        """About two blocks to a tile, so that tiles shifted against the blocks (q_pos, packed batches) meet few
        strangers, and of a size that tiles begin and end with, as far as `MOST_ENTRIES` allows."""
        longest, common = max(block_q, block_kv), gcd(block_q, block_kv)
        aligned = common & -common
        block = min(max(aligned // 2, _SMALLEST_ZONE), _LARGEST_ZONE)
        while longest // block + 2 > (_FEW_ENTRIES if block < aligned else MOST_ENTRIES):
            block *= 2
        return cls({}, block)

    def read(self, input_name: str) -> ZoneMap:
        return self.used.setdefault(input_name, ZoneMap(input_name, self.block))
