"""The e4m3 kernels on an emulated GPU: V's way through shared memory, maxima that stay or move, descales."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attncc import api, reference
from attncc.analysis.grid_2d import Grid2D
from attncc.analysis.mask.tiles import analyse_tiles_2d
from attncc.codegen.render import KernelSource
from attncc.descales import with_descales
from attncc.kernels.candidates import make_plan
from attncc.kernels.hopper_forward.facts import HopperForward
from attncc.reference.accuracy import accuracy
from attncc.schedule.plan import KernelPlan
from attncc.schedule.schedule import Schedule
from tests.emulator import attention, kernel
from tests.emulator.attention import Call, forward
from tests.emulator.sources import rendered
from tests.unit.templates.test_emulated_kernels import CAUSAL, NEIGHBOURHOOD, SCATTERED, qkv

pytestmark = pytest.mark.skipif(kernel.COMPILER is None, reason="needs g++")

FULL = "attn 1\nvariant full {\n}\n"
SOFTCAP = """attn 1
variant softcap {
    input logit: f32[head]
    keep if q_pos >= kv_idx
    score = 5 * tanh(score / 5)
    sink logit
}
"""

Array = NDArray[Any]


def plan_of(text: str, head_dims: tuple[int, int], **settings: Any) -> KernelPlan:
    """With small tiles, of one consumer warpgroup."""
    variant = with_descales(api.parse(text).variant)
    chosen = {"block_q": 64, "block_kv": 32, "stages": 2, **settings}
    schedule = Schedule("s", variant.name, "forward", "sm_90a", tuple((name, (x,)) for name, x in chosen.items()))
    dims = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
    return make_plan(variant, dtype="e4m3", target="sm_90a", schedule=schedule, **dims)


def check(plan: KernelPlan, call: Call) -> None:
    """By the accuracy rule, against a baseline whose P alone is rounded; lse as if nothing were."""
    out, lse = forward(plan, call)
    given = call.arguments()
    expected, expected_lse = reference.forward(plan.variant, call.q, call.k, call.v, **given)
    plain, _ = reference.baseline(plan.variant, call.q, call.k, call.v, **given)
    found = accuracy(out, plain, expected, "e4m3")
    assert found.holds, found
    np.testing.assert_allclose(lse, expected_lse, atol=1e-5, rtol=1e-6)


def descales(batch: int, kv_heads: int, *names: str) -> dict[str, Array]:
    rng = np.random.default_rng(2)
    return {f"{name}_descale": rng.uniform(0.3, 2, (batch, kv_heads)).astype(np.float32) for name in names}


@pytest.mark.parametrize("text", [FULL, CAUSAL])
def test_caches(text: str) -> None:
    """Rows behind the last key of a sequence are no numbers."""
    plan = plan_of(text, (64, 64))
    q, k, v = qkv(plan, (3, 2, 70), (3, 1, 200))
    lengths = np.int32([200, 77, 3])
    for b, length in enumerate(lengths):
        k[b, :, length:] = v[b, :, length:] = np.nan
    check(plan, Call(q, k, v, kv_lens=lengths))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head_dims", "settings"),
    [
        ((64, 64), {}),
        ((128, 128), {"block_kv": 160}),  # more than a panel of transposed keys
        ((256, 256), {"block_q": 128, "block_kv": 64, "stages": 3}),
        ((256, 256), {"block_q": 128, "block_kv": 128}),  # one warp takes work tiles, plans them and loads Q
        ((80, 48), {"stages": 1}),  # a step of Q K^T that is half zeros
        ((64, 64), {"block_q": 256, "block_kv": 64}),  # half of Q in registers
    ],
)
@pytest.mark.parametrize("ahead", [False, True])
def test_head_dims_and_tiles(head_dims: tuple[int, int], settings: dict[str, Any], ahead: bool) -> None:
    plan = plan_of(CAUSAL, head_dims, **settings)
    check(plan, Call(*qkv(plan, (2, 2, 130), (2, 1, 170)), inputs=descales(2, 1, "q", "v"), ahead=ahead))


@pytest.mark.parametrize("ahead", [False, True])
def test_a_producer_with_few_registers(ahead: bool) -> None:
    """Sequences that end within a tile, one without keys; P rounded early."""
    plan = plan_of(FULL, (256, 256), block_q=128, block_kv=128)
    facts = HopperForward(plan)
    assert (facts.producer_registers, facts.plans_ahead, facts.rounds_early) == (24, True, True)
    cu = np.int32([0, 3, 140, 200, 220]), np.int32([0, 300, 300, 428, 450])
    check(plan, Call(*qkv(plan, (1, 220), (1, 450)), cu=cu, ahead=ahead))


def test_blocks_load_keys_and_values_for_each_other() -> None:
    """A panel of keys by one of them, or one by each; half of the values by each."""
    for head_dim in (128, 256):
        plan = plan_of(FULL, (head_dim, head_dim))
        check(plan, Call(*qkv(plan, (1, 2, 150), (1, 1, 100)), ahead=True, paired=True))


@pytest.mark.parametrize("ahead", [False, True])
def test_packed_batches_split_and_combined(ahead: bool) -> None:
    """What stands behind the last key of a sequence is its neighbour's, here NaN."""
    plan = plan_of(CAUSAL, (64, 64), split_kv=2)
    cu = np.int32([0, 3, 3, 70, 90, 91]), np.int32([0, 5, 12, 92, 92, 150])
    q, k, v = qkv(plan, (2, 91), (1, 160))
    v[:, 150:] = np.nan
    check(plan, Call(q, k, v, splits=2, cu=cu, inputs=descales(5, 1, "q", "k", "v"), ahead=ahead))


@pytest.mark.parametrize("ahead", [False, True])
def test_packed_batches_whose_tiles_are_counted(ahead: bool) -> None:
    """Without a mask; one sequence has no keys, others end within a tile or with one."""
    plan = plan_of(FULL, (64, 64))
    cu = np.int32([0, 3, 8, 70, 90, 91]), np.int32([0, 5, 5, 101, 133, 150])
    check(plan, Call(*qkv(plan, (2, 91), (1, 150)), cu=cu, ahead=ahead))


def test_score_lines_a_sink_and_a_negative_scale() -> None:
    plan = plan_of(SOFTCAP, (64, 64))
    call = Call(*qkv(plan, (1, 2, 70), (1, 2, 100)), scale=-0.3, inputs={"logit": np.float32([1, -2])})
    check(plan, call)


@pytest.mark.parametrize(
    "lines",
    [
        "score = score / scale",  # pair by pair, and in the form of whole tiles, where |scale| must not cancel
        "score = score / abs(scale) + scale * h",
        "let own = score * scale\nscore = 4 * tanh(own / scale / 4)",
        "keep if kv_idx < 1000 * scale\nscore = scale * tanh(score) + scale * sin(q_idx / 3)",
    ],
)
@pytest.mark.parametrize("scale", [None, -0.07])
def test_lines_read_the_scale_without_descales(lines: str, scale: float | None) -> None:
    """As the reference does, to which q and k are what they stand for."""
    plan = plan_of(f"attn 1\nvariant v {{\n{lines}\n}}\n", (64, 64))
    check(plan, Call(*qkv(plan, (2, 2, 70), (2, 1, 150)), scale=scale, inputs=descales(2, 1, "q", "k", "v")))


@pytest.mark.slow
def test_scattered_tiles() -> None:
    plan = plan_of(SCATTERED, (64, 64), skip="lists")
    wanted = np.random.default_rng(6).random((1, 3, 200)) < 0.03
    check(plan, Call(*qkv(plan, (1, 1, 70), (1, 1, 3200)), inputs={"wanted": wanted}))


@pytest.mark.parametrize("ahead", [False, True])
def test_tiles_2d(ahead: bool) -> None:
    grid_2d = Grid2D(24, 8, 8)
    plan = plan_of(NEIGHBOURHOOD, (64, 64), block_kv=64)
    rules = analyse_tiles_2d(plan.variant, 64, 64, grid_2d)
    plan = replace(plan, pass_name="patches", grid_2d=grid_2d, rules=rules)
    check(plan, Call(*qkv(plan, (1, 1, 24 * 12), (1, 1, 24 * 12)), ahead=ahead))


def test_maxima_move_where_e4m3_would_end() -> None:
    """The scores of a row are all equal, or grow from tile to tile, some beyond any that e4m3 could hold."""
    plan = plan_of(FULL, (64, 64))
    q, k, v = qkv(plan, (1, 3, 64), (1, 3, 320))
    q[:, 0] = 0
    k[:, 1, 100], k[:, 1, 200] = q[0, 1, 5], q[0, 1, 5] * np.float32(8).astype(q.dtype)
    k[:, 2] = np.sort(k[:, 2].astype(np.float32), axis=1).astype(k.dtype)
    check(plan, Call(q, k, v, scale=0.5))


def test_a_key_that_outweighs_all_others() -> None:
    """It comes when there are maxima, and by how much it exceeds them differs from row to row: rounded, its weight
    would be another in the output than in the sum."""
    plan = plan_of(FULL, (64, 64))
    q, k, v = qkv(plan, (1, 1, 64), (1, 1, 320))
    k[:, :, 100] = (k[:, :, 100].astype(np.float32) * 20).astype(k.dtype)
    check(plan, Call(q, k, v))


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
def test_warpgroups_without_rows(ahead: bool) -> None:
    """Last blocks of 58 and of 128 rows, for one and two warpgroups of three; thread blocks claim them one by one."""
    plan = plan_of(FULL, (64, 64), block_q=192)
    for rows in (250, 320):
        check(plan, Call(*qkv(plan, (1, 3, rows), (1, 3, 200)), ahead=ahead))


def test_normal_scores_move_no_maxima(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first tile leave room for sums of others, or warps would lower theirs in most tiles of a block."""
    moved = "if (!max_still_valid(__int_as_float(0x7f7fffff))) return false;"
    lost = "each_row([&](int m, int r) { offset[m][r] = -NEGATIVE_INFINITY; });"

    def losing_what_moves(plan: KernelPlan) -> KernelSource:
        source = rendered(plan)
        assert moved in source.text
        return replace(source, text=source.text.replace(moved, lost))

    monkeypatch.setattr(attention, "rendered", losing_what_moves)
    plan = plan_of(FULL, (64, 64), block_kv=128)
    check(plan, Call(*qkv(plan, (1, 1, 64), (1, 1, 1024))))
