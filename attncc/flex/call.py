"""A call of `flex_attention`, and what is wrong with one.

torch.compile follows these functions, so a fault is a dict, as `refused` takes it, and no exception.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .entries import DTYPES
from .masks import NO_BLOCKS


class Mods(NamedTuple):
    """The functions of a call. `found` is kept beside functions that never change, by their owner: what they are."""

    score_mod: Any = None
    block_mask: Any = None
    mask_mod: Any = None
    found: dict[Any, Any] | None = None


class Options(NamedTuple):
    """How a call of `flex_attention` differs from a plain one."""

    scale: float | None = None
    enable_gqa: bool = False
    return_lse: bool = False
    kernel_options: Any = None
    return_aux: Any = None
    fallback: str | None = None
    sink: Any = None  # the logits of a sink [heads], which models have and torch's flex_attention hasn't
    dropout: float = 0.0  # likewise

    @property
    def wants_lse(self) -> bool:
        return self.return_lse if self.return_aux is None else bool(self.return_aux.lse)


Fault = dict[str, str]
_INDEXED = "index the tensor in a function: lambda b, h, q_idx, kv_idx: mask[q_idx, kv_idx]"


def fault(query: Any, key: Any, value: Any, mods: Mods, options: Options) -> Fault:
    """What torch's own refuses, too, and what has no counterpart here: all A714. Empty where nothing is wrong."""
    return (
        _of_tensors(query, key, value, options)
        or _of_options(options)
        or _of_score_mod(mods.score_mod)
        or _of_mask_mod(mods.mask_mod)
        or _of_block_mask(mods.block_mask, query, key)
    )


def _of_tensors(query: Any, key: Any, value: Any, options: Options) -> Fault:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 4:
            came = f"{tensor.ndim} axes" if isinstance(tensor, torch.Tensor) else type(tensor).__qualname__
            return _fault(f"`{name}` is no tensor of 4 axes", "[batch, heads, length, dim]", came)
    if query.dtype not in DTYPES:
        return _fault("there is no kernel of this dtype", ", ".join(str(item) for item in DTYPES), str(query.dtype))
    if query.shape[1] != key.shape[1] and not options.enable_gqa:
        what = "query and key have different numbers of heads"
        help = "pass enable_gqa=True where query heads share those of key and value"
        return _fault(what, f"{query.shape[1]} heads", f"{key.shape[1]}", help)
    return {}


def _of_options(options: Options) -> Fault:
    if options.fallback not in (None, "torch"):
        return _fault("`fallback` is unknown", 'None or "torch"', repr(options.fallback))
    if options.return_aux is None:
        return {}
    if not hasattr(options.return_aux, "max_scores"):
        came = type(options.return_aux).__qualname__
        return _fault("`return_aux` is no AuxRequest", "AuxRequest(lse=True)", came, "pass return_lse=True for lse")
    if options.return_lse:
        return _fault("`return_lse` came beside `return_aux`", "one of them", "both", "leave return_lse out")
    if options.return_aux.max_scores:
        help = "ask for lse, which is at least the maximum"
        return _fault("attncc keeps no row maxima", "AuxRequest(lse=True)", "max_scores=True", help)
    return {}


def _of_score_mod(score_mod: Any) -> Fault:
    if score_mod is None or callable(score_mod):
        return {}
    expected = "a function of score, b, h, q_idx, kv_idx"
    help = "pass a BlockMask as block_mask=" if hasattr(score_mod, "BLOCK_SIZE") else ""
    return _fault("`score_mod` is not a function", expected, type(score_mod).__qualname__, help)


def _of_mask_mod(mask_mod: Any) -> Fault:
    if mask_mod is None or callable(mask_mod):
        return {}
    expected, came = "a function of b, h, q_idx, kv_idx", type(mask_mod).__qualname__
    help = "pass a BlockMask as block_mask=" if hasattr(mask_mod, "BLOCK_SIZE") else ""
    if isinstance(mask_mod, torch.Tensor):
        help = _INDEXED
    return _fault("`mask_mod` is not a function", expected, came, help)


def _of_block_mask(block_mask: Any, query: Any, key: Any) -> Fault:
    """What is no BlockMask, has no mask_mod, or was made for other lengths."""
    if block_mask is None:
        return {}
    came = type(block_mask).__qualname__
    if not hasattr(block_mask, "BLOCK_SIZE"):
        help = (
            "pass a function as mask_mod="
            if callable(block_mask)
            else f"pass it as mask_mod=; {_INDEXED}"
            if hasattr(block_mask, "shape")
            else ""
        )
        return _fault("`block_mask` is not a BlockMask", "what create_block_mask gives", came, help)
    if getattr(block_mask.mask_mod, "__name__", "") == "_sliced_mask_mod_error":
        help = "set its mask_mod to one of the slice's own indices"
        return _fault("a BlockMask that was sliced has no mask_mod", "a BlockMask with a mask_mod", came, help)
    if min(block_mask.BLOCK_SIZE) >= NO_BLOCKS or query is None:
        return {}
    made, lengths = tuple(block_mask.shape[-2:]), (query.shape[-2], key.shape[-2])
    if made == lengths:
        return {}
    help = "make a new one, or pass its function as mask_mod=, which serves all lengths"
    what = "the BlockMask was made for other lengths"
    return _fault(what, f"q_len {made[0]}, kv_len {made[1]}", f"{lengths[0]}, {lengths[1]}", help)


def fault_of_mods(mods: Mods) -> Fault:
    """What is wrong with functions that no tensors came with."""
    return _of_score_mod(mods.score_mod) or _of_mask_mod(mods.mask_mod) or _of_block_mask(mods.block_mask, None, None)


def _fault(what: str, expected: str, came: str, help: str = "") -> Fault:
    return {"what": what, "expected": expected, "came": came, "help": help}
