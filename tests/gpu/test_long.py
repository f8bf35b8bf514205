"""A million queries and a million keys: the result is right, and no memory is taken beside it."""

from __future__ import annotations

import math

import pytest

import attncc
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
