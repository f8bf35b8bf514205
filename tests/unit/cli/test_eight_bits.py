"""The commands that take `--dtype e4m3`, whose kernels have descales, one target and one loop order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attncc.cli import attncc

pytestmark = pytest.mark.slow

SPEC = "attn 1\nvariant mine {\n    keep if q_idx >= kv_idx\n}\n"
SIZES = ("--q-len", "70", "--heads", "2", "--dtype", "e4m3")


@pytest.fixture(autouse=True)
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.attn").write_text(SPEC)


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(attncc, [*arguments])
    assert result.exit_code == status, result.output
    return result


def test_run_compares_it_with_the_reference() -> None:
    found = json.loads(run("run", "mine.attn", *SIZES, "--device", "cpu", "--format", "json").stdout)
    assert found["target"] == "sm_90a" and "mine_forward_e4m3_d64_sm_90a" in found["resources"]
    assert (
        0
        < found["accuracy"]["max_error"]
        < found["accuracy"]["allowance"] + 2 * found["accuracy"]["baseline_max_error"]
    )


def test_explain_counts_its_bytes() -> None:
    found = json.loads(run("explain", "mine.attn", *SIZES, "--no-compile", "--format", "json").stdout)
    orders = {order["name"]: order for order in found["orders"]}
    assert found["plan"]["target"] == "sm_90a"
    assert set(orders) == {"standard", "Algorithm 1", "q_outer"}
    elements = 2 * 70 * 64
    assert orders["q_outer"]["bytes_moved"] == (3 + 2) * elements + 2 * 70 * 4  # q, k, v; out in bf16; lse


def test_explain_tells_of_v_transposed_ahead() -> None:
    sizes = ("--q-len", "16384", "--heads", "16", "--dtype", "e4m3", "--no-compile")
    keys = -(-16384 // 160) * 160  # of whole tiles
    assert f"v is transposed once, {16 * keys * 64} bytes" in run("explain", "mine.attn", *sizes).output
    assert "transposed" not in run("explain", "mine.attn", *SIZES, "--no-compile").output.replace("v transposed", "")


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        (("explain", "--device", "a100"), 2, "--device a100 has no kernels of e4m3: they run on sm_90a"),
        (("explain", "--arch", "sm_80"), 1, "--arch sm_90a"),
        (("run", "--device", "cuda"), 2, "with torch tensors"),
    ],
)
def test_what_it_cannot_says_what_to_do(command: tuple[str, ...], status: int, expected: str) -> None:
    name, *options = command
    assert expected in " ".join(run(name, "mine.attn", "--dtype", "e4m3", *options, status=status).output.split())


def test_what_has_no_kernel_of_8_bits_is_named() -> None:
    Path("mine.attn").write_text(SPEC.replace("keep", "dropout 0.1\n    keep"))
    assert "e4m3 kernels have no `dropout`" in run("run", "mine.attn", *SIZES, status=1).output
