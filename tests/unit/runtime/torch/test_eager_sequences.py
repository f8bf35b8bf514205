"""Random sequences of calls of one kernel on the CPU: values and gradients of each are those of torch's operators."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import attncc.torch  # noqa: E402  (needs torch)

TEXT = """attn 1
variant eager_sequences {
    input slope: f32[head] learnable
    input cap:   f32 learnable
    input doc:   i32[batch, pos]
    input logit: f32[head] learnable

    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = cap * tanh((score - slope[h] * (q_pos - kv_idx)) / cap)
    sink logit
}
"""
HEADS, KV_HEADS, D = 4, 2, 16
NAMES = ("q", "k", "v", "slope", "cap", "logit")
Call = Callable[..., Any]


def eager(q: Any, k: Any, v: Any, *, slope: Any, cap: Any, doc: Any, logit: Any) -> Any:
    """The variant, dense."""
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    q_pos, kv_idx = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    score = cap * torch.tanh((q @ k.mT * D**-0.5 - slope[:, None, None] * (q_pos - kv_idx)) / cap)
    kept = (q_pos >= kv_idx) & (doc[:, None, :, None] == doc[:, None, None, :])
    score = score.masked_fill(~kept, -torch.inf)
    sink = logit[None, :, None, None].expand(*score.shape[:3], 1)
    return torch.cat([score, sink], -1).softmax(-1)[..., :-1] @ v


def given(random: Random) -> dict[str, Any]:
    """The tensors of a call, of any sizes and strides."""
    batch, rows = random.choice((1, 2, 3)), random.choice((0, 1, 5, 6, 17))
    made = {}
    for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        form = random.choice(("plain", "transposed", "gaps", "shared", "offset"))
        x = torch.randn(1 if form == "shared" else batch, heads, rows, D, dtype=torch.float64)
        if form == "transposed":
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        if form == "gaps":
            x = torch.cat([x, x], -1)[..., :D]
        if form == "offset":
            x = torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape) if rows else x
        made[name] = x.expand(batch, -1, -1, -1)
    made["slope"], made["logit"] = torch.rand(HEADS, dtype=torch.float64), torch.randn(2 * HEADS).double()[::2]
    made["cap"] = torch.tensor(random.choice((1.0, 3.0)), dtype=torch.float64)
    made["doc"] = (torch.arange(rows) // 4).int().expand(batch, rows)
    if random.random() < 0.5:
        made["doc"] = made["doc"].long().contiguous()
    return made


def by_name(call: Call, tensors: dict[str, Any]) -> Any:
    return call(
        tensors["q"], tensors["k"], tensors["v"], **{name: tensors[name] for name in tensors if name not in "qkv"}
    )


# -------------------------------------------------------------------- ways to take gradients


def plain(call: Call, tensors: dict[str, Any], names: list[str]) -> list[Any]:
    leaves = {name: tensors[name].detach().clone().requires_grad_() for name in names}
    out = by_name(call, {**tensors, **leaves})
    return [out, *torch.autograd.grad((out**2).sum(), list(leaves.values()))]


def by_views(call: Call, tensors: dict[str, Any], names: list[str]) -> list[Any]:
    """Of what isn't a leaf, as it lies in memory; twice through one graph."""
    tensors = {name: x.clone() if name in names else x for name, x in tensors.items()}
    leaves = [tensors[name].requires_grad_() for name in names]
    out = by_name(call, {name: x * 1 if name in names else x for name, x in tensors.items()})
    total = (out**2).sum()
    first = torch.autograd.grad(total, leaves, retain_graph=True)
    return [out, *(a + b for a, b in zip(first, torch.autograd.grad(total, leaves), strict=True))]


def functional(call: Call, tensors: dict[str, Any], names: list[str]) -> list[Any]:
    def total(chosen: dict[str, Any]) -> Any:
        out = by_name(call, {**tensors, **chosen})
        return (out**2).sum(), out

    found, out = torch.func.grad(total, has_aux=True)({name: tensors[name] for name in names})
    return [out, *(found[name] for name in names)]


def checkpointed(call: Call, tensors: dict[str, Any], names: list[str]) -> list[Any]:
    from torch.utils.checkpoint import checkpoint

    return plain(lambda *x, **inputs: checkpoint(call, *x, use_reentrant=False, **inputs), tensors, names)


def hooked(call: Call, tensors: dict[str, Any], names: list[str]) -> list[Any]:
    def doubled(*x: Any, **inputs: Any) -> Any:
        out = call(*x, **inputs)
        out.register_hook(lambda gradient: 2 * gradient)
        return out

    with torch.autograd.graph.save_on_cpu():
        return plain(doubled, tensors, names)


def unrecorded(call: Call, tensors: dict[str, Any], names: list[str]) -> list[Any]:
    with torch.no_grad() if len(names) % 2 else torch.inference_mode():
        return [by_name(call, {**tensors, **{name: tensors[name].clone().requires_grad_() for name in names}})]


WAYS = (plain, plain, by_views, functional, checkpointed, hooked, unrecorded)


def compare(call: Call, seed: int, steps: int) -> None:
    random = Random(seed)
    for step in range(steps):
        torch.manual_seed(1000 * seed + step)
        tensors, way = given(random), random.choice(WAYS)
        names = random.sample(NAMES, random.randint(1, len(NAMES)))
        found, wanted = way(call, tensors, names), way(eager, tensors, names)
        for name, one, other in zip(("out", *names), found, wanted, strict=False):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10, msg=lambda m: f"{seed} {step} {name}: {m}")  # noqa: B023


@pytest.fixture(scope="module")
def kernel() -> attncc.Kernel:
    return attncc.compile(TEXT, dtype="fp64", head_dim=D)


def test_a_sequence_of_calls(kernel: attncc.Kernel) -> None:
    compare(kernel, 0, 30)


def test_threads_share_a_kernel(kernel: attncc.Kernel) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: _in_thread(kernel, seed), range(4)))


def _in_thread(kernel: attncc.Kernel, seed: int) -> None:
    """The generator of random numbers is one for all threads: each draws its tensors first."""
    random = Random(seed)
    for _ in range(6):
        tensors = given(random)
        for one, other in zip(plain(kernel, tensors, list(NAMES)), plain(eager, tensors, list(NAMES)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_copies_of_a_module_learn_apart(kernel: attncc.Kernel) -> None:
    tensors = given(Random(3))
    learned = {name: tensors[name] for name in ("slope", "cap", "logit")}
    module = attncc.torch.Attention(kernel, **learned)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    call = [tensors[name] for name in "qkv"]
    wanted = module(*call, doc=tensors["doc"]).detach()
    with torch.no_grad():
        module.slope.mul_(3)
    for made in copies:
        torch.testing.assert_close(made(*call, doc=tensors["doc"]), wanted, rtol=0, atol=0)
    module.slope.requires_grad_(False)
    for kind in (torch.float16, torch.float32, torch.bfloat16):
        module.to(kind)
        module(*call, doc=tensors["doc"]).sum().backward()
        assert module.slope.grad is None and module.cap.grad.dtype == kind
        module.cap.grad = module.logit.grad = None
