"""Schedules for ranges of lengths, from the text to the kernel that runs a call: no result changes but by rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncc
from attncc import package, reference
from attncc.compiler import CompiledStore, Specification, specify
from attncc.ir import MAX_LENGTH
from attncc.kernels.kernel_names import kernel_name, separate_dq_name
from attncc.kernels.serving import at_length, backward_plan_for, executed_backward_plans, plan_for
from attncc.problem import Problem
from attncc.runtime.store.package_store import PackageStore
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan_check import check_plan
from attncc.schedule.plan_json import from_json, to_json
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.syntax.formatter import format_source

TEXT = """attn 1

variant mine {
    keep if q_pos >= kv_idx
}

schedule general for mine on sm_80 {
    block_kv = 32
}

schedule short for mine on sm_80 for lengths 1..48 {
    block_q  = 32
    block_kv = 16
    warps    = 2
}

schedule long for mine forward on sm_80 for lengths 65.. {
    block_kv = 64
}

schedule alone for mine decode on sm_80 for lengths 65..128 {
    block_kv = 64
}

schedule back for mine backward on sm_80 for lengths 65.. {
    block_kv = 128
}
"""
CONFIGURATION = Configuration("bf16", 16, 16)


def specification(text: str = TEXT) -> Specification:
    return specify(load(SourceFile("mine.attn", text)), "mine")


def problem(q_len: int, kv_len: int) -> Problem:
    return Problem(1, 2, 2, q_len, kv_len, 16, 16)


def test_the_text() -> None:
    found = [(item.name, item.pass_name, item.lengths) for item in specification().schedules]
    assert found == [
        ("general", "forward", None),
        ("short", "forward", (1, 48)),
        ("long", "forward", (65, MAX_LENGTH)),
        ("alone", "decode", (65, 128)),
        ("back", "backward", (65, MAX_LENGTH)),
    ]
    assert format_source(SourceFile("mine.attn", TEXT)) == TEXT
    crowded = TEXT.replace(" for lengths 1..48 {", "   for\n lengths   1..48{")
    assert format_source(SourceFile("mine.attn", crowded)) == TEXT
    assert len(load(SourceFile("a", "attn 1\nvariant v {\ninput lengths: i32\n}")).variants) == 1  # no keyword


@pytest.mark.parametrize(
    ("kv_len", "block_kv"), [(1, 16), (48, 16), (49, 32), (64, 32), (65, 64), (10_000, 64), (MAX_LENGTH, 64)]
)
def test_which_plan_runs_a_call(kv_len: int, block_kv: int) -> None:
    plans = specification().plans(CONFIGURATION, "sm_80")
    assert plan_for(plans, problem(200, kv_len)).block_kv == block_kv
    assert {plan.pass_name for plan in at_length(plans, problem(200, kv_len))} == {"forward", "decode"}


def test_decode_and_backward() -> None:
    plans = specification().plans(CONFIGURATION, "sm_80")
    assert [plan_for(plans, problem(1, keys)).lengths for keys in (64, 100, 129)] == [None, (65, 128), None]
    assert all(plan_for(plans, problem(1, keys)).pass_name == "decode" for keys in (64, 100, 129))
    found = [item.first for item in specification().backward_candidates(CONFIGURATION, "sm_80")]
    assert [plan.lengths for plan in found] == [None, None, (65, MAX_LENGTH)]
    assert backward_plan_for(found, problem(9, 64)) is found[0]
    assert backward_plan_for(found, problem(9, 65)) is found[2]
    assert executed_backward_plans(found, problem(9, 65)) == (found[2], found[1])
    assert separate_dq_name(found[2]) == kernel_name(found[1])


def test_schedules_of_sm_90_serve_sm_90a() -> None:
    text = TEXT.replace("sm_80", "sm_90")
    found = specification(text).plans(CONFIGURATION, "sm_90a")
    assert [plan.lengths for plan in found if plan.pass_name == "forward"] == [None, (1, 48), (65, MAX_LENGTH)]
    own = text + "\nschedule own for mine on sm_90a for lengths 5..6 {\n    stages = 2\n}\n"
    found = specification(own).plans(CONFIGURATION, "sm_90a")
    assert [plan.lengths for plan in found if plan.pass_name == "forward"] == [None, (5, 6)]


def test_plans_go_to_json_and_back() -> None:
    general, *_, long = specification().plans(CONFIGURATION, "sm_80")[:4]
    told = json.loads(json.dumps(to_json(long)))
    assert from_json(told) == long and long.lengths is not None
    assert told["lengths"] == list(long.lengths) and "lengths" not in to_json(general)
    assert from_json(to_json(general)) == general
    for bad in ([5, 4], [0, 9], [1, MAX_LENGTH + 1], [1], ["1", "2"], 7):
        with pytest.raises(ValueError, match="lengths"):
            check_plan(from_json({**told, "lengths": bad}))
    with pytest.raises(ValueError, match="has the fields"):
        from_json({name: value for name, value in told.items() if name != "paged"})


def arrays(q_len: int, kv_len: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(q_len + kv_len)
    return tuple(rng.standard_normal((1, 2, rows, 16), np.float32) for rows in (q_len, kv_len, kv_len))


@pytest.mark.parametrize("kv_len", [40, 64, 90])
def test_calls_on_the_cpu(kv_len: int) -> None:
    """Forward and backward: what runs differs by length, what comes out doesn't."""
    kernel = attncc.compile(TEXT, dtype="fp32", head_dim=16)
    q, k, v = arrays(50, kv_len)
    out, lse = kernel(q, k, v, return_lse=True)
    expected, expected_lse = reference.forward(kernel.variant, q, k, v)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    np.testing.assert_allclose(lse, expected_lse, atol=1e-5)
    dout = np.random.default_rng(0).standard_normal(out.shape, np.float32)
    found = kernel.backward(dout, q, k, v, out, lse)
    true = reference.backward(kernel.variant, dout, q, k, v)
    for ours, exact in ((found.dq, true.dq), (found.dk, true.dk), (found.dv, true.dv)):
        np.testing.assert_allclose(ours, exact, atol=1e-4)


@pytest.mark.slow
def test_packages_carry_the_kernels(tmp_path: Path) -> None:
    """Compiled for real: the names, the machine code of each, and the plans in the order that calls choose among."""
    (tmp_path / "mine.attn").write_text(TEXT)
    packages = package.prepare(
        tmp_path / "mine.attn", archs=("sm_80",), dtypes=("bf16",), head_dims=(16,), decode=True, backward=True
    )
    package.write(packages, tmp_path / "built")
    store = PackageStore(tmp_path / "built" / "mine")
    (configuration,) = store.configurations
    compiled = CompiledStore(specification(), configuration, ("sm_80",))
    for ours, theirs in (
        (store.plans(configuration, "sm_80"), compiled.plans(configuration, "sm_80")),
        (store.backward_plans(configuration, "sm_80"), compiled.backward_plans(configuration, "sm_80")),
    ):
        assert {kernel_name(plan): plan for plan in ours} == {kernel_name(plan): plan for plan in theirs}
        for keys in (10, 50, 64, 65, 128, 129):
            assert at_length(ours, problem(9, keys)) == at_length(theirs, problem(9, keys))
        assert set(store.machine_codes(ours)) == set(compiled.machine_codes(theirs))
    assert "mine_forward_bf16_d16_k1to48_sm_80" in store.machine_codes(store.plans(configuration, "sm_80"))
    q, k, v = (array.astype("bfloat16") for array in arrays(9, 70))
    assert attncc.compile(TEXT, dtype="bf16", head_dim=16)(q, k, v).shape == q.shape
