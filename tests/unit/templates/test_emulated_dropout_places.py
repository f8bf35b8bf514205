"""Dropout of launches that have a part of a sequence's queries, on an emulated GPU: the bits of the whole sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attncc import api, reference
from attncc.distributed.query_places import with_places
from attncc.first_query import Q_PLACE
from attncc.ir import Variant
from attncc.kernels.candidates import make_candidates, make_plan
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.schedule import Schedule
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.emulator.backward import Results, backward
from tests.unit.templates.test_emulated_kernels import qkv

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

WHOLE = api.parse("attn 1\nvariant dropped {\n    keep if q_pos >= kv_idx\n    dropout 0.3\n}\n").variant
PLACED = with_places(WHOLE, packed=False)
ROWS, PARTS = 176, ((0, 48), (48, 64), (64, 176))  # parts begin at multiples of 16, not of tiles
SEED = 2**40 + 3


def made(pass_name: str, target: str, variant: Variant = PLACED, **settings: Any) -> KernelPlan:
    asked = tuple((name, (value,)) for name, value in settings.items())
    schedule = Schedule("asked", variant.name, pass_name, target, asked)
    if settings.get("family") == "hopper" and pass_name == "backward":
        return next(iter(make_candidates(variant, Build(pass_name, target, "bf16", 64, 64), schedule).plans()))
    sizes = {"dtype": "bf16", "head_dim": 64, "value_head_dim": 64, "target": target, "pass_name": pass_name}
    return make_plan(variant, schedule=schedule, **sizes)


def part_of(call: Call, begin: int, end: int) -> Call:
    place = np.int32([[begin, ROWS]] * call.batch)
    own = np.ascontiguousarray(call.q[:, :, begin:end])
    return replace(call, q=own, q_offset=begin, inputs={Q_PLACE: place})


@pytest.mark.parametrize(
    ("pass_name", "target", "settings"),
    [
        ("forward", "sm_80", {"loop": "q_outer"}),
        ("forward", "sm_80", {"loop": "kv_outer"}),
        ("forward", "sm_90a", {"block_q": 64, "block_kv": 32, "stages": 2}),
        ("decode", "sm_80", {}),
    ],
    ids=str,
)
def test_forward(pass_name: str, target: str, settings: dict[str, Any]) -> None:
    plan = made(pass_name, target, **settings)
    call = Call(*qkv(plan, (2, 4, ROWS), (2, 2, ROWS)), seed=SEED)
    exact, exact_lse = reference.forward(WHOLE, call.q, call.k, call.v, seed=SEED)
    plain, _ = reference.baseline(WHOLE, call.q, call.k, call.v, seed=SEED)
    for begin, end in PARTS:
        out, lse = forward(plan, part_of(call, begin, end))
        judged = reference.accuracy(out, plain[:, :, begin:end], exact[:, :, begin:end], plan.dtype)
        assert judged.holds, judged
        np.testing.assert_allclose(lse, exact_lse[:, :, begin:end], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("target", "settings", "apart"),
    [
        ("sm_80", {"family": "portable"}, True),
        ("sm_80", {"family": "portable"}, False),
        ("sm_90a", {"family": "hopper"}, False),
    ],
    ids=str,
)
def test_backward(target: str, settings: dict[str, Any], apart: bool) -> None:
    """`apart`: dQ by a kernel of its own."""
    plan = made("backward", target, **settings)
    dq_plan = made("backward_dq", target) if apart else None
    call = Call(*qkv(plan, (1, 2, ROWS), (1, 1, ROWS)), seed=SEED)
    out, lse = reference.forward(WHOLE, call.q, call.k, call.v, seed=SEED)
    assert lse is not None
    dout = np.random.default_rng(3).standard_normal(out.shape).astype(call.q.dtype)
    for begin, end in PARTS:
        own, some = part_of(call, begin, end), slice(begin, end)
        results = Results(
            *(np.ascontiguousarray(x[:, :, some]) for x in (dout, out.astype(dout.dtype), np.float32(lse)))
        )
        found = backward(plan, dq_plan, own, results)
        alone = np.zeros_like(dout)
        alone[:, :, some] = dout[:, :, some]
        operands = WHOLE, alone, call.q, call.k, call.v
        exact, plain = (f(*operands, seed=SEED) for f in (reference.backward, reference.baseline_backward))
        for name in ("dq", "dk", "dv"):
            rows = some if name == "dq" else slice(None)
            judged = reference.accuracy(
                getattr(found, name), *(getattr(item, name)[:, :, rows] for item in (plain, exact)), plan.dtype
            )
            assert judged.holds, (name, begin, judged)


def test_bits_of_other_places_are_others() -> None:
    """What the tests above would miss: a part whose bits are counted from its own first query."""
    plan = made("forward", "sm_80")
    call = part_of(Call(*qkv(plan, (1, 1, ROWS), (1, 1, ROWS)), seed=SEED), 64, 176)
    there, _ = forward(plan, call)
    moved, _ = forward(plan, replace(call, inputs={Q_PLACE: np.int32([[0, ROWS]])}))
    assert not np.allclose(there.astype(np.float32), moved.astype(np.float32), atol=0.05)
