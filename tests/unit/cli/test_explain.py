"""`attncc explain` of calls that kernels in patches serve."""

from __future__ import annotations

import json

import pytest

from attncc.resources import folder
from tests.test_cli import run

SPECS = folder("specs")
CANVAS = ["-D", "canvas_width=64", "-D", "canvas_height=128"]


@pytest.mark.parametrize(
    ("spec", "length", "arguments", "tiles"),
    [
        ("natten", 4096, [], "128 x 64 tiles (patches of a canvas 64 wide: 8 columns of q, 8 of kv)"),
        (
            "natten",
            8192,
            [*CANVAS, "--head-dim", 128],
            "192 x 80 tiles (windows of a canvas 64 wide: 8 columns of q",
        ),
        ("dilated_window", 4096, [], "128 x 64 tiles (patches of a canvas 4 wide: 1 columns of q, 1 of kv)"),
    ],
)
def test_explain_counts_in_patches_where_these_run(spec, length: int, arguments: list[object], tiles: str) -> None:
    command = ["explain", SPECS / f"{spec}.attn", *arguments, "--heads", 8, "--no-compile", "--q-len"]
    assert f"kernel         patches, q_outer, {tiles}" in run(*command, length).output
    found, other = (json.loads(run(*command, size, "--format", "json").stdout) for size in (length, length + 1))
    assert (found["plan"]["pass"], other["plan"]["pass"]) == ("patches", "forward")
    patches, stretches = ({o["name"]: o for o in one["orders"]}["q_outer"] for one in (found, other))
    assert patches["flops"] < 0.8 * stretches["flops"]
    assert patches["bytes_moved"] < stretches["bytes_moved"]
    assert patches["flops"] >= found["useful_flops"]
    assert all(count <= patches["tiles"]["partial"] for count in found["partial_tiles"])
    assert any(found["partial_tiles"]) == ("windows" not in tiles)
    assert len(found["plan"]["canvas"]) == 4 and other["plan"]["canvas"] is None
