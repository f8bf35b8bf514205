"""The call that is held against fp64 runs the kernel of the timed one."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from attncc.compiler import load_specification
from attncc.problem import Problem
from attncc.resources import folder
from attncc.runtime.call.persistent import clusters, key_clusters, own_backward_kernels
from attncc.schedule.plan import Build, KernelPlan
from attncc.tune.candidates import TunedKernel
from attncc.tune.small_call import small_problem

RESIDENT = 132


@cache
def plan(spec: str, pass_name: str, head_dim: int = 128) -> KernelPlan:
    specification, _ = load_specification(folder("specs") / f"{spec}.attn", None, {})
    return TunedKernel(specification, Build(pass_name, "sm_90a", "bf16", head_dim, head_dim)).candidates(None).first


def problem(q_len: int, kv_len: int, group: int = 1, head_dim: int = 128) -> Problem:
    return Problem(4, 4 * group, 4, q_len, kv_len, head_dim, head_dim)


@pytest.mark.parametrize("spec", ["full", "causal", "sliding_window"])
def test_backward(spec: str) -> None:
    of, formed = plan(spec, "backward"), set[bool]()
    lengths = ((512, 512), (1500, 1400), (2500, 2560), (4096, 4096), (8192, 8100), (8192, 1000))
    for sizes, group, ordered in product(lengths, (1, 4, 16), (False, True)):
        timed = problem(*sizes, group)
        small = small_problem(timed, of, RESIDENT, ordered=ordered)
        assert small.q_len * small.kv_len <= 2**20 and small.group == group
        assert small.q_len % of.block_q and small.kv_len % of.block_kv
        for rule in (key_clusters, own_backward_kernels):
            assert rule(of, small, RESIDENT, ordered=ordered) == rule(of, timed, RESIDENT, ordered=ordered)
        formed.add(key_clusters(of, small, RESIDENT, ordered=ordered))
    assert formed == ({False} if spec == "sliding_window" else {False, True})


def test_forward() -> None:
    of, formed = plan("full", "forward"), set[bool]()
    for sizes, group in product(((512, 512), (2048, 2048), (4096, 4096), (1000, 4096), (64, 4096)), (1, 3, 8)):
        timed = problem(*sizes, group)
        small = small_problem(timed, of, RESIDENT, ordered=False)
        assert small.q_len * small.kv_len <= 2**20
        assert clusters(of, small, RESIDENT) == clusters(of, timed, RESIDENT)
        formed.add(clusters(of, small, RESIDENT))
    assert formed == {False, True}


def test_others_have_the_usual_sizes() -> None:
    for of in (None, plan("causal", "forward"), plan("causal", "backward", 64)):
        small = small_problem(problem(4096, 4096), of, RESIDENT, ordered=False)
        assert (small.batch, small.num_heads, small.q_len, small.kv_len) == (2, 1, 330, 330)
