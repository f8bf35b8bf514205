"""The backward kernel of the family hopper on the GPU, against the dense reference in fp64 under the accuracy rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gpu.backward_checks import check, check_runs, check_streams, normal

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

FULL = "attn 1\nvariant full {\n}\n"
CAUSAL = "attn 1\nvariant causal {\n    keep if q_pos >= kv_idx\n}\n"
WINDOW = "attn 1\nvariant window {\n    keep if 0 <= q_pos - kv_idx < 100\n}\n"
SIGMOID = "attn 1\nvariant sigmoid_causal {\n    keep if q_pos >= kv_idx\n    normalize sigmoid\n}\n"
LINEAR = "attn 1\nvariant linear {\n    keep if q_pos >= kv_idx\n    normalize none\n}\n"
SOFTCAP = """attn 1
variant softcap {
    input cap: f32
    keep if q_pos >= kv_idx
    score = cap * tanh(score / cap)
    dropout 0.3
}
"""
EVERYTHING = """attn 1
variant everything {
    input slope: f32[head]
    input doc: i32[batch, pos]
    input logit: f32[head]
    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = score - slope[h] * (q_pos - kv_idx)
    sink logit
    dropout 0.1
}
"""
INPUTS: dict[str, Any] = {
    "cap": np.array(3.0, np.float32),
    "slope": np.float32([0.5, 0.1, 0.3, 0.2]),
    "logit": np.float32([1.0, -2.0, 0.5, 0.0]),
}
# Those with more than 128 columns share the keys of a block between two warpgroups.
HEAD_DIMS = [(16, 16), (40, 72), (80, 80), (96, 96), (112, 64), (128, 64), (192, 128), (136, 40), (72, 256), (256, 192)]
# q and kv lengths; heads and kv heads.
SHAPES = [((128, 128), (2, 2)), ((200, 333), (3, 1)), ((513, 257), (4, 2)), ((1, 300), (2, 1)), ((1000, 1000), (2, 2))]


@pytest.fixture(autouse=True)
def _needs_hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a GPU of compute capability 9.0")


@pytest.mark.parametrize(("lengths", "heads"), SHAPES)
@pytest.mark.parametrize("text", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_plain_attention(text: str, head_dim: int, lengths: tuple[int, int], heads: tuple[int, int]) -> None:
    q, kv = (2, heads[0], lengths[0], head_dim), (2, heads[1], lengths[1], head_dim)
    check(text, "bf16", (head_dim, head_dim), normal(q, kv, kv))


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_sums_in_one_order(head_dim: int) -> None:
    check(CAUSAL, "bf16", (head_dim, head_dim), normal(*[(2, 2, 700, head_dim)] * 3), deterministic=True)


@pytest.mark.parametrize("head_dims", HEAD_DIMS)
def test_head_dims(head_dims: tuple[int, int]) -> None:
    shapes = (1, 3, 300, head_dims[0]), (1, 1, 400, head_dims[0]), (1, 1, 400, head_dims[1])
    check(CAUSAL, "fp16", head_dims, normal(*shapes))


@pytest.mark.parametrize("text", [WINDOW, SIGMOID, LINEAR], ids=["window", "sigmoid", "linear"])
@pytest.mark.parametrize("head_dim", [64, 256])
def test_masks_and_normalisers(text: str, head_dim: int) -> None:
    shapes = (1, 4, 1300, head_dim), (1, 2, 1200, head_dim), (1, 2, 1200, head_dim)
    check(text, "bf16", (head_dim, head_dim), normal(*shapes))


def test_slopes_that_one_warpgroup_tells_another() -> None:
    """Of a softcap, which the probabilities alone don't tell."""
    text = SOFTCAP.replace("    dropout 0.3\n", "")
    check(text, "bf16", (256, 256), normal((1, 2, 300, 256), (1, 1, 500, 256), (1, 1, 500, 256)), cap=INPUTS["cap"])


@pytest.mark.parametrize("head_dim", [64, 128])
def test_slopes_that_depend_on_the_score_with_dropout(head_dim: int) -> None:
    shapes = (1, 2, 300, head_dim), (1, 1, 500, head_dim), (1, 1, 500, head_dim)
    check(SOFTCAP, "bf16", (head_dim, head_dim), normal(*shapes), cap=INPUTS["cap"], seed=7, scale=1.0)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_everything_at_once(dtype: str) -> None:
    doc = np.sort(np.random.default_rng(1).integers(0, 4, (2, 400)).astype(np.int32))
    given = {"doc": doc, "slope": INPUTS["slope"], "logit": INPUTS["logit"], "seed": 2**40 + 3, "scale": -0.2}
    check(EVERYTHING, dtype, (64, 64), normal((2, 4, 330, 64), (2, 2, 400, 64), (2, 2, 400, 64)), **given)


@pytest.mark.parametrize("text", [FULL, CAUSAL, SIGMOID], ids=["full", "causal", "sigmoid"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_packed_batches(text: str, head_dim: int) -> None:
    """Sequences without rows, without keys, of one row, and with more rows than keys."""
    cu = np.int32([0, 3, 3, 370, 590, 591]), np.int32([0, 5, 12, 492, 492, 750])
    shapes = (2, 591, head_dim), (1, 750, head_dim), (1, 750, head_dim)
    check(text, "bf16", (head_dim, head_dim), normal(*shapes), cu_seqlens_q=cu[0], cu_seqlens_kv=cu[1])


@pytest.mark.parametrize("scale", [0.0, 1e-5, -1.0, 50.0])
@pytest.mark.parametrize("head_dim", [64, 256])
def test_scales_of_any_size_and_sign(scale: float, head_dim: int) -> None:
    check(CAUSAL, "fp16", (head_dim, head_dim), normal(*[(1, 2, 200, head_dim)] * 3), scale=scale)


def test_more_blocks_than_the_gpu_holds() -> None:
    check(CAUSAL, "bf16", (64, 64), normal((2, 40, 512, 64), (2, 40, 512, 64), (2, 40, 512, 64)))


# Heads of q and k, lengths: blocks in one wave; many waves; few tiles, to which all blocks add; groups.
ORDERED = [((2, 2), 300, 300), ((40, 40), 2048, 2048), ((1, 1), 64, 16384), ((16, 4), 4096, 4096)]


@pytest.mark.parametrize("shape", ORDERED)
@pytest.mark.parametrize("text", [FULL, CAUSAL, WINDOW], ids=["full", "causal", "window"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_the_same_in_every_run(text: str, head_dim: int, shape: tuple[tuple[int, int], int, int]) -> None:
    heads, q_len, kv_len = shape
    check_runs(text, [(2, heads[0], q_len, head_dim), (2, heads[1], kv_len, head_dim)])


def test_the_same_in_every_run_in_packed_batches() -> None:
    cu = {"q": [0, 3, 3, 3700, 5900, 5910], "kv": [0, 5, 12, 4920, 4920, 7500]}
    given = {f"cu_seqlens_{name}": torch.tensor(x).int().cuda() for name, x in cu.items()}
    check_runs(CAUSAL, [(8, 5910, 64), (2, 7500, 64)], **given)


@pytest.mark.parametrize("text", [FULL, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_calls_side_by_side(text: str, head_dim: int) -> None:
    """dQ is rounded while the last blocks of keys are worked on, perhaps beside those of other calls."""
    check_streams(text, [(2, 8, 1500, head_dim), (2, 4, 1500, head_dim)])


def test_packed_calls_side_by_side() -> None:
    """Of the blocks of keys some have none."""
    cu = {"q": [0, 3, 3, 3700, 5900, 5910], "kv": [0, 5, 12, 4920, 4920, 7500]}
    given = {f"cu_seqlens_{name}": torch.tensor(x).int().cuda() for name, x in cu.items()}
    check_streams(CAUSAL, [(8, 5910, 64), (2, 7500, 64)], **given)


def test_tests_of_hundreds_of_instructions_are_called() -> None:
    lookups = "any(t[kv_idx // (i + 1)] < q_idx - 40 * i for i in range(20))"
    text = f"attn 1\nvariant long_test {{\n    input t: i32[kv] nondecreasing\n    keep if {lookups}\n}}\n"
    q, kv = (2, 4, 1000, 128), (2, 2, 1100, 128)
    check(text, "bf16", (128, 128), normal(q, kv, kv), t=np.linspace(100, 900, 1100).astype(np.int32))
