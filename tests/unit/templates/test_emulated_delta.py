"""The kernel that makes delta, on an emulated GPU (tests/emulator) against NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc import api
from attncc.kernels.candidates import make_plan
from attncc.kernels.registry import facts_of
from tests.emulator import kernel
from tests.emulator.attention import Call, problem_of, tensors
from tests.emulator.backward import Results, delta
from tests.unit.templates.test_emulated_kernels import CAUSAL, qkv

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

PACKED = np.int32([0, 3, 3, 70, 70]), np.int32([0, 5, 12, 92, 100])


def strided(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """The same numbers with the heads of a row side by side, among NaN."""
    *batch, heads, length, columns = array.shape
    buffer = np.full((*batch, length + 5, heads, columns + 8), np.nan, np.float32).astype(array.dtype)
    view = np.moveaxis(buffer, -2, -3)[..., :length, :columns]
    view[:] = array
    return view


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("value_head_dim", [16, 40, 64, 104, 256])
def test_delta(value_head_dim: int, dtype: str, packed: bool) -> None:
    """Rows that fill up a block, sequences without rows, lanes without columns."""
    sizes = {"head_dim": 16, "value_head_dim": value_head_dim, "target": "sm_80"}
    plan = make_plan(api.parse(CAUSAL).variant, pass_name="backward", dtype=dtype, **sizes)
    shapes = ((2, 70), (1, 100)) if packed else ((2, 2, 37), (2, 1, 37))
    call = Call(*qkv(plan, *shapes), cu=PACKED if packed else None)
    rng = np.random.default_rng(4)
    element = call.v.dtype
    out, dout = (
        strided(rng.standard_normal((*shapes[0], value_head_dim), np.float32).astype(element)) for _ in range(2)
    )
    lse, dlse = (rng.standard_normal(shapes[0], np.float32) for _ in range(2))
    rows = facts_of(plan).kept_rows(problem_of(plan, call)) // 16
    statistics = np.full((2 if packed else 4, rows * 16, facts_of(plan).statistics_bytes // 4), np.nan, np.float32)
    sums, counts = np.ones((len(statistics) * rows + 1, 32), np.float32), np.ones(777, np.int32)
    values = {"row_blocks": rows, "statistics": statistics.ctypes.data} | tensors(call, dout=dout, out=out)
    values |= {"dq_sum": sums.ctypes.data, "sum_words": 32, "counts": counts.ctypes.data, "count_words": 776}
    delta(plan, call, Results(dout, out, lse, dlse), values)
    expected = ((out.astype(np.float64) * dout.astype(np.float64)).sum(-1) - dlse).reshape(len(statistics), -1)
    starts = PACKED[0] if packed else np.int32([0, 37])
    seen = np.zeros(statistics.shape[:2], bool)
    for sequence, (start, end) in enumerate(pairwise(starts)):
        step = facts_of(plan).row_alignment
        first = (start // step + sequence) * step
        found = statistics[:, first : first + end - start]
        seen[:, first : first + end - start] = True
        np.testing.assert_allclose(found[..., 1], expected[:, start:end], atol=1e-4)
        unit = 1 if dtype == "fp32" else np.log2(np.e)
        np.testing.assert_allclose(found[..., 0], lse.reshape(len(statistics), -1)[:, start:end] * unit, rtol=1e-6)
    assert seen.any() and not seen.all()
    assert not sums[:-1].any() and sums[-1].all() and not counts[:-1].any() and counts[-1]  # cleared, and no more
    assert (statistics[..., 0][~seen] == np.inf).all() and (statistics[..., 1][~seen] == 0).all()
    assert not statistics[..., 2:].any()  # in fp32 what lse lost: nobody has looked yet
