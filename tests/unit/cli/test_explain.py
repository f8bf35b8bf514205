"""`attncc explain` of calls that kernels in 2-D tiles serve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attncc.kernels.crossings import Crossings
from attncc.resources import folder
from attncc.runtime.store.crossings import Measured, keep
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


@pytest.mark.parametrize(("q_len", "own"), [(1, ""), (8, "_rows17"), (16, "_rows17_one_block")])
def test_all_decode_kernels_are_named(q_len: int, own: str) -> None:
    command = ("explain", "causal", "--q-len", q_len, "--kv-len", 8192, "--heads", 32, "--kv-heads", 8)
    told = unwrapped(*command, "--head-dim", 128, "--no-compile")
    for other in ("", "_rows17", "_one_block", "_rows17_one_block"):
        assert (f"causal_decode_bf16_d128{other}_sm_90a" in told) == (other != own)
    assert ("another one for other decode calls" in told) == (own != "")
    found = json.loads(run(*command, "--head-dim", 128, "--no-compile", "--format", "json").stdout)
    assert len(found["beside"]) == 3 and ("with 17 rows" in found["plan"]["calls"]) == (own == "_rows17")
    wide = json.loads(run(*command, "--head-dim", 192, "--no-compile", "--format", "json").stdout)
    assert wide["plan"]["pass"] == "decode" and wide["beside"] == []


def test_where_crossing_points_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that this machine measured on such a GPU choose the kernel."""
    monkeypatch.setenv("ATTNCC_CACHE", str(tmp_path))
    command = ("explain", "full", "--q-len", 128, "--kv-len", 600, "--heads", 8, "--batch", 1, "--head-dim", 128)
    usual = unwrapped(*command, "--no-compile")
    assert "the usual ones, an H200's; attncc tune --crossings measures another GPU's" in usual
    keep(Measured("NVIDIA H200", Crossings(split_keys=1200), {"measured": "2026-11-30"}))
    found = json.loads(run(*command, "--no-compile", "--device", "h200", "--format", "json").stdout)
    assert (found["plan"]["pass"], found["crossings"]["device"]) == ("forward", "NVIDIA H200")
    assert found["crossings"]["crossings"]["split_keys"] == 1200
    told = unwrapped(*command[:3], 1, *command[4:], "--no-compile", "--device", "h200")
    assert "measured on this machine's NVIDIA H200, 2026-11-30" in told
    other = json.loads(run(*command, "--no-compile", "--device", "h100", "--format", "json").stdout)
    assert (other["plan"]["pass"], other["crossings"]) == ("decode", None)


LENGTHS = ("causal", "--q-len", 1, "--heads", 32, "--kv-heads", 8, "--head-dim", 128, "--no-compile")


def test_how_caches_of_different_lengths_are_shared_out() -> None:
    shown = unwrapped("explain", *LENGTHS, "--kv-lens", "100,5000,128000")
    assert "3 caches of 100 to 128,000 keys, 133,100 in all" in shown
    assert "16 of 24 items (rows of a key head) are cut into" in shown and "memory: 545.2 MB of K and V" in shown
    told = json.loads(run("explain", *LENGTHS, "--kv-lens", "100,5000,128000", "--format", "json").output)["lengths"]
    some = json.loads(run("explain", *LENGTHS, "--kv-lens", "0,100,5000,0,128000", "--format", "json").output)
    assert some["lengths"]["kv_bytes"] == told["kv_bytes"]  # empty caches have no tiles
    assert told["items"] == 24 and told["most"] - told["least"] <= 1 and told["kv_bytes"] == 545177600


def test_the_kernel_is_that_of_calls_with_lengths() -> None:
    """Dense calls of these sizes have kernels that ragged ones never get: with one thread block a multiprocessor, and
    in 2-D tiles."""
    dense, lengths = (*LENGTHS, "--format", "json"), ",".join(["8192"] * 16)
    named = ("dense decode calls", "up to 64 rows")
    for given, start in zip((("--batch", 16, "--kv-len", 8192), ("--kv-lens", lengths)), named, strict=True):
        assert json.loads(run("explain", *dense, *given).stdout)["plan"]["calls"].startswith(start)
    grid = ("natten", "--q-len", 4096, "--heads", 8, "--no-compile", "--format", "json")
    found = [json.loads(run("explain", *grid, *given).stdout) for given in ((), ("--kv-lens", "4096"))]
    assert [item["plan"]["pass"] for item in found] == ["patches", "forward"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("--kv-lens", "100,x"), "is not a list of lengths"),
        (("--kv-lens", "0"), "is not a list of lengths"),
        (("--kv-lens", "5,6", "--batch", 3), "--batch 3 doesn't go with the 2 caches of --kv-lens"),
    ],
)
def test_lengths_that_cannot_be(given: tuple[object, ...], text: str) -> None:
    assert text in " ".join(run("explain", *LENGTHS, *given, status=2).output.split())


@pytest.mark.parametrize("given", ["A9999", "e203", "203"])
def test_what_is_nearly_a_code(given: str) -> None:
    assert f"{given} is no code" in run("explain", given, status=2).output


def test_latents_are_counted_once_by_kernels_with_tma_too() -> None:
    """V of MLA is columns of K: the table has such calls, and the bytes of caches are those of K."""
    sizes = ["--head-dim", "576:512", "--heads", 128, "--kv-heads", 1, "--kv-len", 512, "--no-compile"]
    for arch, family in (("sm_90a", "hopper_wide"), ("sm_80", "wide")):
        asked = ["explain", "mla_decode", *sizes, "--q-len", 1, "--kv-lens", "100,512", "--arch", arch]
        found = json.loads(run(*asked, "--format", "json").stdout)
        orders = {order["name"]: order for order in found["orders"]}
        assert orders["V in K"]["bytes_moved"] < orders["q_outer"]["bytes_moved"], family
        items = found["lengths"]["items"] // 2  # blocks of rows of each cache
        assert found["lengths"]["v_in_k"] and found["lengths"]["kv_bytes"] == items * (100 + 512) * 576 * 2
    assert "MB of K, of which V is columns" in unwrapped(*asked)


def test_score_inputs_are_not_drawn(tmp_path: Path) -> None:
    """60 inputs by pair took 20 GB, of which no figure speaks."""
    inputs = "\n".join(f"input t{i}: f32[batch, head, q, kv]" for i in range(60))
    scores = "\n".join(f"score = score + t{i}[b, h, q_idx, kv_idx]" for i in range(60))
    path = tmp_path / "pairs.attn"
    path.write_text(f"attn 1\nvariant v {{\n{inputs}\n{scores}\n}}\n")
    assert json.loads(run("explain", path, "--no-compile", "--format", "json").stdout)["drawn"] == {}
    path.write_text(f"attn 1\nvariant v {{\n{inputs}\nkeep if t0[b, h, q_idx, kv_idx] > t1[b, h, q_idx, kv_idx]\n}}\n")
    shown = run("explain", path, "--no-compile", status=1).output
    assert "error[A630]: 2 inputs that the mask reads have 536,870,912 entries" in shown
    assert "too many to draw" in run("show", path, "--heads", 64, status=1).output
