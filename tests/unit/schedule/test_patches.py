from __future__ import annotations

import pytest

from attncc.compiler import load_specification
from attncc.resources import folder
from attncc.runtime.store import Configuration

SIZES = {"canvas_width": 64, "canvas_height": 128}


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize(
    ("spec", "defines"), [("natten", SIZES), ("dilated_window", {}), ("dilated_sliding_window", {})]
)
def test_masks_on_a_canvas_get_patches_for_every_target(spec: str, defines: dict[str, int], target: str) -> None:
    """Also where the first tiles of the forward pass divide the canvas badly."""
    specification = load_specification(folder("specs") / f"{spec}.attn", None, defines)[0]
    plans = specification.plans(Configuration("bf16", 128, 128), target)
    assert [plan.pass_name for plan in plans] == ["forward", "decode", "patches"]
