"""`attncc explain` of calls that kernels in 2-D tiles serve."""

from __future__ import annotations

import json

import pytest

from attncc.resources import folder
from tests.test_cli import run, unwrapped

SPECS = folder("specs")
SIZES = ["-D", "canvas_width=64", "-D", "canvas_height=128"]


@pytest.mark.parametrize(
    ("spec", "length", "arguments", "tiles"),
    [
        ("natten", 4096, [], "128 x 64 tiles (2-D tiles of a grid 64 wide: 8 columns of q, 8 of kv)"),
        (
            "natten",
            8192,
            [*SIZES, "--head-dim", 128],
            "192 x 80 tiles (windows of a grid 64 wide: 8 columns of q",
        ),
        ("dilated_window", 4096, [], "128 x 64 tiles (2-D tiles of a grid 4 wide: 1 columns of q, 1 of kv)"),
    ],
)
def test_explain_counts_in_tiles_2d_where_these_run(spec, length: int, arguments: list[object], tiles: str) -> None:
    command = ["explain", SPECS / f"{spec}.attn", *arguments, "--heads", 8, "--no-compile", "--q-len"]
    assert f"kernel patches, q_outer, {tiles}" in unwrapped(*command, length)
    found, other = (json.loads(run(*command, size, "--format", "json").stdout) for size in (length, length + 1))
    assert (found["plan"]["pass"], other["plan"]["pass"]) == ("patches", "forward")
    tiles_2d, tiles_1d = ({o["name"]: o for o in one["orders"]}["q_outer"] for one in (found, other))
    assert tiles_2d["flops"] < 0.8 * tiles_1d["flops"]
    assert tiles_2d["bytes_moved"] < tiles_1d["bytes_moved"]
    assert tiles_2d["flops"] >= found["useful_flops"]
    assert all(count <= tiles_2d["tiles"]["partial"] for count in found["partial_tiles"])
    assert any(found["partial_tiles"]) == ("windows" not in tiles)
    assert len(found["plan"]["grid_2d"]) == 4 and other["plan"]["grid_2d"] is None
