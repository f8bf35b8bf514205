"""What a `BlockMask` says: its mask_mod, and its blocks where they are all that it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch

NO_BLOCKS = 1 << 30  # BLOCK_SIZE of a BlockMask without blocks

_tables: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def mask_mods(block_mask: Any, mask_mod: Any) -> list[Any]:
    """The mask_mods of a call, which are AND-ed."""
    found = [] if block_mask is None else _of_block_mask(block_mask)
    return found if mask_mod is None else [*found, mask_mod]


def _of_block_mask(block_mask: Any) -> list[Any]:
    mod = block_mask.mask_mod
    if mod is not None and getattr(mod, "__name__", "") != "noop_mask":
        return [mod]
    if min(block_mask.BLOCK_SIZE) >= NO_BLOCKS:
        return []
    live = block_mask.to_dense().bool() if torch.compiler.is_compiling() else _table(block_mask)
    return [] if live is None else [_blocks(live, block_mask.BLOCK_SIZE)]


def _table(block_mask: Any) -> Any:
    """Which blocks are live, None where all are: read once for each BlockMask. A graph can't ask whether all are."""
    if block_mask not in _tables:
        live = block_mask.to_dense().bool()
        _tables[block_mask] = None if bool(live.all()) else live
    return _tables[block_mask]


def _blocks(live: Any, size: tuple[int, int]) -> Callable[..., Any]:
    """The blocks of a BlockMask as a mask_mod."""
    rows, columns = size
    of_batch, of_heads = live.shape[0] > 1, live.shape[1] > 1

    def live_blocks(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return live[b if of_batch else 0, h if of_heads else 0, q_idx // rows, kv_idx // columns]

    return live_blocks
