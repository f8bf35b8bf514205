"""The kernel of attncc.append compiles for every target, and spills nothing."""

from __future__ import annotations

import pytest

from attncc.codegen.render import render_helper
from attncc.kernels.helpers import append
from attncc.machine_code import compiled
from attncc.schedule.target import TARGETS

TYPES = [("bf16", "fp32"), ("bf16", "bf16"), ("fp16", "fp32"), ("fp16", "fp16"), ("fp32", "fp32")]
CASES = [(*TYPES[0], target) for target in TARGETS] + [(*types, "sm_80") for types in TYPES[1:]]


@pytest.mark.parametrize(("dtype", "angles", "target"), CASES)
def test_it_compiles_without_spills(dtype: str, angles: str, target: str) -> None:
    source = render_helper(append.kernel(dtype, angles, target))
    found = compiled(source, target)
    assert found.code.entry == "append" and found.code.threads == append.THREADS
    resources = found.resources
    assert (resources.spill_stores, resources.spill_loads, resources.messages) == (0, 0, ())
    assert resources.registers <= 64  # 8 blocks of 128 threads on a multiprocessor
