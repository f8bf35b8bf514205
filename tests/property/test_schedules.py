"""A schedule never changes a result: the executor gives what the reference does, under any tiles, loop and splits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncc import executor, reference, resources, synthetic
from attncc.analysis.mask.tiles import analyse
from attncc.ir import Variant
from attncc.problem import Problem
from attncc.schedule.plan import KernelPlan
from attncc.semantics.load import load
from attncc.source import SourceFile

pytestmark = pytest.mark.slow

SPECS = sorted(resources.folder("specs").glob("*.attn"))


@cache
def variants() -> tuple[Variant, ...]:
    return tuple(variant for path in SPECS for variant in load(SourceFile.read(path)).variants)


@st.composite
def plans(draw: st.DrawFn) -> KernelPlan:
    variant = variants()[draw(st.integers(0, len(variants()) - 1))]
    block_q, block_kv = draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([16, 48, 64]))
    loop = draw(st.sampled_from(["q_outer", "q_outer", "kv_outer"]))
    splits, skip = draw(st.sampled_from([1, 1, 2, 3, 7])), draw(st.sampled_from(["auto", "never"]))
    return KernelPlan(
        variant, analyse(variant, block_q, block_kv), "forward", "sm_80", "fp64", 16, 24, family="portable", loop=loop,
        block_q=block_q, block_kv=block_kv, warps=1, stages=1, split_kv=splits, skip=skip,
    )  # fmt: skip


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    heads = draw(st.sampled_from([(1, 1), (4, 4), (6, 2), (5, 1)]))
    batch, q_len, kv_len = draw(st.integers(1, 3)), draw(st.integers(0, 130)), draw(st.integers(0, 150))
    layout, packed = draw(st.sampled_from(["bhsd", "bshd"])), draw(st.booleans())
    problem = Problem(batch, *heads, q_len, kv_len, 16, 24, layout, packed)
    if not packed:
        return problem
    cuts = st.lists(st.integers(0, 1000), min_size=batch - 1, max_size=batch - 1).map(sorted)
    q_starts, kv_starts = ((0, *(length * cut // 1000 for cut in draw(cuts)), length) for length in (q_len, kv_len))
    return problem.with_starts(q_starts, kv_starts)


@st.composite
def backward_plans(draw: st.DrawFn) -> tuple[KernelPlan, KernelPlan]:
    """Of blocks that own keys, and of blocks that own rows, of one variant."""
    variant = variants()[draw(st.integers(0, len(variants()) - 1))]
    skip = draw(st.sampled_from(["auto", "never"]))

    def plan(pass_name: str, loop: str, inner: str) -> KernelPlan:
        block_q, block_kv = draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([16, 48, 64]))
        return KernelPlan(
            variant, analyse(variant, block_q, block_kv, inner=inner), pass_name, "sm_80", "fp64", 16, 24,
            family="portable", loop=loop, block_q=block_q, block_kv=block_kv, warps=1, stages=1, split_kv=1, skip=skip,
        )  # fmt: skip

    return plan("backward", "kv_outer", "q"), plan("backward_dq", "q_outer", "kv")


@settings(max_examples=60, deadline=None)
@given(plan=plans(), problem=problems(), seed=st.integers(0, 2**32))
def test_the_executor_agrees_with_the_reference(plan: KernelPlan, problem: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = synthetic.qkv(problem, "fp64", rng)
    call = {"layout": problem.layout, "seed": seed, **synthetic.inputs(plan.variant, problem, rng)}
    if seed % 3 == 0:  # sorted hints that are false
        for item in plan.variant.inputs:
            if item.nondecreasing:
                call[item.name] = rng.permuted(call[item.name], axis=-1)
    if problem.packed:
        starts = (np.array(own, np.int32) for own in (problem.q_starts, problem.kv_starts))
        call |= dict(zip(("cu_seqlens_q", "cu_seqlens_kv"), starts, strict=True))
    result = executor.run(plan, *arrays, **call)
    out, lse = reference.forward(plan.variant, *arrays, **call)
    np.testing.assert_allclose(result.out, out, rtol=1e-8, atol=1e-11)
    if lse is not None:
        np.testing.assert_allclose(result.lse, lse, rtol=1e-10, atol=1e-11)


@settings(max_examples=60, deadline=None)
@given(plans=backward_plans(), problem=problems(), seed=st.integers(0, 2**32))
def test_gradients_agree_with_the_reference(plans: tuple[KernelPlan, KernelPlan], problem: Problem, seed: int) -> None:
    rng, variant = np.random.default_rng(seed), plans[0].variant
    arrays = synthetic.qkv(problem, "fp64", rng)
    call = {"layout": problem.layout, "seed": seed, **synthetic.inputs(variant, problem, rng)}
    if problem.packed:
        call |= {"cu_seqlens_q": np.array(problem.q_starts, np.int32)}
        call |= {"cu_seqlens_kv": np.array(problem.kv_starts, np.int32)}
    out, lse = reference.forward(variant, *arrays, **call)
    dout, dlse = rng.standard_normal(out.shape), None if lse is None else rng.standard_normal(lse.shape)
    results = {"out": out, "lse": lse, "dlse": dlse, "deterministic": bool(seed % 2)}
    found = executor.run_backward(plans, dout, *arrays, **results, **call).gradients
    exact = reference.backward(variant, dout, *arrays, dlse=dlse, **call)
    for name in ("dq", "dk", "dv"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-8, atol=1e-9, err_msg=name)
    for name, value in exact.inputs.items():
        np.testing.assert_allclose(found.inputs[name], value, rtol=1e-4, atol=1e-4, err_msg=name)
