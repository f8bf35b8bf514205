"""The kernels of a plan and their sources; none is compiled here."""

from __future__ import annotations

import pytest

from attncc.compiler import NO_DEFINES, load_specification
from attncc.kernels.launched import kernel_names
from attncc.machine_code import kernel_sources
from attncc.resources import folder
from attncc.runtime.store.store import Configuration


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["causal", "sink_attention", "relative_bias", "alibi_documents", "sigmoid_attention"])
def test_every_kernel_that_a_launch_needs_has_a_source(name: str, target: str) -> None:
    path = folder("specs") / f"{name}.attn"
    specification, _ = load_specification(path, None, NO_DEFINES)
    configuration = Configuration("bf16", 64, 64)
    forward = specification.candidates(configuration, target)
    for plan in (item.first for item in forward + specification.backward_candidates(configuration, target)):
        assert set(kernel_sources(plan)) == set(kernel_names(plan))
