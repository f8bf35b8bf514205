"""Every mask gets its plans: nothing that chooses among them asks for pairs that a mask may not keep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncc.analysis.tiles_2d import fixed
from attncc.compiler import Specification
from attncc.kernels.crossings import Chip
from attncc.kernels.live_tiles import most_tiles
from attncc.kernels.serving import plan_for
from attncc.problem import Problem
from attncc.runtime.store.store import Configuration
from attncc.semantics.load import load
from attncc.source import SourceFile

POSITIONS = ("q_pos", "kv_idx", "q_idx", "q_pos - kv_idx", "q_pos + h", "kv_idx + b")
CALL = ("h", "b", "kv_h", "num_heads", "num_heads * num_kv_heads", "q_len", "kv_len - q_len", "h // num_kv_heads")
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 7, 64, 1000, 1 << 20])


@pytest.fixture(scope="module", autouse=True)
def small_sample() -> Iterator[None]:
    """Few tiles are enough to see whether anything fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed, "_Q_TILES", 4)
        yield


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """Of positions by blocks or remainders, or of what a call is."""
    position, divisor = st.sampled_from(POSITIONS), draw(st.sampled_from([2, 3, 4, 6, 16, 64]))
    operator, compared = draw(st.sampled_from(["//", "%"])), draw(st.sampled_from(["==", "!=", "<", ">="]))
    by = f"{operator} {divisor} {compared}"
    return draw(
        st.one_of(
            st.builds(lambda one, other: f"({one}) {by} ({other}) {operator} {divisor}", position, position),
            st.builds(lambda one, number: f"({one}) {by} {number}", position, NUMBERS),
            st.builds(lambda what, number: f"{what} {compared} {number}", st.sampled_from(CALL), NUMBERS),
            st.builds(lambda what, number: f"({what}) {by} {number}", st.sampled_from(CALL), NUMBERS),
            st.just(f"scale {'>=' if compared == '==' else '<'} 0.2"),
        )
    )


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(conditions(), min_size=1, max_size=3), min_size=1, max_size=2), st.booleans(), st.data())
def test_planning_never_fails(lines: list[list[str]], hopper: bool, data: st.DataObject) -> None:
    body = "".join(f"    keep if {' and '.join(line)}\n" for line in lines)
    variant = load(SourceFile("drawn.attn", f"attn 1\nvariant drawn {{\n{body}}}\n")).variants[0]
    specification, configuration = Specification(variant, ()), Configuration("bf16", 64, 64)
    target = "sm_90a" if hopper else "sm_90"
    forward = specification.candidates(configuration, target)
    q_len, kv_len = (data.draw(st.sampled_from([0, 1, 100, 4096])) for _ in range(2))
    problem = Problem(2, data.draw(st.sampled_from([4, 2, 0])), 2, q_len, kv_len, 64, 64)
    assert plan_for([candidates.first for candidates in forward], problem, Chip(132))
    for plan in (candidates.first for candidates in forward):
        assert 0 <= most_tiles(plan, problem) <= -(-kv_len // plan.block_kv)
    assert all(candidates.first for candidates in specification.backward_candidates(configuration, target))
