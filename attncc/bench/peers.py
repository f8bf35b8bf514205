"""What a variant is compared with: SDPA's back ends, FlexAttention, FlashAttention-4."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch

from . import flex
from .candidates import Candidate, Unable
from .case import Case, Tensor
from .form import Form

_SHARE = 4  # a dense mask may take this part of the memory that is free


def sdpa(case: Case, form: Form) -> list[Candidate]:
    """A candidate for each of SDPA's back ends. `Unable` where no argument of SDPA means the variant."""
    from torch.nn.attention import SDPBackend

    _softmax_alone(case, "scaled_dot_product_attention")
    if not form.additive:
        raise Unable("scaled_dot_product_attention has no score lines, except what is added to scores")
    problem = case.problem
    said: dict[str, Any] = {}
    if form.causal and form.plain and problem.q_len == problem.kv_len:
        how, said = "is_causal", {"is_causal": True}
    elif form.full and form.plain:
        how = "no mask"
    else:
        mask = _dense_mask(case, plain=form.plain)
        how, said = f"a mask {'x'.join(map(str, mask.shape))} {str(mask.dtype)[6:]}", {"attn_mask": mask}
    said |= {"scale": case.scale, "enable_gqa": problem.group > 1}
    backends = {"flash": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
    fused = [
        Candidate("sdpa", f"{how}, {name}", sdpa_call(getattr(SDPBackend, of), **said)) for name, of in backends.items()
    ]
    return [*fused, Candidate("sdpa", f"{how}, unfused", sdpa_call(SDPBackend.MATH, **said), last_resort=True)]


def sdpa_call(backend: Any, **said: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function of q, k and v, by one back end alone."""
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, **said)

    return attention


def _dense_mask(case: Case, *, plain: bool) -> Tensor:
    """bool, or what is added to scores in q's type [batch or 1, heads or 1, q_len, kv_len]."""
    problem, score_mod = case.problem, case.mods()[1]
    batch = problem.batch if case.text.by_batch or not plain else 1
    heads = problem.num_heads if case.text.by_head or not plain else 1
    dtype = torch.bool if plain else {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[case.dtype]
    shape = batch, heads, problem.q_len, problem.kv_len
    _check_memory(case, math.prod(shape) * dtype.itemsize)
    mask = torch.empty(shape, dtype=dtype, device=case.device)
    zero, keys = torch.zeros((), device=case.device), torch.arange(problem.kv_len, device=case.device)
    for b in range(batch):
        for h in range(heads):
            for rows, kept in case.masked(b, h):
                if plain or score_mod is None:
                    mask[b, h, rows] = kept.to(dtype)
                    continue
                at = (torch.tensor(b, device=case.device), torch.tensor(h, device=case.device), rows[:, None], keys)
                added = score_mod(zero, *at).expand(kept.shape)
                mask[b, h, rows] = torch.where(kept, added, -math.inf).to(dtype)
    return mask


def _check_memory(case: Case, size: int) -> None:
    if case.device != "cpu" and size > torch.cuda.mem_get_info()[0] // _SHARE:
        raise Unable(f"its mask would be a tensor of {size / 2**30:.1f} GiB")


def fa4(case: Case, form: Form) -> list[Candidate]:
    """FlashAttention-4. It compiles at its first call for each head dim and mask."""
    if not _installed("flash_attn.cute"):
        raise Unable("not installed: pip install flash-attn-4")
    _softmax_alone(case, "FlashAttention-4's function")
    if not form.band:
        raise Unable("FlashAttention-4's function has full, causal and window masks alone")
    if not form.plain and form.cap is None:
        raise Unable("FlashAttention-4's function has no score lines, except a soft cap")
    if case.dtype == "fp32":
        raise Unable("FlashAttention-4 has no fp32")
    how, said = "full", dict[str, Any]()
    if form.causal:
        how, said = "causal", {"causal": True}
    elif not form.full:
        how, said = f"window {form.left}, {form.right}", {"window_size": (form.left, form.right)}
    if form.cap is not None:
        how, said = f"{how}, softcap {form.cap:g}", {**said, "softcap": form.cap}
    return [Candidate("fa4", how, fa4_call(**said, softmax_scale=case.scale), "bshd")]


def fa4_call(**said: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function of q, k and v [batch, length, heads, head dim]."""
    from flash_attn.cute import flash_attn_func

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = flash_attn_func(q, k, v, **said)
        found: Tensor = out[0] if isinstance(out, tuple) else out
        return found

    return attention


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of the package that it is part of
        return False


def _softmax_alone(case: Case, whose: str) -> None:
    for reason in _beyond_softmax(case):
        raise Unable(f"{whose} {reason}")


def _beyond_softmax(case: Case) -> Iterator[str]:
    if case.variant.normalize != "softmax":
        yield f"has softmax alone, not `normalize {case.variant.normalize}`"
    if case.variant.sink is not None:
        yield "has no sink in its softmax"
    if case.variant.dropout is not None:
        yield "drops other pairs: its result can't be checked"


# By the names of `--against`.
PEERS: dict[str, Callable[[Case, Form], list[Candidate]]] = {
    "sdpa": sdpa,
    "flex": lambda case, form: flex.candidates(case),
    "fa4": fa4,
}
