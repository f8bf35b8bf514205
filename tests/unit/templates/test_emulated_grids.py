"""Random masks of rows and columns in tiles of two dimensions, on an emulated GPU: what legality lets pass is right."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from attncc import reference
from attncc.ir import Variant
from attncc.problem import Problem
from attncc.schedule.plan import KernelPlan
from tests.emulator import kernel
from tests.emulator.attention import Call, forward
from tests.emulator.backward import Results, backward
from tests.printed import variant
from tests.random_variants.calls import RandomCall, random_call
from tests.random_variants.grids import WIDTHS, plans, random_lines
from tests.random_variants.judgement import backward_faults, forward_faults

pytestmark = [pytest.mark.slow, pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")]

MOST_ROWS = {8: 14, 24: 7}  # of a 2-D grid, by its width


D = "    let dy = q_idx // 8 - kv_idx // 8\n    let dx = q_idx % 8 - kv_idx % 8\n"
JOINED = {
    "lozenge": f"{D}    keep if abs(dx) + 2 * abs(dy) <= 5",
    "disc": f"{D}    keep if dx * dx + dy * dy <= 10",
    "torus": f"{D}    keep if min(dx % 8, -dx % 8) <= 1\n    keep if (dy + 1) % 6 <= 2",
    "bits": f"{D}    keep if ((q_idx ^ kv_idx) & 20) == 0\n    keep if ((dy | dx) & 1) == 0",
    "steps": f"{D}    keep if any(dy == 2 * i - 4 for i in range(5))\n    keep if abs(dx) <= 2",
}  # fmt: skip


def drawn(seed: int) -> tuple[Random, int, Variant, Problem]:
    """Lengths differ, so that some queries see no key."""
    random = Random(seed)
    width = random.choice(WIDTHS)
    mask = variant(random_lines(random, width))
    q_len, kv_len = (width * random.randrange(1, MOST_ROWS[width] + 1) for _ in range(2))
    return random, width, mask, Problem(1, 2, 1, q_len, kv_len, 16, 16)


def faults(plan: KernelPlan, given: RandomCall) -> list[str]:
    call = Call(given.q, given.k, given.v, scale=given.scale)
    if not plan.is_backward:
        return list(forward_faults(plan.variant, given, *forward(plan, call), plan.dtype))
    out, lse = reference.forward(plan.variant, given.q, given.k, given.v, scale=given.scale)
    assert lse is not None
    results = Results(given.dout, out.astype(given.q.dtype), lse.astype(np.float32), given.dlse)
    return list(backward_faults(plan.variant, given, backward(plan, None, call, results), plan.dtype))


@pytest.mark.parametrize(("seed", "of_backward"), [*((seed, False) for seed in range(6)), (0, True), (1, True)])
def test_random_masks(seed: int, of_backward: bool) -> None:
    random, width, mask, problem = drawn(seed)
    for plan in plans(mask, random, width, backward=of_backward):
        found = faults(plan, random_call(mask, problem, plan.dtype, seed))
        assert not found, (plan.tiles, plan.grid_2d, problem, mask.show(), found)


@pytest.mark.parametrize("name", JOINED)
def test_masks_whose_comparisons_say_more_together(name: str) -> None:
    mask, problem = variant(JOINED[name]), Problem(1, 2, 1, 8 * 13, 8 * 11, 16, 16)
    for of_backward in (False, True):
        for plan in plans(mask, Random(7), 8, backward=of_backward):
            found = faults(plan, random_call(mask, problem, plan.dtype, 7))
            assert not found, (plan.tiles, plan.grid_2d, mask.show(), found)
