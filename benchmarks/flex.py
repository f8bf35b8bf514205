"""FlexAttention at its best: compiled, over a few block sizes and back ends, and certainly not its unfused path."""

from __future__ import annotations

from collections.abc import Callable

import torch

from attncc.bench.candidates import Unable
from attncc.bench.flex import FLASH, TRITON, Setting, allow_many_variants, attention, check_fused

from .measure import compare

__all__ = ["FLASH", "TRITON", "Setting", "allow_many_variants", "assert_fused", "compiled_calls", "fastest", "launch"]

Mod = Callable[..., torch.Tensor]
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Launch = Callable[[], torch.Tensor]


def launch(qkv: Tensors, keep: Mod | None, score: Mod | None, setting: Setting) -> Launch:
    """A compiled call; its block mask is made here, once."""
    from torch.nn.attention.flex_attention import create_block_mask

    q_len, kv_len = qkv[0].shape[2], qkv[1].shape[2]
    block = setting.mask_block
    mask = None if keep is None else create_block_mask(keep, None, None, q_len, kv_len, BLOCK_SIZE=block)
    call = attention(mask, score, setting)
    return lambda: call(*qkv)


def assert_fused(call: Launch, qkv: Tensors) -> None:
    """SystemExit where the unfused path ran."""
    try:
        check_fused(call, qkv)
    except Unable as error:
        raise SystemExit(str(error)) from None


def compiled_calls(
    qkv: Tensors, keep: Mod | None, score: Mod | None, settings: tuple[Setting, ...]
) -> dict[str, Launch]:
    """The settings that run here, by name, each compiled and found to be fused; why others don't is printed."""
    calls = {}
    for setting in settings:
        call = launch(qkv, keep, score, setting)
        try:
            assert_fused(call, qkv)
        except Exception as error:  # whatever Inductor and CuTe DSL raise
            reason = str(error).strip().splitlines()[0]
            print(f"FlexAttention {setting.name} is not in this run: {reason:.150}", flush=True)
        else:
            calls[setting.name] = call
    return calls


def fastest(calls: dict[str, Launch]) -> str:
    timings = compare(calls, rounds=3, window_ms=15, sustained_s=0)
    return min(calls, key=lambda name: timings[name].milliseconds)
