"""Calls whose forward kernel would leave most of the GPU idle run the decode kernel: every variant, with more rows than
one of its tiles has."""

from __future__ import annotations

from typing import Any

import pytest

import attncc
from attncc import library
from attncc.kernels.crossings import Chip, Crossings
from attncc.kernels.serving import plan_for
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.cuda.driver import driver
from tests.devices import cuda
from tests.gpu.accuracy import check_forward

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

HEAD_DIM = 128
ALWAYS = Crossings(split_keys=1, uneven_split_keys=1, row_block_cost=0.01)
# That have no decode kernel, or one schedule for all.
NAMES = [name for name in library.names() if name not in ("flash_attention_1", "mla", "mla_decode")]


@pytest.mark.parametrize("name", NAMES)
def test_every_variant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.gpu.calls import SEED, inputs_of, others_of
    from tests.gpu.torch_oracle import Arguments

    if cuda().target != "sm_90":
        pytest.skip("other forward kernels split their keys")
    monkeypatch.setattr("attncc.runtime.store.loaded_kernels.chip_of", lambda _, count: Chip(count, ALWAYS))
    monkeypatch.setattr("attncc.api._kernels", {})
    kernel: Any = attncc.compile(folder("specs") / f"{name}.attn", dtype="bf16", head_dim=HEAD_DIM)
    problem = Problem(1, 4, 2, 200, 700, HEAD_DIM, HEAD_DIM)
    generator = torch.Generator("cuda").manual_seed(3)
    q, k, v = (
        torch.randn(1, heads, length, HEAD_DIM, generator=generator, device="cuda").bfloat16()
        for heads, length in ((4, 200), (2, 700), (2, 700))
    )
    variant = kernel.variant
    inputs, softmax = inputs_of(variant, problem), variant.normalize == "softmax"
    found = kernel(q, k, v, return_lse=softmax, **inputs, **others_of(variant, problem))
    out, lse = found if softmax else (found, None)
    check_forward(out, lse, Arguments(variant, problem, q, k, v, inputs, seed=SEED), "bf16")


def test_defaults() -> None:
    """As users call them: a few heads, and a chunk of queries over many keys."""
    kernel: Any = attncc.compile(folder("specs") / "causal.attn", dtype="bf16", head_dim=HEAD_DIM)
    if cuda().target != "sm_90":
        pytest.skip("other forward kernels split their keys")
    plans = kernel.store.plans(kernel.configurations[0], "sm_90a")
    chip = Chip(driver().device(0).multiprocessors)
    assert plan_for(plans, Problem(1, 8, 8, 128, 4000, HEAD_DIM, HEAD_DIM), chip).pass_name == "decode"
    assert plan_for(plans, Problem(8, 32, 8, 128, 4000, HEAD_DIM, HEAD_DIM), chip).pass_name == "forward"
    generator = torch.Generator("cuda").manual_seed(4)
    q, k, v = (
        torch.randn(1, 8, length, HEAD_DIM, generator=generator, device="cuda").bfloat16()
        for length in (128, 4000, 4000)
    )
    kept = torch.ones(128, 4000, dtype=torch.bool, device="cuda").tril(4000 - 128)
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=kept)
    torch.testing.assert_close(kernel(q, k, v).double(), exact, rtol=2e-2, atol=4e-3)
