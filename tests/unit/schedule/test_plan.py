from __future__ import annotations

import json
from dataclasses import replace

import pytest

from attncc.analysis.tiles import analyse
from attncc.ir import Variant, apply, const, symbol
from attncc.problem import Problem
from attncc.schedule.plan import from_json, to_json
from tests import plans


@pytest.mark.parametrize("variant", plans.VARIANTS, ids=lambda variant: variant.name)
def test_a_plan_survives_json(variant: plans.Variant) -> None:
    plan = plans.plan(variant, rules=analyse(variant, 64, 64))
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan


def test_shared_expressions_are_written_and_built_once() -> None:
    expr = symbol("q_idx")
    for _ in range(60):  # 2**60 nodes, if written in full
        expr = apply("add", expr, expr)
    text = json.dumps(to_json((expr, apply("sub", expr, const(1)))))
    assert len(text) < 10_000
    first, second = from_json(json.loads(text))
    assert hash(first) == hash(expr)  # `==` would walk all of it
    assert second.args[0] is first and first.args[0] is first.args[1]


@pytest.mark.parametrize("value", [{"class": "int"}, {"same": 0}, {"same": -1}, {"x": 1}])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not part of a plan"):
        from_json(value)


@pytest.mark.parametrize(
    ("variant", "packs"),
    [
        (plans.FULL, True), (plans.CAUSAL, True), (plans.ALIBI, True), (plans.SINK, True),  # the head scores, no more
        (plans.HEADWISE, False),  # its heads keep other tiles
        (plans.DROPOUT, False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)  # fmt: skip
def test_which_tiles_of_decode_hold_a_group(variant: Variant, packs: bool) -> None:
    decode = plans.plan(variant, "bf16", pass_name="decode", block_q=64, warps=4, split_kv=None)
    assert (decode.packs_heads, replace(decode, pass_name="forward").packs_heads) == (packs, False)
    problem = Problem(2, 12, 3, 20, 500, 16, 16)
    assert (decode.heads(problem), decode.q_blocks(problem)) == ((6, 2) if packs else (24, 1))
    for q_len in (16, 17):
        assert decode.serves(replace(problem, q_len=q_len)) == (q_len == 16 or not packs)
    packed = replace(problem, packed=True, q_len=70, batch=5)
    assert (decode.heads(packed), decode.q_blocks(packed)) == ((3, 70 * 4 // 64 + 5) if packs else (12, 70 // 64 + 5))
