"""The backward pass against SDPA's back ends and FlashAttention-4, at useful FLOPs.

    python -m benchmarks.backward [--head-dims 64,128,256] [--lengths 4096,16384] [--masks full,causal]
                                  [--families hopper,portable] [--peers fa2,cudnn,fa4] [--rounds 9] [--out FOLDER]

bf16 normal inputs, 16,384 tokens, num_heads * head_dim about 2048, q_len = kv_len. Useful TFLOP/s: 10 * head_dim for
each kept pair, over all kernels of the backward pass; the forward pass isn't timed. Beside each family stands its
deterministic mode. Every candidate's dq, dk and dv are first compared with fp64 autograd on one head. A peer that
doesn't take a case is left out of it. Each peer runs once before our kernels are compiled, as in `benchmarks.forward`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import attncc
from attncc.schedule.schedule import Schedule

from .flex import Tensors
from .forward import SPECS, Case, names, our_target, summary
from .measure import RESULTS, check, compare, record, tflops
from .peers import taking

Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Backward = Callable[[], Gradients]


def kernel(case: Case, family: str) -> Any:
    target = "sm_90a" if family == "hopper" else our_target()
    schedule = Schedule(family, case.spec, "backward", target, (("family", (family,)),))
    found = attncc.compile(
        SPECS / f"{case.spec}.attn", dtype="bf16", head_dim=case.head_dim, arch=target, schedule=schedule
    )
    found._store.machine_codes(found._store.backward_plans(found.configurations[0], target))
    return found


def own(case: Case, family: str, qkv: Tensors, dout: torch.Tensor, deterministic: bool) -> Backward:
    made = kernel(case, family)
    out, lse = made(*qkv, return_lse=True)

    def launch() -> Gradients:
        found = made.backward(dout, *qkv, out, lse, deterministic=deterministic)
        return found.dq, found.dk, found.dv

    return launch


def sdpa(backend: SDPBackend) -> Callable[[Tensors, torch.Tensor, bool], Backward]:
    def candidate(qkv: Tensors, dout: torch.Tensor, causal: bool) -> Backward:
        q, k, v = (item.detach().requires_grad_() for item in qkv)
        leaves = q, k, v
        with sdpa_kernel(backend):
            out = scaled_dot_product_attention(*leaves, is_causal=causal)
        return lambda: _gradients(out, leaves, dout)

    return candidate


def _gradients(out: torch.Tensor, leaves: Tensors, dout: torch.Tensor) -> Gradients:
    dq, dk, dv = torch.autograd.grad(out, leaves, dout, retain_graph=True)
    return dq, dk, dv


def fa4(qkv: Tensors, dout: torch.Tensor, causal: bool) -> Backward:
    """It compiles at its first call for each head dim and mask."""
    from flash_attn.cute import flash_attn_func

    q, k, v = (item.transpose(1, 2).contiguous().requires_grad_() for item in qkv)
    leaves = q, k, v
    found = flash_attn_func(*leaves, causal=causal)
    out, own_dout = found[0] if isinstance(found, tuple) else found, dout.transpose(1, 2).contiguous()

    def launch() -> Gradients:
        dq, dk, dv = _gradients(out, leaves, own_dout)
        return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)

    return launch


PEERS = {
    "fa2": ("FA2 (SDPA)", sdpa(SDPBackend.FLASH_ATTENTION)),
    "cudnn": ("cuDNN (SDPA)", sdpa(SDPBackend.CUDNN_ATTENTION)),
    "fa4": ("FA4", fa4),
}


def peers(chosen: tuple[str, ...], qkv: Tensors, dout: torch.Tensor, causal: bool) -> dict[str, Backward]:
    """Those that take this problem, by their names."""
    return taking({name: partial(candidate, qkv, dout, causal) for name, candidate in (PEERS[peer] for peer in chosen)})


def oracle(qkv: Tensors, dout: torch.Tensor, causal: bool) -> Gradients:
    """Of the last head of the last sequence, in fp64."""
    q, k, v = (item[-1, -1].double().requires_grad_() for item in qkv)
    score = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        score = score.masked_fill(torch.ones_like(score, dtype=torch.bool).triu_(1), -math.inf)
    return _gradients(score.softmax(-1) @ v, (q, k, v), dout[-1, -1].double())


def relative_error(found: Gradients, exact: Gradients) -> float:
    """The worst of dq, dk and dv: ||found - exact|| / ||exact||."""
    pairs = zip(found, exact, strict=True)
    return max(float((one[-1, -1].double() - other).norm() / other.norm()) for one, other in pairs)


def measure(case: Case, families: tuple[str, ...], chosen: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """One row for each candidate."""
    qkv = case.tensors()
    dout = torch.randn_like(qkv[0])
    candidates: dict[str, Backward] = {}
    for family, deterministic in product(families, (False, True)):
        name = f"attncc {family}{' deterministic' * deterministic}"
        candidates[name] = own(case, family, qkv, dout, deterministic)
    candidates |= peers(chosen, qkv, dout, case.causal)
    exact = oracle(qkv, dout, case.causal)
    errors = {name: relative_error(launch(), exact) for name, launch in candidates.items()}
    del exact
    check(case, errors, 2e-2)
    timings = compare(candidates, rounds=rounds)
    flops = 2.5 * case.useful_flops
    return [
        {
            "case": str(case),
            **asdict(case),
            "candidate": name,
            **tflops(flops, timings[name]),
            "relative_error": errors[name],
            **asdict(timings[name]),
        }
        for name in candidates
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head-dims", type=lambda text: [int(item) for item in text.split(",")], default="64,128,256")
    parser.add_argument("--lengths", type=lambda text: [int(item) for item in text.split(",")], default="4096,16384")
    parser.add_argument("--masks", type=names, default="full,causal")
    parser.add_argument("--families", type=names, default="portable", help="the first is compared with the best peer")
    parser.add_argument("--peers", type=names, default="fa2,cudnn,fa4", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    wanted = product(options.head_dims, options.lengths, options.masks)
    cases = [Case(head_dim, length, mask == "causal") for head_dim, length, mask in wanted]
    tensors = cases[0].tensors()
    peers(options.peers, tensors, tensors[0], cases[0].causal)  # each runs once
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda item: kernel(*item), product(cases, options.families)))
    record(
        "backward",
        cases,
        lambda case: measure(case, options.families, options.peers, options.rounds),
        summary,
        options.out,
    )


if __name__ == "__main__":
    main()
