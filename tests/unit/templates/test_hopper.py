"""The family hopper, compiled without a GPU: no spills, no warnings of ptxas, registers that the warpgroups can share.

A covering subset, with dtypes and head dims that change from spec to spec; `test_generated_compiles` has all specs in
bf16 with head dims of the default build, which aren't compiled again here.
"""

from __future__ import annotations

from itertools import cycle

import pytest

from attncc.codegen.render import render
from attncc.package.variant_package import DEFAULT_HEAD_DIMS
from tests.compilations import COMPILATIONS, Case, HopperCase, has_registers

# Those that compute much for each pair compile for long; a few of them meet the other head dims below.
SPECS = (
    "full", "causal", "sliding_window", "prefix_lm", "alibi", "softcap", "documents", "dilated_window",
    "dropout_attention", "sink_attention", "sigmoid_attention", "relu_attention", "relative_bias", "decode",
)  # fmt: skip
HEAD_DIMS = (
    (64, 64), (128, 128), (16, 16), (256, 256), (40, 40), (192, 128), (72, 72), (192, 192), (80, 80), (96, 96),
)  # fmt: skip
DEFAULT = [("bf16", (size, size)) for size in DEFAULT_HEAD_DIMS]
CASES = (
    HopperCase("softcap", "e4m3", 256, 256),
    *(HopperCase("full", "e4m3", size, size) for size in (64, 128, 256)),
    HopperCase("causal", "e4m3", 128, 128),
    HopperCase("documents", "e4m3", 64, 64),
    HopperCase("sliding_window", "e4m3", 192, 128),
    *(
        HopperCase(spec, dtype, *dims)
        for spec, dims, dtype in zip(SPECS, cycle(HEAD_DIMS), cycle(("bf16", "fp16")))
        if (dtype, dims) not in DEFAULT
    ),
    HopperCase("shared_prefix", "fp16", 64, 64),
)  # fmt: skip
# What a plain `pytest` compiles: all dtypes, narrow, wide and unequal heads. The rest is marked slow.
EVERY_DAY = (
    HopperCase("full", "e4m3", 128, 128),
    HopperCase("prefix_lm", "fp16", 256, 256),
    HopperCase("alibi", "bf16", 40, 40),
    HopperCase("softcap", "fp16", 192, 128),
)
assert set(EVERY_DAY) <= set(CASES)


@pytest.mark.parametrize(
    "case", [case if case in EVERY_DAY else pytest.param(case, marks=pytest.mark.slow) for case in CASES], ids=str
)
def test_compiles_without_spills(case: HopperCase) -> None:
    plan, resources = COMPILATIONS.result(case)
    assert plan.family == "hopper"
    assert not resources.messages  # C7510 and its like: wgmma that ptxas serialised
    assert (resources.spill_stores, resources.spill_loads) == (0, 0)
    assert has_registers(plan, resources)


def test_causal_dropout_has_registers_for_three_warpgroups() -> None:
    kernels = COMPILATIONS.result(Case("dropout_attention", "sm_90a", "bf16", 128))
    kernel = kernels["dropout_attention_forward_bf16_d128_sm_90a"]
    assert (kernel.plan.block_q, kernel.plan.block_kv) == (192, 64)


def test_no_text_is_left_of_another_family() -> None:
    text = render(HopperCase("causal", "bf16", 128, 128).candidates().first).text
    assert "wgmma.mma_async" in text and "cp.async.bulk.tensor" in text
    assert "cp.async.cg" not in text
