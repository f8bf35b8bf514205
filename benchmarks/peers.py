"""What the forward pass is compared with, where no FlexAttention is needed: SDPA, FlashAttention-3 and -4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from torch.nn.attention import SDPBackend

from attncc.bench.peers import fa4_call, sdpa_call

from .flex import Launch, Tensors

L = TypeVar("L", bound=Callable[[], Any])
Candidate = Callable[[Tensors, bool], Launch]  # q, k, v [batch, heads, length, head dim]; causal?


def sdpa(backend: SDPBackend) -> Candidate:
    return lambda qkv, causal: partial(sdpa_call(backend, is_causal=causal), *qkv)


def fa3(qkv: Tensors, causal: bool) -> Launch:
    """bf16 or e4m3: the type of q, k and v. The package is fa3-fwd."""
    from fa3_fwd_interface import flash_attn_func

    bshd = [item.transpose(1, 2).contiguous() for item in qkv]

    def launch() -> Any:
        found = flash_attn_func(*bshd, causal=causal)
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return launch


def fa4(qkv: Tensors, causal: bool) -> Launch:
    """It compiles at its first call for each head dim and mask."""
    call, bshd = fa4_call(causal=causal), [item.transpose(1, 2).contiguous() for item in qkv]
    return lambda: call(*bshd).transpose(1, 2)


PEERS: dict[str, tuple[str, Candidate]] = {
    "fa2": ("FA2 (SDPA)", sdpa(SDPBackend.FLASH_ATTENTION)),
    "cudnn": ("cuDNN (SDPA)", sdpa(SDPBackend.CUDNN_ATTENTION)),
    "fa3": ("FA3", fa3),
    "fa4": ("FA4", fa4),
}


def launches(peers: tuple[str, ...], qkv: Tensors, causal: bool) -> dict[str, Launch]:
    """Those of the peers that take this problem, by their names."""
    return taking({name: partial(candidate, qkv, causal) for name, candidate in (PEERS[peer] for peer in peers)})


def taking(candidates: Mapping[str, Callable[[], L]]) -> dict[str, L]:
    """What candidates make, of those that can and whose launches run; why others don't is printed."""
    found = {}
    for name, candidate in candidates.items():
        try:
            launch = candidate()
            launch()
        except Exception as error:  # whatever torch and CuTe DSL raise for what they don't support
            reason = next(iter(str(error).strip().splitlines()), "")
            print(f"{name} is not in this case: {type(error).__name__}: {reason:.150}", flush=True)
        else:
            found[name] = launch
    return found
