"""Groups of heads: what is chosen for whom, and which variants allow them."""

from __future__ import annotations

import numpy as np
import pytest

import attncc
from attncc.distributed import Machine, plan
from attncc.distributed.grouping import Times
from attncc.distributed.head_groups import head_cuts, heads_apart

TEXT = """attn 1
import masks
variant tried {{
    input slope: f32[head]
    input own: f32[batch, kv_head, kv]
    input loose: f32[_]
    keep if causal()
    {lines}
}}
"""


def variant_of(lines: str) -> attncc.ir.Variant:
    return attncc.parse(TEXT.format(lines=lines)).variant


@pytest.mark.filterwarnings("ignore::attncc.diagnostics.AttnccWarning")  # inputs that a case leaves out
@pytest.mark.parametrize(
    ("lines", "apart"),
    [
        ("score = score - slope[h] * (q_pos - kv_idx) + own[b, kv_h, kv_idx]", True),
        ("let far = slope[h] * kv_idx\n    score = score + far", True),
        ("score = score + loose[h]", False),
        ("score = score + h", False),
        ("let last = num_heads - 1\n    score = score * last", False),
        ("keep if h % 2 == 0 or window(20)", False),
        ("score = score + num_kv_heads", False),
        ("let unread = h + 1", True),
        ("dropout 0.1", False),
    ],
)
def test_heads_that_can_be_computed_apart(lines: str, apart: bool) -> None:
    assert heads_apart(variant_of(lines)) is apart


@pytest.mark.filterwarnings("ignore::attncc.diagnostics.AttnccWarning")
def test_axes_of_heads() -> None:
    variant = variant_of("score = score - slope[h] + own[b, kv_h, kv_idx]")
    assert dict(head_cuts(variant, packed=False)) == {"slope": 0, "own": 1}
    assert dict(head_cuts(variant, packed=True)) == {"slope": 0, "own": 0}  # packing drops the batch


def test_inputs_along_heads_twice_keep_them_together() -> None:
    text = "attn 1\nvariant twice {\ninput pair: f32[head, kv_head]\nscore = score + pair[h, kv_h]\n}\n"
    assert not heads_apart(attncc.parse(text).variant)


def times(local: float, rest: float, travel: float, launch: float = 0.0) -> Times:
    each = [np.array([value]) for value in (local, rest, travel, launch if local else 0, launch)]
    return Times(*each, launch)


def test_what_is_exposed() -> None:
    """By hand: of (1, 7) heads an eighth of the exchange, then work hides the rest."""
    some = times(0, 8, 0.8)
    assert some.forward((8,)) == pytest.approx(8.8)
    assert some.forward((1, 7)) == pytest.approx(8.1)
    assert some.backward((8,)) == pytest.approx(0.8 + 20 + 1.6)
    assert some.backward((1, 6, 1)) == pytest.approx(0.1 + 20 + 0.2)
    assert times(5, 8, 4).forward((8,)) == 13  # behind own work
    assert times(0, 1, 4).forward((1, 7)) == 4 + 7 / 8  # the links are the slowest


def test_few_groups_where_launches_cost() -> None:
    assert times(0, 8, 0.8).best(8)[0] == (1, 7)
    assert times(0, 8, 0.8, 0.1).best(8)[0] == (1, 7)
    assert times(0, 8, 0.8, 1).best(8)[0] == (8,)
    assert times(5, 8, 0.8).best(8)[0] == (8,)
    assert times(0, 8, 0).best(8)[0] == (8,)
    assert times(0, 8, 0.8).best(1)[0] == (1,)


def test_plans_say_what_they_hide() -> None:
    made = plan(attncc.parse("causal"), 32768, ranks=2, heads=(32, 8), head_dim=128)
    (mask,) = made.masks
    assert sum(mask.groups) == sum(mask.groups_back) == 8 and mask.groups[0] == 1
    assert mask.slowest < mask.exposed < mask.at_once
    assert f"{', '.join(map(str, mask.groups))} heads of k travel one after the other" in made.explain()
    alone = plan(attncc.parse("dropout_attention"), 32768, ranks=2, heads=(32, 8), head_dim=128)
    assert alone.masks[0].groups == (1,) and "all heads of k travel together" in alone.explain()


def test_few_launches_are_worth_more_than_a_little_work() -> None:
    """The largest chunk first would balance a window best, scattered over both ranks."""
    made = plan(attncc.parse("sliding_window", width=4096), 16384, ranks=2, heads=(32, 8), head_dim=128)
    assert made.tried[0].name != "heap"
    runs = [np.count_nonzero(np.diff(made.chunks_of(rank)) != 1) + 1 for rank in range(2)]
    assert max(runs) <= 3
    free = plan(attncc.parse("sliding_window", width=4096), 16384, ranks=2, heads=(32, 8), machine=Machine(2, launch=0))
    assert free.masks[0].exposed <= made.masks[0].exposed


def test_passes_choose_on_their_own_whether_local_chunks_go_first() -> None:
    """Each backward launch counts as six: those of documents may hide less than that."""
    lengths = [2 * length for length in (3466, 2543, 6428, 3380, 1567, 4600, 10784)]
    made = plan(attncc.parse("causal"), lengths, ranks=2, heads=(32, 8), head_dim=128, batch=None)
    (mask,) = made.masks
    assert mask.local_first and not mask.local_first_back
    early, early_back = ([made.local_rows(rank, mask, back=back).any() for rank in range(2)] for back in (False, True))
    assert any(early) and not any(early_back)
