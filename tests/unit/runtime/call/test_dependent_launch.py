"""Launches that may begin before the kernel ahead is over (programmatic dependent launch): those whose kernels wait for
it, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from attncc.codegen.render import render, render_helper
from attncc.ir import Variant
from attncc.kernels.candidates import make_candidates
from attncc.kernels.kernel_names import kernel_name
from attncc.kernels.launched import helper_kernels
from attncc.runtime.cuda.nvrtc import compile_to_ptx
from attncc.schedule.plan import Build, KernelPlan
from attncc.schedule.plan_json import from_json, to_json
from attncc.schedule.target import TARGETS
from tests import plans
from tests.unit.runtime.conftest import Bench, MakeBench
from tests.unit.runtime.fakes import FakeArray

WAIT, LET_BEGIN = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
HEADS, KV_HEADS, KV_LEN, PAGE = 8, 2, 700, 16


def first(
    pass_name: str, target: str, variant: Variant = plans.FULL, dims: tuple[int, int] = (64, 64), **given: Any
) -> Any:
    return make_candidates(variant, Build(pass_name, target, "bf16", *dims, **given)).first


def array(*shape: int, dtype: str = "bfloat16") -> FakeArray:
    return FakeArray(shape, dtype)


def call(made: Bench, plan: KernelPlan, q_len: int, **given: Any) -> None:
    rows = (40, KV_HEADS, PAGE) if plan.paged else (2, KV_HEADS, KV_LEN)
    q, k, v = array(2, HEADS, q_len, plan.head_dim), array(*rows, plan.head_dim), array(*rows, plan.value_head_dim)
    made.kernel(q, k, v, **given)


def text(launched: str, made_of: tuple[KernelPlan, ...]) -> str:
    """The kernel of that name."""
    for plan in made_of:
        if kernel_name(plan) == launched:
            return render(plan).text
        for helper in helper_kernels(plan):
            if helper.name == launched:
                return render_helper(helper).text
    raise AssertionError(launched)


def check_launches(made: Bench, *made_of: KernelPlan) -> list[bool]:
    """Whether each launch began early: where its kernel waits."""
    found = [launch.early for launch in made.cuda.launches]
    assert found == [WAIT in text(launch.kernel, made_of) for launch in made.cuda.launches]
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_decode_begins_early(bench: MakeBench, target: str) -> None:
    """Where the target says so; else its text knows nothing of it."""
    forward, decode = first("forward", target), first("decode", target)
    early = TARGETS[target].dependent_launch
    made = bench(forward, decode, capability=TARGETS[target].capability)
    call(made, decode, 1)
    assert check_launches(made, forward, decode) == [early]
    source = render(decode).text
    assert source.count(WAIT) == source.count(LET_BEGIN) == int(early)
    assert ("await" in source) == early


def test_plans_of_packages_that_were_built_before(bench: MakeBench) -> None:
    """Their machine code doesn't wait, and they don't say that it does."""
    forward, decode = first("forward", "sm_90a"), first("decode", "sm_90a")
    told = to_json(decode)
    assert told.pop("begins_early") is True and "begins_early" not in to_json(forward)
    before = from_json(told)
    made = bench(forward, before)
    call(made, before, 1)
    assert check_launches(made, forward, before) == [False]


def test_only_hopper_begins_early() -> None:
    assert {name for name, target in TARGETS.items() if target.dependent_launch} == {"sm_90", "sm_90a"}


@pytest.mark.parametrize("variant", [plans.DOCUMENTS, plans.ALIBI, plans.DROPOUT])
def test_inputs_are_what_nobody_writes_meanwhile(bench: MakeBench, variant: Variant) -> None:
    """Their loads may go anywhere in a kernel. So do those of seeds."""
    forward, decode = first("forward", "sm_90", variant), first("decode", "sm_90", variant)
    made = bench(forward, decode)
    given = plans.arguments(variant, 2, HEADS, KV_LEN)
    arrays = {name: array(*item.shape, dtype=str(item.dtype)) for name, item in given.items() if hasattr(item, "shape")}
    call(made, decode, 1, **given | arrays)
    assert not any(check_launches(made, forward, decode))


@pytest.mark.slow
def test_nothing_takes_the_read_only_path() -> None:
    """Lengths, tables and scales don't, though leaf files ask for it. Ahead of the last wait only lengths are read."""
    for plan in (first("decode", "sm_90a", plans.CAUSAL), first("decode", "sm_90a", paged=True, kv_dtype="int8")):
        source = render(plan)
        ptx = compile_to_ptx(source.text, plan.target, source.name)
        assert ptx.count(WAIT) == ptx.count(LET_BEGIN) >= 2
        assert "ld.global.nc" not in ptx and "ld.global" in ptx
        assert "cp.async.cg" not in ptx[: ptx.rindex(WAIT)]


def test_of_pages(bench: MakeBench) -> None:
    forward, decode = (first(name, "sm_90a", paged=True) for name in ("forward", "decode"))
    made = bench(forward, decode)
    call(made, decode, 1, kv_lens=array(2, dtype="int32"), block_table=array(2, 20, dtype="int32"))
    assert check_launches(made, forward, decode)[-1]


@pytest.mark.parametrize(("q_len", "dims"), [(3000, (64, 64)), (1, (512, 512)), (40, (576, 512))])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_other_families_wait_for_the_kernel_ahead(
    bench: MakeBench, target: str, q_len: int, dims: tuple[int, int]
) -> None:
    """Portable, Hopper's and wide ones."""
    both = first("forward", target, dims=dims), first("decode", target, dims=dims)
    made = bench(*both, capability=TARGETS[target].capability)
    call(made, both[0], q_len)
    assert not any(check_launches(made, *both))
    assert all(LET_BEGIN not in text(launch.kernel, both) for launch in made.cuda.launches)


def test_combines_of_the_kernel_that_splits_keys(bench: MakeBench) -> None:
    """They begin when all blocks of that have begun, and wait for it."""
    forward, split = first("forward", "sm_90a"), first("forward", "sm_90a", split=True)
    made = bench(forward, split)
    keys = array(1, KV_HEADS, 8192, 64)
    made.kernel(array(1, HEADS, 60, 64), keys, keys)
    assert check_launches(made, split) == [False, True]
    kernel, combine = (text(launch.kernel, (split,)) for launch in made.cuda.launches)
    assert kernel.count(LET_BEGIN) == 1 and WAIT not in kernel
    assert combine.count(WAIT) == 1 and LET_BEGIN not in combine
    assert LET_BEGIN not in render(forward).text


@pytest.mark.parametrize("shape", [(0, HEADS, 1), (2, HEADS, 0)])
def test_a_launch_without_rows(bench: MakeBench, shape: tuple[int, int, int]) -> None:
    """None of its blocks would wait: whoever waits for it would not wait for what is ahead of it."""
    forward, decode = first("forward", "sm_90a"), first("decode", "sm_90a")
    made = bench(forward, decode)
    k = array(shape[0], KV_HEADS, KV_LEN, 64)
    made.kernel(array(*shape, 64), k, k)
    assert not made.cuda.launches
