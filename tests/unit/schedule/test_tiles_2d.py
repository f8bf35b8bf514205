from __future__ import annotations

from dataclasses import replace

import pytest

from attncc import api
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.tiles import analyse_windows
from attncc.compiler import load_specification
from attncc.diagnostics import AttnccError
from attncc.kernels.candidates import make_candidates, make_tiles_2d
from attncc.kernels.legality import check
from attncc.resources import folder
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.schedule import Schedule

BUILD = Build("forward", "sm_90a", "bf16", 64, 64)
SIZES = {"canvas_width": 64, "canvas_height": 128}


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize(
    ("spec", "defines"), [("natten", SIZES), ("dilated_window", {}), ("dilated_sliding_window", {})]
)
def test_masks_on_a_grid_get_tiles_2d_for_every_target(spec: str, defines: dict[str, int], target: str) -> None:
    """Also where the first tiles of the forward pass divide the grid badly."""
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
    assert len(specification.backward_candidates(configuration, "sm_90")) == 2
    *_, tiles_2d = specification.backward_candidates(configuration, "sm_90a")
    plans = list(tiles_2d.plans())
    assert {(plan.pass_name, plan.family) for plan in plans} == {("backward_patches", "hopper")}
    *_, forward = specification.candidates(configuration, "sm_90a")  # whose tiles of keys may be windows of the grid
    assert {plan.grid_2d for plan in plans} == {forward.grid_2d}


@pytest.mark.parametrize("line", ["    dropout 0.1", "    keep if q_pos >= 0"])
def test_dropout_stays_with_tiles_1d(line: str) -> None:
    """And so do masks that no 2-D grid helps. A schedule for what can't be is refused."""
    mask = "" if "q_pos" in line else "    keep if 0 <= q_pos - kv_idx < 600\n    keep if (q_pos - kv_idx) % 6 == 0\n"
    variant = api.parse(f"attn 1\nvariant kept {{\n{mask}{line}\n}}\n").variant
    candidates = make_candidates(variant, Build("backward", "sm_90a", "bf16", 64, 64))
    assert make_tiles_2d(candidates) is None
    with pytest.raises(AttnccError, match="A409"):
        make_tiles_2d(candidates, Schedule("asked", "kept", "backward_patches", "sm_90a"))


@pytest.mark.parametrize("where", ["sm_90a { family = portable }", "sm_90 { stages = 2 }"])
def test_the_portable_family_has_no_backward_pass_in_tiles_2d(where: str) -> None:
    text = (folder("specs") / "dilated_window.attn").read_text()
    text += f"schedule asked for dilated_window backward_patches on {where}\n"
    specification = load_specification(text, None, {})[0]
    with pytest.raises(AttnccError, match="A412"):
        *_, tiles_2d = specification.backward_candidates(Configuration("bf16", 64, 64), "sm_90a")
        tiles_2d.first  # noqa: B018


def windowed(lines: str, grid_2d: Grid2D) -> KernelPlan:
    variant = api.parse(f"attn 1\nvariant kept {{\n{lines}\n}}\n").variant
    tiles = {"family": "hopper", "block_q": 64, "block_kv": 4 * grid_2d.kv_columns}
    schedule = Schedule("asked", "kept", "forward", "sm_90a", tuple((name, (x,)) for name, x in tiles.items()))
    plan = make_candidates(variant, BUILD, schedule).first
    rules = analyse_windows(variant, plan.block_q, plan.block_kv, grid_2d)
    assert rules is not None
    return replace(plan, pass_name="patches", grid_2d=grid_2d, rules=rules)


ROWS, COLUMNS = "keep if q_idx // 8 == kv_idx // 8", "keep if abs(q_idx % 8 - kv_idx % 8) <= 1"


def test_windows_have_no_place_for_tests_of_pairs() -> None:
    """Their kernel masks whole rows and columns. That columns are equal is a remainder of the distance in normal form,
    which limits neither."""
    check(windowed(f"{ROWS}\n{COLUMNS}", Grid2D(8, 8, 8, window=True)), lambda *_: None)
    for lines, reason in (
        (f"{ROWS}\nkeep if q_idx % 8 == kv_idx % 4", "must be tested for each pair"),
        (f"{ROWS}\nkeep if q_idx % 8 == kv_idx % 8", "must be tested for each pair"),
        (f"{ROWS}\nscore = score * 2", "no place for `score` lines"),
        (f"{ROWS}\ndropout 0.1", "dropout asks for keys that stand beside each other"),
    ):
        with pytest.raises(AttnccError, match="windows of a 2-D grid don't serve kept") as caught:
            check(windowed(lines, Grid2D(8, 8, 8, window=True)), lambda *_: None)
        assert reason in str(caught.value)


@pytest.mark.parametrize("grid_2d", [Grid2D(12, 8, 4), Grid2D(24, 8, 3), Grid2D(16, 8, 16)])
def test_columns_of_tiles_2d_divide_the_grid_and_fragments(grid_2d: Grid2D) -> None:
    plan = make_candidates(api.parse(f"attn 1\nvariant kept {{\n{ROWS}\n}}\n").variant, BUILD).first
    with pytest.raises(AttnccError, match="2-D tiles don't serve kept"):
        check(replace(plan, grid_2d=grid_2d), lambda *_: None)
