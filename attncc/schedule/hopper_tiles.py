"""The tiles of the family hopper where a schedule is silent: data from compile experiments, and from runs on an H200.

A ladder of tiles for each pair of head dims, the fastest first: each rung leaves the variant more registers than the
one above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .plan import PANEL_BYTES
from .target import TARGETS

PIPELINE_BYTES = 1024  # of barriers and notes, at most


@dataclass(frozen=True, slots=True)
class HopperTiles:
    """A tile of block_q x block_kv, worked on by a warp for each 16 rows, with `stages` K/V tiles in flight.

    Backward, those that are `thrifty` save registers: see `hopper_backward`.
    """

    block_q: int
    block_kv: int
    stages: int
    thrifty: bool = False

    def shared_bytes(self, head_dim: int, value_head_dim: int, element_bytes: int) -> int:
        """What a block takes of shared memory, at most, in whole panels. 8-bit values lie there transposed too."""
        row, value_row = (-(-size * element_bytes // PANEL_BYTES) * PANEL_BYTES for size in (head_dim, value_head_dim))
        transposed = value_head_dim * self.block_kv if element_bytes == 1 else 0
        stage = self.block_kv * (row + value_row) + transposed
        return self.block_q * row + self.stages * stage + PIPELINE_BYTES


def _tiles(*rungs: tuple[int, int, int]) -> tuple[HopperTiles, ...]:
    return tuple(HopperTiles(*rung) for rung in rungs)


# Each row serves head dims up to its own. Many keys a tile cost few instructions a key, many rows few bytes.
_LADDERS = (
    ((48, 48), _tiles((256, 96, 4), (128, 128, 4), (128, 64, 4), (128, 32, 4))),
    ((64, 64), _tiles((256, 64, 4), (192, 96, 4), (128, 64, 4), (128, 32, 4))),
    ((80, 80), _tiles((192, 96, 3), (128, 96, 3), (128, 64, 4), (128, 32, 4))),
    ((96, 96), _tiles((192, 96, 2), (128, 96, 3), (128, 64, 4), (128, 32, 4))),
    ((128, 128), _tiles((128, 128, 2), (128, 96, 2), (128, 64, 4), (128, 32, 4))),
    ((192, 128), _tiles((128, 128, 2), (128, 96, 2), (128, 64, 4), (64, 32, 4))),
    ((192, 192), _tiles((128, 112, 2), (128, 64, 3), (128, 32, 4), (64, 16, 4))),
    ((256, 256), _tiles((128, 64, 2), (128, 48, 2), (128, 32, 4), (64, 16, 4))),
)

# 8-bit operands: products take half the time, exponentials as long. V passes through the hands of warps that transpose
# it, which takes as long as to load it: stages for both, where they fit.
_LADDERS_8_BIT = (
    ((64, 64), _tiles((192, 128, 4), (128, 128, 4), (128, 64, 4), (128, 32, 4))),
    ((128, 128), _tiles((192, 96, 4), (128, 160, 2), (128, 128, 4), (128, 64, 4), (128, 32, 4))),
    ((192, 192), _tiles((128, 128, 2), (128, 96, 2), (128, 64, 3), (128, 32, 4))),
    ((256, 256), _tiles((128, 96, 2), (128, 64, 3), (128, 32, 4), (64, 32, 4))),
)

# Backward: 64 rows of Q, and for each of two warpgroups that own keys 64 or 128 of them. Of more than 128 columns both
# own the same 64 keys, a gradient each.
_HALVED = HopperTiles(64, 128, 2), HopperTiles(64, 128, 2, thrifty=True)
_BACKWARD_LADDERS = (
    ((64, 64), (HopperTiles(64, 256, 2), *_HALVED)),
    ((128, 128), _HALVED),
    ((256, 256), (HopperTiles(64, 64, 2),)),
)


def hopper_ladder(
    head_dim: int, value_head_dim: int, element_bytes: int = 2, *, backward: bool = False
) -> tuple[HopperTiles, ...]:
    """The tiles for these head dims, at most 256. `weight.room` tells at which to begin."""
    ladders = _BACKWARD_LADDERS if backward else _LADDERS_8_BIT if element_bytes == 1 else _LADDERS
    return next(tiles for (key, value), tiles in ladders if head_dim <= key and value_head_dim <= value)


def light_tiles(head_dim: int, value_head_dim: int, element_bytes: int = 2) -> HopperTiles | None:
    """What is faster than the ladder's tiles for light variants, those with a mask and those with nothing else.

    A third warpgroup hides what the others wait for: notes, masks, the ends of blocks, other thread blocks. It leaves
    such variants just enough registers. And smaller tiles hold less that is masked.
    """
    fits = element_bytes == 2 and 96 < head_dim <= 128 and value_head_dim <= 128
    return HopperTiles(192, 64, 5) if fits else None


def window_tiles(block_kv: int, head_dim: int, value_head_dim: int, element_bytes: int = 2) -> HopperTiles | None:
    """The same where tiles of keys are windows of so many; None for tiles of which two stages don't fit."""
    tiles = light_tiles(head_dim, value_head_dim, element_bytes)
    if tiles is None or block_kv == 0:
        return None
    found = (replace(tiles, block_kv=block_kv, stages=stages) for stages in range(tiles.stages, 1, -1))
    limit = TARGETS["sm_90a"].shared_bytes
    return next((item for item in found if item.shared_bytes(head_dim, value_head_dim, element_bytes) <= limit), None)


def overlaps(block_q: int) -> bool:
    """Whether Q K^T of a tile runs beside P V of the one before: both sets of scores take registers, which four
    warpgroups don't have. They hide the exponentials of one behind the products of another."""
    return block_q <= 192
