"""`attncc bench` on a GPU: peers agree with fp64 and are timed; times are those of kernels."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import run

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch")

SIZES = ("--heads", "8/2", "--batch", "2", "--head-dim", "64", "--rounds", "3")


def bench(*arguments: object) -> dict[int, dict[str, Any]]:
    """The rows of each length by name."""
    found = json.loads(run("bench", *arguments, *SIZES, "--format", "json").stdout)
    assert found["environment"]["device"] == torch.cuda.get_device_properties().name
    return {item["problem"]["q_len"]: {row["name"]: row for row in item["rows"]} for item in found["cases"]}


def check_timed(row: dict[str, Any]) -> None:
    assert row["timing"] is not None, row["trouble"]
    assert 0.001 < row["timing"]["milliseconds"] < 100
    low, high = row["timing"]["interval"]
    assert low <= row["timing"]["milliseconds"] <= high
    assert row["relative_error"] < 2e-2


@pytest.mark.parametrize("pass_name", ["forward", "backward", "both"])
@pytest.mark.parametrize(("spec", "form"), [("causal", "is_causal"), ("documents", "a mask 2x1x1000x1000 bool")])
def test_sdpa_and_flex(spec: str, form: str, pass_name: str) -> None:
    rows = bench(spec, "--lengths", "1000", "--against", "sdpa,flex", "--pass", pass_name)[1000]
    for row in rows.values():
        check_timed(row)
    assert rows["sdpa"]["how"].startswith(form)


@pytest.mark.parametrize(
    "spec", ["alibi", "softcap", "relative_bias", "natten", "prefix_lm", "block_map", "graphormer_spatial"]
)
def test_flex_attention_takes_the_functions(spec: str) -> None:
    rows = bench(spec, "--lengths", "512", "--against", "flex")[512]
    for row in rows.values():
        check_timed(row)


def test_one_query_over_many_keys() -> None:
    rows = bench("causal", "--lengths", "1:4096", "--against", "sdpa,flex")[1]
    check_timed(rows["attncc"])
    check_timed(rows["sdpa"])
    assert rows["sdpa"]["how"].startswith("no mask")


def test_fp16_and_longer_takes_longer() -> None:
    rows = bench("full", "--lengths", "1024,8192", "--against", "sdpa", "--dtype", "fp16")
    for name in ("attncc", "sdpa"):
        short, long = (rows[length][name]["timing"]["milliseconds"] for length in (1024, 8192))
        assert 4 < long / short < 150  # 64 times the pairs; other tests on this GPU lengthen the short one most


@pytest.mark.skipif(find_spec("flash_attn") is None, reason="FlashAttention-4 is not installed")
@pytest.mark.parametrize("spec", ["full", "causal", "sliding_window", "softcap"])
def test_fa4(spec: str) -> None:
    defines = ("-D", "width=300") if spec == "sliding_window" else ()
    rows = bench(spec, *defines, "--lengths", "1024", "--against", "fa4")[1024]
    check_timed(rows["attncc"])
    check_timed(rows["fa4"])


def test_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run("bench", "sliding_window", "--lengths", "512,1024", "--against", "sdpa", *SIZES, "-o", tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".txt", ".png"}
    assert max(map(len, (tmp_path / "sliding_window_forward_bf16.txt").read_text().splitlines())) <= 80
