"""The backward pass in 2-D tiles, on the GPU, against the dense reference in fp64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc.kernels.serving import backward_plan_for
from attncc.problem import Problem
from tests.gpu.backward_checks import check, check_runs, normal

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

NATTEN = """attn 1
import masks
variant natten {
    keep if neighborhood(q_pos % 72, kv_idx % 72, 72, 6, 6)
    keep if neighborhood(q_pos // 72, kv_idx // 72, 30, 5, 5)
}
"""
DILATED = "attn 1\nimport masks\nvariant dilated {\n    keep if window(600)\n    keep if dilated(6)\n}\n"
AHEAD = "attn 1\nimport masks\nvariant ahead {\n    keep if local(256, 256)\n    keep if dilated(4)\n}\n"
SIGMOID = NATTEN.replace("variant natten", "variant sigmoid_natten").replace("}\n", "    normalize sigmoid\n}\n")
CAPPED = NATTEN.replace("variant natten {", "variant capped {\n    input cap: f32").replace(
    "}\n", "    score = cap * tanh(score / cap)\n}\n"
)
LEARNED = """attn 1
import masks
variant learned {
    input table: f32[head, 11, 13] learnable
    input slope: f32[head] learnable
    input keys: f32[batch, kv] learnable
    input rows: f32[head, q] learnable
    input logit: f32[head] learnable
    let down = clamp(q_pos // 72 - kv_idx // 72, -5, 5) + 5
    let across = clamp(q_pos % 72 - kv_idx % 72, -6, 6) + 6
    keep if neighborhood(q_pos % 72, kv_idx % 72, 72, 6, 6)
    keep if neighborhood(q_pos // 72, kv_idx // 72, 30, 5, 5)
    score = score + table[h, down, across] + slope[h] * down + rows[h, q_idx] + keys[b, kv_idx]
    sink logit
}
"""


@pytest.fixture(autouse=True)
def _needs_hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a GPU of compute capability 9.0")


def in_tiles_2d(kernel: Any, q_shape: tuple[int, ...], kv_shape: tuple[int, ...]) -> bool:
    """Whether such calls have a kernel of their own."""
    heads, lengths = (q_shape[1], kv_shape[1]), (q_shape[2], kv_shape[2])
    problem = Problem(q_shape[0], *heads, *lengths, q_shape[3], q_shape[3])
    plans = kernel._store.backward_plans(kernel.configurations[0], "sm_90a")
    return backward_plan_for(plans, problem).pass_name == "backward_patches"


# Whole grids; bands that the lengths end within, more rows than keys and the other way round; lengths of no grid.
@pytest.mark.parametrize(
    ("text", "q_len", "kv_len", "head_dim", "tiles_2d"),
    [
        (NATTEN, 72 * 30, 72 * 30, 128, True),
        (NATTEN, 72 * 11, 72 * 27, 64, True),
        (NATTEN, 72 * 27, 72 * 11, 256, True),
        (NATTEN, 72 * 30 - 5, 72 * 30, 128, False),
        (DILATED, 6 * 211, 6 * 211, 128, True),
        (DILATED, 6 * 270, 6 * 131, 64, True),
        (DILATED, 6 * 131, 6 * 270, 256, True),
        (DILATED, 6 * 70, 6 * 70 + 1, 128, False),
        (AHEAD, 1024, 1536, 128, True),
    ],
)
def test_masks_on_a_grid(text: str, q_len: int, kv_len: int, head_dim: int, tiles_2d: bool) -> None:
    q, kv = (1, 2, q_len, head_dim), (1, 1, kv_len, head_dim)
    kernel = check(text, "bf16", (head_dim, head_dim), normal(q, kv, kv))
    assert in_tiles_2d(kernel, q, kv) == tiles_2d


@pytest.mark.parametrize("text", [NATTEN, DILATED], ids=["natten", "dilated"])
def test_sums_in_one_order(text: str) -> None:
    q = (1, 2, 72 * 30, 128)
    check(text, "fp16", (128, 128), normal(q, q, q), deterministic=True)


@pytest.mark.parametrize("text", [NATTEN, DILATED], ids=["natten", "dilated"])
def test_the_same_in_every_run(text: str) -> None:
    check_runs(text, [(2, 16, 72 * 58, 128), (2, 4, 72 * 58, 128)])


@pytest.mark.parametrize("text", [SIGMOID, CAPPED], ids=["sigmoid", "capped"])
def test_normalisers_and_scores(text: str) -> None:
    shapes = (1, 2, 72 * 30, 72), (1, 1, 72 * 30, 72), (1, 1, 72 * 30, 40)
    given = {"cap": np.array(3.0, np.float32)} if text == CAPPED else {}
    check(text, "fp16", (72, 40), normal(*shapes), **given)


@pytest.mark.parametrize("deterministic", [False, True])
def test_learnable_inputs(deterministic: bool) -> None:
    rng = np.random.default_rng(5)
    shapes = {"table": (2, 11, 13), "slope": (2,), "keys": (1, 72 * 30), "rows": (2, 72 * 30), "logit": (2,)}
    given = {name: rng.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()}
    q = (1, 2, 72 * 30, 64)
    kernel = check(LEARNED, "bf16", (64, 64), normal(q, q, q), deterministic=deterministic, **given)
    assert in_tiles_2d(kernel, q, q)
