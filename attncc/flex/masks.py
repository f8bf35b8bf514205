"""What a `BlockMask` says: its mask_mod, and its blocks where they are all that it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from ..problem.refusal import refused

_NO_BLOCKS = 1 << 30  # of a BlockMask without blocks

_tables: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def mask_mods(block_mask: Any, mask_mod: Any) -> list[Any]:
    """The mask_mods of a call, which are AND-ed. AttnccError A714 for what is neither."""
    found = []
    if block_mask is not None:
        found += _of_block_mask(block_mask)
    if mask_mod is not None:
        if not callable(mask_mod):
            _refuse("`mask_mod` is not a function", "a function of b, h, q_idx, kv_idx", mask_mod)
        found.append(mask_mod)
    return found


def _of_block_mask(block_mask: Any) -> list[Any]:
    mod = getattr(block_mask, "mask_mod", None)
    if not hasattr(block_mask, "BLOCK_SIZE"):
        help = "pass a function as mask_mod=" if callable(block_mask) else ""
        _refuse("`block_mask` is not a BlockMask", "what create_block_mask gives", block_mask, help)
    if getattr(mod, "__name__", "") == "_sliced_mask_mod_error":
        help = "set its mask_mod to one of the slice's own indices"
        _refuse("a BlockMask that was sliced has no mask_mod", "a BlockMask with a mask_mod", block_mask, help)
    if mod is not None and getattr(mod, "__name__", "") != "noop_mask":
        return [mod]
    return [] if min(block_mask.BLOCK_SIZE) >= _NO_BLOCKS else _blocks(block_mask)


def _blocks(block_mask: Any) -> list[Callable[..., Any]]:
    """The blocks of a BlockMask as a mask_mod, unless all are live: read once for each BlockMask."""
    if block_mask not in _tables:
        live = block_mask.to_dense().bool()
        _tables[block_mask] = None if bool(live.all()) else live
    live = _tables[block_mask]
    if live is None:
        return []
    rows, columns = block_mask.BLOCK_SIZE
    of_batch, of_heads = live.shape[0] > 1, live.shape[1] > 1

    def live_blocks(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return live[b if of_batch else 0, h if of_heads else 0, q_idx // rows, kv_idx // columns]

    return [live_blocks]


def check_lengths(block_mask: Any, query: Any, key: Any) -> None:
    """AttnccError A714 where a BlockMask was made for other lengths, as in torch."""
    sizes = getattr(block_mask, "BLOCK_SIZE", None)
    if sizes is None or min(sizes) >= _NO_BLOCKS:
        return
    made, came = tuple(block_mask.shape[-2:]), (query.shape[-2], key.shape[-2])
    if made != came:
        help = "make a new one, or pass its function as mask_mod=, which serves all lengths"
        what = "the BlockMask was made for other lengths"
        raise refused(
            "A714", what, expected=f"q_len {made[0]}, kv_len {made[1]}", came=f"{came[0]}, {came[1]}", help=help
        )


def _refuse(what: str, expected: str, came: Any, help: str = "") -> None:
    raise refused("A714", what, expected=expected, came=type(came).__qualname__, help=help)
