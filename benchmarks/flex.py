"""FlexAttention at its best: compiled, over a few block sizes and back ends, and certainly not its unfused path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from .measure import compare

Mod = Callable[..., torch.Tensor]
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Launch = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Setting:
    """Kernel options, and the blocks of the mask."""

    name: str
    mask_block: int
    options: dict[str, Any]


TRITON = (
    Setting("default", 128, {}),
    Setting("128x128", 128, {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 2}),
    Setting("64x64", 64, {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}),
)
FLASH = (Setting("FLASH", 128, {"BACKEND": "FLASH"}),) if find_spec("flash_attn") else ()  # FlashAttention-4's kernels


def allow_many_variants() -> None:
    """Beyond eight variants in a process Dynamo would give up, and FlexAttention fall back to its unfused path."""
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 1000
    torch._dynamo.config.accumulated_cache_size_limit = torch._dynamo.config.accumulated_recompile_limit = 10000


def launch(qkv: Tensors, keep: Mod | None, score: Mod | None, setting: Setting) -> Launch:
    """A compiled call; its block mask is made here, once."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q_len, kv_len = qkv[0].shape[2], qkv[1].shape[2]
    block = setting.mask_block
    mask = None if keep is None else create_block_mask(keep, None, None, q_len, kv_len, BLOCK_SIZE=block)
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=False)
    return lambda: compiled(*qkv, score_mod=score, block_mask=mask, kernel_options=dict(setting.options))


def assert_fused(call: Launch, qkv: Tensors) -> None:
    """The unfused path would hold a score for each pair."""
    batch, heads, q_len, _ = qkv[0].shape
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    used = torch.cuda.max_memory_allocated() - before
    if used >= batch * heads * q_len * qkv[1].shape[2]:
        raise SystemExit(f"FlexAttention ran unfused: it took {used / 2**30:.1f} GiB")


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
