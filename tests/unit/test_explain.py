"""The numbers of `attncc explain`, where they can be told by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from attncc.analysis.cost.roofline import DEVICES
from attncc.analysis.mask.grid import SLAB, TileGrid, classified
from attncc.cli.run import _analysed
from attncc.compiler import load_specification
from attncc.explain import LATENTS, Explanation, explain
from attncc.ir import Variant
from attncc.kernels.candidates import make_candidates, make_plan
from attncc.kernels.registry import facts_of
from attncc.problem import Problem
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import Build
from attncc.semantics.load import load
from attncc.source import SourceFile

LENGTH, BATCH, HEADS = 1024, 3, 4


def variant(lines: str) -> Variant:
    return load(SourceFile("mine.attn", f"attn 1\nimport masks\nvariant mine {{\n{lines}\n}}\n")).variants[0]


def explained(lines: str, **inputs: np.ndarray) -> Explanation:
    of = variant(lines)
    plan = make_plan(of, dtype="bf16", head_dim=64, value_head_dim=64, target="sm_90")
    problem = Problem(BATCH, HEADS, HEADS, LENGTH, LENGTH, 64, 64)
    return explain(plan, problem, inputs, DEVICES["h200"])


def test_pairs_are_counted_over_heads_and_sequences() -> None:
    causal = explained("keep if causal()")
    assert causal.pairs == BATCH * HEADS * LENGTH**2
    assert causal.kept_pairs == BATCH * HEADS * LENGTH * (LENGTH + 1) // 2
    assert causal.useful_flops == 4 * 64 * causal.kept_pairs


def test_masks_that_differ_by_sequence_are_counted_each() -> None:
    last = np.array([0, 100, 1000], np.int32)
    found = explained("input last: i32[batch]\nkeep if kv_idx < last[b]", last=last)
    assert found.kept_pairs == HEADS * LENGTH * last.sum()


def test_masks_that_differ_by_head_are_counted_each() -> None:
    last = np.array([0, 100, 1000, 24], np.int32)
    found = explained("input last: i32[head]\nkeep if kv_idx < last[h]", last=last)
    assert found.kept_pairs == BATCH * LENGTH * last.sum()
    tiles = {order.name: sum(order.tiles.values()) for order in found.orders if order.blocks}
    blocks = {order.name: order.blocks for order in found.orders if order.blocks}
    for name, (block_q, block_kv) in blocks.items():
        assert tiles[name] == BATCH * HEADS * -(-LENGTH // block_q) * -(-LENGTH // block_kv)


def test_values_in_the_columns_of_keys_move_once() -> None:
    """Of wide heads, where the kernel tells by pointers that v is a part of k: its bytes are those without v's."""
    candidates = make_candidates(Variant("full"), Build("forward", "sm_90a", "bf16", 576, 512), None)
    problem = Problem(1, 16, 1, 64, 4096, 576, 512)
    found = explain(candidates.first, problem, {}, DEVICES["h200"])
    orders = {order.name: order for order in found.orders}
    apart, together = orders["q_outer"], orders[LATENTS]
    keys = (apart.bytes_moved - together.bytes_moved) // (2 * 512)
    assert keys % 4096 == 0 and keys > 0 and apart.flops == together.flops
    narrow = make_candidates(Variant("full"), Build("forward", "sm_90a", "bf16", 192, 128), None)
    found = explain(narrow.first, Problem(1, 16, 16, 64, 4096, 192, 128), {}, DEVICES["h200"])
    assert LATENTS not in {order.name for order in found.orders}


def test_the_way_out_is_told() -> None:
    doc = np.zeros((BATCH, LENGTH), np.int32)
    documents = "input doc: i32[batch, pos]{}\nkeep if doc[b, q_pos] == doc[b, kv_idx]"
    ways = {
        "": "no mask",
        "keep if causal()": "loop bounds, in closed form",
        "keep if (q_idx // 64 + kv_idx // 64) % 3 == 0": "tested in the kernel",
    }
    for lines, way in ways.items():
        assert way in explained(lines).way_out
    assert "binary search" in explained(documents.format(" nondecreasing"), doc=doc).way_out
    listed = explained(documents.format(""), doc=doc)
    assert listed.way_out.startswith("listed by a pre-pass") and "reads tensors" in listed.way_out


def test_lines_answer_for_partial_tiles() -> None:
    """A tile counts for a line that leaves it PARTIAL, unless another line finds it EMPTY."""
    both = explained("keep if causal()\nkeep if kv_idx % 2 == 0")
    (order,) = [order for order in both.orders if order.name == "q_outer"]
    diagonal, parity = both.partial_tiles
    assert parity == order.tiles["partial"] > diagonal > 0
    alone = explained("keep if causal()")
    assert alone.partial_tiles == (diagonal,)
    assert explained("").partial_tiles == ()


def test_skipping_lowers_flops_and_bytes() -> None:
    full, window = explained(""), explained("keep if window(64)")
    for one, other in zip(window.orders[1:], full.orders[1:], strict=True):
        assert one.flops < other.flops / 2
        assert one.bytes_moved < other.bytes_moved
    assert window.orders[0] == full.orders[0]  # standard attention skips nothing


def test_a_long_problem_is_counted_by_what_its_bounds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of its tiles are looked at, and never many at once."""
    looked_at = []

    def watched(*given: object, **more: object) -> TileGrid:
        looked_at.append((found := classified(*given, **more)).kinds.size)
        return found

    monkeypatch.setattr("attncc.analysis.mask.grid.classified", watched)
    length = 1 << 18
    problem = Problem(1, 2, 2, length, length, 64, 64)
    plan = make_plan(variant("keep if causal()"), dtype="bf16", head_dim=64, value_head_dim=64, target="sm_90")
    found = explain(plan, problem, {}, DEVICES["h200"])
    assert found.kept_pairs == 2 * length * (length + 1) // 2
    tiles = found.orders[-1].tiles
    assert tiles["partial"] == found.partial_tiles[0] and tiles["full"] > 100 * tiles["partial"]
    assert max(looked_at) < SLAB and sum(looked_at) < sum(tiles.values()) / 4


@pytest.mark.parametrize("lines", ["", "keep if causal()"])
def test_json_holds_everything(lines: str) -> None:
    found = explained(lines)
    shown = json.loads(json.dumps(found.to_json()))
    assert [order["name"] for order in shown["orders"]] == ["standard", "Algorithm 1", "kv_outer", "q_outer"]
    assert sum(shown["shared_memory"].values()) <= shown["shared_memory_limit"]
    assert all(order["seconds"] > 0 for order in shown["orders"])


def test_tiles_2d_that_a_schedule_leaves_untested_are_all_computed() -> None:
    text = "attn 1\nvariant dilated { keep if 0 <= q_pos - kv_idx < 600 and (q_pos - kv_idx) % 6 == 0 }\n"
    text += "schedule s for dilated patches on sm_80 { skip = never }\n"
    specification, _ = load_specification(text, None, {})
    *_, tiles_2d = specification.plans(Configuration("bf16", 64, 64), "sm_80")
    found = explain(tiles_2d, Problem(BATCH, HEADS, HEADS, 960, 960, 64, 64), {}, DEVICES["a100"])
    (order,) = [order for order in found.orders if order.name == "q_outer"]
    tiles = BATCH * HEADS * facts_of(tiles_2d).q_blocks(found.problem) * facts_of(tiles_2d).kv_blocks(found.problem)
    assert order.tiles == {"empty": 0, "partial": tiles, "full": 0}
    assert found.way_out.startswith("none is skipped") and found.partial_tiles == ()
    assert "0% empty, 100% partial" in _analysed(tiles_2d, found.problem, {})
