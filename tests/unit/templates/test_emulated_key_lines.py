"""Inputs that score lines and keep lines read at kv_idx, on the emulated GPU: a lane reads several keys at once where
they lie together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attncc import api
from attncc.codegen.user_code import user_code
from attncc.kernels.registry import facts_of
from tests.emulator import kernel
from tests.emulator.attention import Array, Call
from tests.unit.templates.test_emulated_backward import check as check_gradients
from tests.unit.templates.test_emulated_backward_hopper import plan_of as backward_plan
from tests.unit.templates.test_emulated_fp8 import check as check_8_bits
from tests.unit.templates.test_emulated_fp8 import plan_of as plan_of_8_bits
from tests.unit.templates.test_emulated_hopper import plan_of
from tests.unit.templates.test_emulated_kernels import check, qkv

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

DTYPES = {"bool": np.bool_, "i32": np.int32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
USES = {"bool": "keep if x[{}]", "i32": "score = score + 0.25 * x[{}]"}

# How an array may lie in memory: rows aligned, or not; entries next to each other, or not.
LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "aligned": lambda x: _in_larger(x, 0, -x.shape[-1] % 16),
    "dense": lambda x: x,
    "odd_base": lambda x: _in_larger(x, 3, -(x.shape[-1] + 3) % 16),
    "odd_row_stride": lambda x: _in_larger(x, 16, x.shape[-1] % 2),
    "last_stride_2": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "one_row_for_all": lambda x: np.broadcast_to(x[..., :1, :], x.shape),
}


def _in_larger(x: Array, before: int, behind: int) -> Array:
    """With entries around those of each row, which nobody may read: its base is on a boundary of 64 bytes."""
    rest = np.nan if x.dtype.kind not in "bi" else 1
    shape = *x.shape[:-1], before + x.shape[-1] + behind
    memory = np.empty(np.prod(shape) * x.itemsize + 64, np.uint8)
    start = -memory.ctypes.data % 64
    larger = memory[start : start + memory.size - 64].view(x.dtype).reshape(shape)
    larger[:] = rest
    found = larger[..., before : before + x.shape[-1]]
    found[:] = x
    return found


def values(dtype: str, shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(3)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return (rng.integers(-9, 9, shape) if dtype == "i32" else rng.standard_normal(shape)).astype(DTYPES[dtype])


def text_of(dtype: str, axes: str, index: str, *lines: str) -> str:
    use = USES.get(dtype, "score = score + x[{}]").format(index)
    return "\n".join(["attn 1", "variant biased {", f"input x: {dtype}[{axes}]", *lines, use, "}", ""])


def run(plan: Any, x: Array, rows: int, keys: int, **more: Any) -> None:
    code = user_code(plan)
    assert code.score_entries or code.keep_entries, "the lines are read by pieces, or the test tests nothing"
    check(plan, Call(*qkv(plan, (2, 4, rows), (2, 2, keys)), inputs={"x": x}, **more))


CASES = [(dtype, "aligned", 64) for dtype in DTYPES] + [("bf16", layout, 32) for layout in list(LAYOUTS)[1:]]
MORE = [
    (dtype, layout, block_kv)
    for dtype in DTYPES
    for layout in LAYOUTS
    for block_kv in (32, 64, 96)
    if (dtype, layout, block_kv) not in CASES
]


@pytest.mark.parametrize(
    ("dtype", "layout", "block_kv"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]
)
def test_rows_of_their_own(dtype: str, layout: str, block_kv: int) -> None:
    """Of each head and row, over whole tiles of keys and a part of one."""
    plan = plan_of(text_of(dtype, "head, q, kv", "h, q_idx, kv_idx"), "bf16", block_kv=block_kv)
    run(plan, LAYOUTS[layout](values(dtype, (4, 70, 203))), 70, 203)


@pytest.mark.parametrize("dtype", list(DTYPES))
@pytest.mark.parametrize(
    "layout",
    [
        "aligned",
        pytest.param("odd_base", marks=pytest.mark.slow),
        pytest.param("last_stride_2", marks=pytest.mark.slow),
    ],
)
def test_one_line_for_all_rows(dtype: str, layout: str) -> None:
    plan = plan_of(text_of(dtype, "batch, kv", "b, kv_idx", "keep if q_pos >= kv_idx"), "fp16", block_kv=64)
    run(plan, LAYOUTS[layout](values(dtype, (2, 203))), 170, 203)


@pytest.mark.parametrize("block_q", [64, 128, pytest.param(256, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["bool", "bf16"])
def test_behind_a_causal_mask(dtype: str, block_q: int) -> None:
    """In tiles with a mask and without, of several warpgroups."""
    text = text_of(dtype, "head, q, kv", "h, q_idx, kv_idx", "keep if q_pos >= kv_idx")
    run(plan_of(text, "bf16", block_q=block_q, block_kv=64), values(dtype, (4, 264, 264)), 264, 264)


@pytest.mark.parametrize("dtype", ["bool", "bf16", "f32"])
def test_what_an_input_lacks_is_0(dtype: str) -> None:
    """It has fewer rows and keys than the call; the index has a batch that there may not be."""
    plan = plan_of(text_of(dtype, "_, _, _", "b - 1, q_idx, kv_idx"), "bf16", block_kv=64)
    run(plan, values(dtype, (1, 40, 144)), 70, 203)


@pytest.mark.parametrize("dtype", ["bool", "bf16", "f32"])
def test_packed_batches(dtype: str) -> None:
    """Sequences begin anywhere in a line; what follows one in memory is another's."""
    plan = plan_of(text_of(dtype, "head, batch, kv", "h, b, kv_idx"), "bf16", block_kv=32)
    cu = np.int32([0, 3, 90, 150]), np.int32([0, 64, 139, 290])
    check(plan, Call(*qkv(plan, (2, 150), (1, 290)), cu=cu, inputs={"x": values(dtype, (2, 290))}))


@pytest.mark.parametrize(
    ("dtype", "order", "lines"), [("i32", "", True), ("i32", " nondecreasing", False), ("i64", "", False)]
)
def test_ids_in_no_order_are_compared_pair_by_pair(dtype: str, order: str, lines: bool) -> None:
    """Where they are in order, rows share a test; and where they are wider than a word."""
    text = f"attn 1\nvariant grouped {{\ninput x: {dtype}[batch, pos]{order}\nkeep if x[b, q_pos] == x[b, kv_idx]\n}}\n"
    plan = plan_of(text, "bf16", block_kv=64)
    assert bool(user_code(plan).keep_entries) == lines
    ids = np.random.default_rng(4).integers(0, 5, (2, 203)).astype(dtype.replace("i", "int"))
    check(plan, Call(*qkv(plan, (2, 4, 170), (2, 2, 203)), inputs={"x": np.sort(ids) if order else ids}))


def test_scores_beyond_stale_maxima() -> None:
    """Where scores are computed again, their entries are read again."""
    plan = plan_of(text_of("bf16", "head, q, kv", "h, q_idx, kv_idx"), "bf16", block_kv=64)
    x = values("bf16", (4, 70, 256)) + np.linspace(300, 0, 256, dtype=np.float32)
    run(plan, x.astype(DTYPES["bf16"]), 70, 256)


def test_several_lines_and_a_mask() -> None:
    """One per row and one for all of them, in a score line and in a mask, with a let."""
    text = """attn 1
variant several {
input x: bool[q, kv]
input y: f32[batch, kv]
input z: bf16[head, q, kv]
let both = y[b, kv_idx] + z[h, q_idx, kv_idx]
keep if x[q_idx, kv_idx] or y[b, kv_idx] > 1
score = 2 * score + both
score = 4 * tanh(score / 4) + z[0, q_idx, kv_idx]
}
"""
    plan = plan_of(text, "bf16", block_kv=64)
    assert facts_of(plan).reads_key_lines
    inputs = {
        "x": values("bool", (70, 203)),
        "y": LAYOUTS["aligned"](values("f32", (2, 203))),
        "z": LAYOUTS["aligned"](values("bf16", (4, 70, 203))),
    }
    check(plan, Call(*qkv(plan, (2, 4, 70), (2, 2, 203)), inputs=inputs))


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("layout", ["aligned", "odd_base"])
@pytest.mark.parametrize(
    "lines",
    [
        "input x: bool[head, q, kv]\nkeep if x[h, q_idx, kv_idx]",
        "input x: bf16[head, q, kv]\nkeep if x[h, q_idx, kv_idx] > 0.2\nkeep if q_pos + 40 >= kv_idx",
        "input x: i32[head, q, kv]\nkeep if x[h, q_idx, kv_idx] > q_pos % 3",
    ],
)
def test_backward_masks(lines: str, layout: str, head_dim: int) -> None:
    """A lane asks about 16 keys of a row at once, but for the last keys; more rows than keys, the last block ragged."""
    plan = backward_plan(f"attn 1\nvariant masked {{\n{lines}\n}}\n", "bf16", (head_dim, head_dim))
    assert user_code(plan).keep_sixteen
    dtype = api.parse(f"attn 1\nvariant masked {{\n{lines}\n}}\n").variant.input("x").dtype
    x = LAYOUTS[layout](values(dtype, (2, 170, 203)))
    check_gradients(plan, None, Call(*qkv(plan, (1, 2, 170), (1, 1, 203)), inputs={"x": x}))


@pytest.mark.parametrize("head_dims", [(64, 64), (192, 192)])
@pytest.mark.parametrize("dtype", ["bool", "bf16"])
def test_8_bit_operands(dtype: str, head_dims: tuple[int, int]) -> None:
    """Where exponents are bounded first, too: above 128 columns."""
    text = text_of(dtype, "head, q, kv", "h, q_idx, kv_idx", "keep if q_pos + 90 >= kv_idx")
    plan = plan_of_8_bits(text, head_dims, block_q=64, block_kv=64, stages=2)
    assert plan.family == "hopper"
    x = LAYOUTS["aligned"](values(dtype, (4, 140, 203)))
    check_8_bits(plan, Call(*qkv(plan, (2, 4, 140), (2, 2, 203)), inputs={"x": x}))


@pytest.mark.parametrize(
    "lines", [["normalize sigmoid"], ["normalize none"], ["input z: f32[head]", "sink z"], ["dropout 0.3"]]
)
def test_other_weights(lines: list[str]) -> None:
    text = text_of("bf16", "head, q, kv", "h, q_idx, kv_idx", *lines)
    plan = plan_of(text, "bf16", block_kv=64)
    inputs = {"x": LAYOUTS["aligned"](values("bf16", (4, 70, 203)))}
    inputs |= {"z": values("f32", (4,))} if "sink z" in lines else {}
    check(plan, Call(*qkv(plan, (2, 4, 70), (2, 2, 203)), seed=7, inputs=inputs))
