"""FlexAttention at its best: compiled, with some block sizes and back ends, and never its unfused path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from .candidates import Candidate, Unable
from .case import Case, Mod, Tensor, Tensors
from .flex_text import inexpressible

# Pairs times heads of a mask beyond which it is made by a compiled function: the other makes tensors of all pairs.
_MANY_PAIRS = 2**28


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
    """Beyond eight variants in a process Dynamo would give up, and FlexAttention fall back to its unfused path.
    Backward passes that are timed keep their graph, which donated buffers forbid."""
    torch._dynamo.config.cache_size_limit = torch._dynamo.config.recompile_limit = 1000
    torch._dynamo.config.accumulated_cache_size_limit = torch._dynamo.config.accumulated_recompile_limit = 10000
    torch._functorch.config.donated_buffer = False


def candidates(case: Case, compiled: Callable[..., Any] = torch.compile) -> list[Candidate]:
    """One for each setting. `Unable` where FlexAttention can't express the variant."""
    reason = inexpressible(case.variant)
    if reason:
        raise Unable(reason)
    allow_many_variants()
    forward = case.pass_name == "forward"
    settings = (*TRITON, *FLASH) if forward else (TRITON[0], *FLASH)  # the other options are those of forward kernels
    mask_mod, score_mod = case.mods()
    given = {"scale": case.scale, "enable_gqa": case.problem.group > 1}
    return [
        Candidate(
            "flex",
            setting.name,
            attention(block_mask(case, mask_mod, setting), score_mod, setting, compiled=compiled, **given),
        )
        for setting in settings
    ]


def block_mask(case: Case, mask_mod: Mod | None, setting: Setting) -> Any:
    """Made once, and not timed."""
    from torch.nn.attention.flex_attention import create_block_mask

    if mask_mod is None:
        return None
    problem = case.problem
    batch = problem.batch if case.text.by_batch else None
    heads = problem.num_heads if case.text.by_head else None
    pairs = (batch or 1) * (heads or 1) * problem.q_len * problem.kv_len
    make = torch.compile(create_block_mask) if pairs > _MANY_PAIRS else create_block_mask
    sizes = batch, heads, problem.q_len, problem.kv_len
    return make(mask_mod, *sizes, device=case.device, BLOCK_SIZE=setting.mask_block)


def attention(
    mask: Any, score_mod: Mod | None, setting: Setting, *, compiled: Callable[..., Any] = torch.compile, **given: Any
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A compiled function of q, k and v. `given`: what else flex_attention takes."""
    from torch.nn.attention.flex_attention import flex_attention

    attend = compiled(flex_attention, fullgraph=True, dynamic=False)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        options = dict(setting.options)
        out: Tensor = attend(q, k, v, score_mod=score_mod, block_mask=mask, kernel_options=options, **given)
        return out

    return call


def check_fused(launch: Callable[[], object], qkv: Tensors) -> None:
    """`Unable` where the unfused path ran: it holds a score for each pair."""
    batch, heads, q_len, _ = qkv[0].shape
    launch()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    launch()
    torch.cuda.synchronize()
    used = torch.cuda.max_memory_allocated() - before
    own = sum(item.nbytes for item in qkv) * 4  # out, gradients, and what is reduced into them
    if used >= batch * heads * q_len * qkv[1].shape[2] + own:
        raise Unable(f"FlexAttention ran unfused: it took {used / 2**30:.1f} GiB")
