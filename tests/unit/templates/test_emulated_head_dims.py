"""Kernels of head dims that aren't whole steps, whose rows are filled up with zeros, on an emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncc import reference
from attncc.kernels.candidates import make_plan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.emulator.backward import Results, backward
from tests.unit.templates.test_emulated_backward import FULL, plans_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]


def filled(array: Any, columns: int) -> Any:
    wide = np.zeros((*array.shape[:-1], columns), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide


@pytest.mark.parametrize("head_dims", [(20, 36), (5, 1)])
def test_rows_filled_up_with_zeros(head_dims: tuple[int, int]) -> None:
    plan, dq_plan = plans_of(FULL, "fp32", head_dims)
    rng = np.random.default_rng(4)
    size, value_size = head_dims
    shapes = ((1, 2, 40, size), (1, 1, 50, size), (1, 1, 50, value_size))
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    out, lse = reference.forward(plan.variant, q, k, v)
    dout = rng.standard_normal(out.shape).astype(np.float32)
    exact = reference.backward(plan.variant, dout, q, k, v)
    columns, values = plan.stored_head_dim, plan.stored_value_head_dim
    call = Call(filled(q, columns), filled(k, columns), filled(v, values), scale=size**-0.5)
    sizes = {"dtype": "fp32", "head_dim": size, "value_head_dim": value_size, "target": "sm_90"}
    found, found_lse = forward(make_plan(plan.variant, pass_name="forward", **sizes), call)
    np.testing.assert_allclose(found[..., :value_size], out, atol=1e-5)
    assert not found[..., value_size:].any()
    assert lse is not None
    np.testing.assert_allclose(found_lse, lse, atol=1e-5)
    results = Results(filled(dout, values), filled(out.astype(np.float32), values), lse.astype(np.float32))
    gradients = backward(plan, dq_plan, call, results)
    for name, width in (("dq", size), ("dk", size), ("dv", value_size)):
        np.testing.assert_allclose(getattr(gradients, name)[..., :width], getattr(exact, name), atol=1e-4)
