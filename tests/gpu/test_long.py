"""A million queries and a million keys: the result is right, and no memory is taken beside it. Gradients of 131,072."""

from __future__ import annotations

import math
from typing import Any

import pytest

import attncc
from attncc.kernels.registry import facts_of
from attncc.resources import folder
from attncc.schedule.schedule import Schedule
from tests.devices import cuda

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LENGTH, HEAD_DIM = 1 << 20, 128
ROWS = (0, 1, 63, 64, 127, 128, 4097, LENGTH // 2 - 1, LENGTH // 2, LENGTH - 129, LENGTH - 2, LENGTH - 1)
SMALL = 4096  # bytes, and more: what the allocator rounds


@pytest.mark.parametrize("family", ["portable", "hopper"])
def test_a_million_tokens(family: str) -> None:
    device = cuda()
    if family == "hopper" and device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    target = "sm_90a" if family == "hopper" else device.target
    schedule = Schedule(family, "causal", "forward", target, (("family", (family,)),))
    kernel = attncc.compile(
        folder("specs") / "causal.attn", dtype="bf16", head_dim=HEAD_DIM, arch=target, schedule=schedule
    )
    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(1, 1, LENGTH, HEAD_DIM, generator=generator, device="cuda").bfloat16() for _ in range(3))
    kernel.load()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out, lse = kernel(q, k, v, return_lse=True)
    torch.cuda.synchronize()
    taken = torch.cuda.max_memory_allocated() - before
    assert taken <= out.nbytes + lse.nbytes + SMALL
    for row in ROWS:
        keys, values = (item[0, 0, : row + 1].double() for item in (k, v))
        score = keys @ q[0, 0, row].double() / math.sqrt(HEAD_DIM)
        exact = score.softmax(0) @ values
        assert (out[0, 0, row].double() - exact).abs().max() <= 2**-7 * max(float(exact.abs().max()), 2**-8), row
        assert abs(float(lse[0, 0, row]) - float(score.logsumexp(0))) <= 1e-3, row


@pytest.mark.parametrize("family", ["portable", "hopper"])
def test_memory_of_gradients(family: str) -> None:
    """Forward and backward take outputs, lse, gradients, a few bytes for each row (lse and delta) and one fp32 dQ. The
    gradients of some rows and keys are right."""
    device = cuda()
    if family == "hopper" and device.target != "sm_90":
        pytest.skip("the family hopper runs on sm_90a alone")
    target = "sm_90a" if family == "hopper" else device.target
    schedule = Schedule(family, "causal", "backward", target, (("family", (family,)),))
    kernel = attncc.compile(
        folder("specs") / "causal.attn", dtype="bf16", head_dim=HEAD_DIM, arch=target, schedule=schedule
    )
    length, generator = 131_072, torch.Generator("cuda").manual_seed(0)
    q, k, v, dout = (
        torch.randn(1, 1, length, HEAD_DIM, generator=generator, device="cuda").bfloat16() for _ in range(4)
    )
    small = (x[:, :, :128] for x in (dout, q, k, v))  # loads the kernels
    _gradients(kernel, *small)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    out, lse, found = _gradients(kernel, dout, q, k, v)
    torch.cuda.synchronize()
    # What was asked for: torch may give 66 MiB where 65 are asked for, and counts them as allocated.
    taken = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    plan = kernel._store.backward_plans(kernel.configurations[0], target)[0]
    kept = [out, lse, found.dq, found.dk, found.dv]
    assert taken <= sum(x.nbytes for x in kept) + length * (facts_of(plan).statistics_bytes + 4 * HEAD_DIM) + SMALL
    _check_gradients(dout, q, k, v, out, lse, found)


def _gradients(kernel: Any, dout: Any, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    out, lse = kernel(q, k, v, return_lse=True)
    return out, lse, kernel.backward(dout, q, k, v, out, lse)


def _check_gradients(*arrays: Any) -> None:
    """Of the first, some middle and the last rows and keys, from scores in fp64; norms of errors as bf16 has them."""
    *given, found = arrays
    dout, q, k, v, out, lse = (x[0, 0].double() for x in given)
    delta, scale, places = (dout * out).sum(-1), HEAD_DIM**-0.5, torch.arange(len(q), device="cuda")
    for place in (0, 1, 127, 70_000, len(q) - 1):
        row = (k @ q[place] * scale - lse[place]).exp() * (places <= place)  # of P
        column = (q @ k[place] * scale - lse).exp() * (places >= place)
        exact = {
            "dq": (row * (v @ dout[place] - delta[place])) @ k * scale,
            "dk": (column * (dout @ v[place] - delta)) @ q * scale,
            "dv": column @ dout,
        }
        for name, gradient in exact.items():
            error = getattr(found, name)[0, 0, place].double() - gradient
            assert error.norm() <= 2e-2 * gradient.norm() + 1e-3, (name, place, error.norm(), gradient.norm())
