"""The figures of a lens are those of `attncc explain` for the call that its title states."""

from __future__ import annotations

import json

import pytest

from attncc.lsp import figures
from tests.test_cli import run
from tests.unit.lsp.opened import SPECS, opened, spec

CALL = ["--q-len", 4096, "--heads", 8, "--head-dim", 128, "--device", "h100", "--no-compile", "--format", "json"]


@pytest.mark.parametrize("name", ["alibi_documents", "full", "decode", "natten", "sigmoid_attention"])
def test_a_lens_says_what_explain_says(name: str) -> None:
    path = next(path for path in SPECS if path.stem == name)
    documents, document = spec(path)
    title, *orders, tiles = figures.of_variant(documents.check(document).program, name)
    said = json.loads(run("explain", path, *CALL).stdout)
    own = next(order for order in said["orders"] if order["name"] == said["plan"]["loop"])
    skipped = own["tiles"]["empty"] / sum(own["tiles"].values())
    assert title == (
        f"B1 H8 S4096 D128 bf16, H100: {said['kept_pairs'] / said['pairs']:.1%} of pairs kept, "
        f"{skipped:.1%} of tiles skipped, {own['flops'] / 1e9:,.4g} GFLOP, {own['bytes_moved'] / 1e6:,.4g} MB, "
        f"at least {own['seconds'] * 1e3:,.3g} ms ({'memory' if 'memory' in title else 'compute'})"
    )
    assert [line.partition(":")[0].partition(" (")[0] for line in orders] == [order["name"] for order in said["orders"]]
    assert tiles == f"tiles: {said['tiles']}"


def test_schedules_count() -> None:
    text = "attn 1\nimport masks\nvariant v { keep if causal() }\n"
    both = [text, f"{text}schedule s for v on sm_90a {{ block_q = 64 block_kv = 64 family = portable }}\n"]
    found = [figures.of_variant(documents.check(document).program, "v") for documents, document in map(opened, both)]
    assert any("q_outer (64 x 64)" in line for line in found[1])
    assert not any("q_outer (64 x 64)" in line for line in found[0])


def test_why_there_are_none() -> None:
    text = (
        "attn 1\nvariant v { input slope: f32[3] score = score + slope[h] }\nschedule s for v on sm_90a { warps = 99 }"
    )
    documents, document = opened(text)
    checked = documents.check(document)
    assert checked.program is not None and checked.has_errors
    (line,) = figures.of_variant(checked.program, "v")
    assert line.startswith("B1 H8 S4096 D128 bf16, H100: ") and "warps" in line
