from __future__ import annotations

import pytest

from attncc import api
from attncc.compiler import load_specification
from attncc.diagnostics import AttnccError
from attncc.resources import folder
from attncc.runtime.store import Configuration
from attncc.schedule.choices import Build
from attncc.schedule.schedule import Schedule, make_ladder, make_patches

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


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize(
    ("spec", "defines"), [("natten", SIZES), ("dilated_window", {}), ("dilated_sliding_window", {})]
)
def test_so_has_their_backward_pass_on_hopper(spec: str, defines: dict[str, int], head_dim: int) -> None:
    specification = load_specification(folder("specs") / f"{spec}.attn", None, defines)[0]
    configuration = Configuration("bf16", head_dim, head_dim)
    assert len(specification.backward_ladders(configuration, "sm_90")) == 2
    *_, patches = specification.backward_ladders(configuration, "sm_90a")
    plans = list(patches.plans())
    assert {(plan.pass_name, plan.family) for plan in plans} == {("backward_patches", "hopper")}
    *_, forward = specification.ladders(configuration, "sm_90a")  # whose tiles of keys may be windows of the canvas
    assert {plan.canvas for plan in plans} == {forward.canvas}


@pytest.mark.parametrize("line", ["    dropout 0.1", "    keep if q_pos >= 0"])
def test_dropout_stays_with_stretches(line: str) -> None:
    """And so do masks that no canvas helps. A schedule for what can't be is refused."""
    mask = "" if "q_pos" in line else "    keep if 0 <= q_pos - kv_idx < 600\n    keep if (q_pos - kv_idx) % 6 == 0\n"
    variant = api.parse(f"attn 1\nvariant kept {{\n{mask}{line}\n}}\n").variant
    ladder = make_ladder(variant, Build("backward", "sm_90a", "bf16", 64, 64))
    assert make_patches(ladder) is None
    with pytest.raises(AttnccError, match="A409"):
        make_patches(ladder, Schedule("asked", "kept", "backward_patches", "sm_90a"))


@pytest.mark.parametrize("where", ["sm_90a { family = portable }", "sm_90 { stages = 2 }"])
def test_the_portable_family_has_no_backward_pass_in_patches(where: str) -> None:
    text = (folder("specs") / "dilated_window.attn").read_text()
    text += f"schedule asked for dilated_window backward_patches on {where}\n"
    specification = load_specification(text, None, {})[0]
    with pytest.raises(AttnccError, match="A412"):
        *_, patches = specification.backward_ladders(Configuration("bf16", 64, 64), "sm_90a")
        patches.first  # noqa: B018
