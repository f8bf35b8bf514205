"""Schedules for ranges of lengths on a GPU: each call runs the kernel of its range, and all agree with fp64."""

from __future__ import annotations

import numpy as np
import pytest

import attncc
from attncc import reference
from attncc.problem import Problem
from attncc.runtime.cuda.device import best_target
from attncc.runtime.cuda.driver import driver
from attncc.runtime.store.loaded_kernels import KernelLoader

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")

HEADS = 64  # of few heads decode takes less time
HEAD = "attn 1\n\nvariant mine {\n    keep if q_pos >= kv_idx\n}\n"
SCHEDULES = """
schedule general for mine on TARGET {
    block_kv = 32
}

schedule middle for mine on TARGET for lengths 100..199 {
    block_kv = 48
}

schedule long for mine on TARGET for lengths 200.. {
    block_kv = 64
}

schedule back for mine backward on TARGET for lengths 200.. {
    stages = 1
}
"""


@pytest.mark.parametrize("kv_len", [99, 100, 199, 200, 700])
def test_a_call_takes_the_kernel_of_its_range(kv_len: int) -> None:
    device = driver().device(0)
    target = best_target(("sm_80", "sm_90", "sm_100", "sm_120"), device.capability)
    assert target is not None
    text = HEAD + SCHEDULES.replace("TARGET", target)
    kernel = attncc.compile(text, dtype="fp16", head_dim=32, arch=target)
    (configuration,) = kernel.configurations
    loaded = KernelLoader(kernel.store).of(configuration, 0)
    plan = loaded.plan(Problem(1, HEADS, HEADS, 300, kv_len, 32, 32))
    assert plan.pass_name == "forward"
    assert plan.block_kv == (32 if kv_len < 100 else 48 if kv_len < 200 else 64)

    rng = np.random.default_rng(kv_len)
    q, k, v = (
        rng.standard_normal((1, HEADS, rows, 32), np.float32).astype("float16") for rows in (300, kv_len, kv_len)
    )
    on_gpu = [cupy.asarray(array) for array in (q, k, v)]
    out, lse = kernel(*on_gpu, return_lse=True)
    exact, _ = reference.forward(kernel.variant, q, k, v)
    plain, _ = reference.baseline(kernel.variant, q, k, v)
    assert reference.accuracy(cupy.asnumpy(out), plain, exact, "fp16").holds

    dout = rng.standard_normal(out.shape, np.float32).astype("float16")
    for deterministic in (False, True):
        found = kernel.backward(cupy.asarray(dout), *on_gpu, out, lse, deterministic=deterministic)
        true = reference.backward(kernel.variant, dout, q, k, v)
        for ours, wanted in ((found.dq, true.dq), (found.dk, true.dk), (found.dv, true.dv)):
            np.testing.assert_allclose(cupy.asnumpy(ours).astype(np.float64), wanted, atol=0.02, rtol=0.02)
