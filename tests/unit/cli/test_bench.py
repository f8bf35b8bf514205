"""`attncc bench`: what it needs, prints and writes. A CPU and a stopwatch that only counts stand for the GPU."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from attncc.resources import folder
from tests.test_cli import run

SPECS = folder("specs")
SIZES = ("--lengths", "32,7:40", "--heads", "4/2", "--batch", "2", "--head-dim", "16", "--dtype", "fp32")


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def found(name: str) -> Any:
        return None if name in missing else find_spec("sys")

    monkeypatch.setattr("attncc.cli.bench.find_spec", found)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--against", "sdpa,triton"], "'triton' is not one of 'sdpa', 'flex', 'fa4'"),
        (["--lengths", "4096,0"], "write a length as in 4096, or 1:8192"),
        (["--heads", "32/5"], "write heads as in 16, or 32/8"),
        (["--dtype", "e4m3"], "'e4m3' is not one of"),
        (["--pass", "backwards"], "'backwards' is not one of"),
    ],
)
def test_usage(arguments: list[str], expected: str) -> None:
    assert expected in " ".join(run("bench", "causal", *arguments, status=2).output.split())


def test_torch_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "torch")
    shown = run("bench", "causal", status=2).output
    assert "torch isn't installed: pip install 'attncc[bench]'" in shown


def test_a_plot_needs_matplotlib_and_is_refused_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "matplotlib")
    shown = run("bench", "causal", "-o", tmp_path / "out", status=2).output
    assert "needs matplotlib: pip install 'attncc[bench]'" in shown
    assert not (tmp_path / "out").exists()


# -------------------------------------------------------------------- with torch


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's whole way, where cases are on the CPU and FlexAttention isn't compiled."""
    pytest.importorskip("torch")
    from attncc.bench import case, flex, peers
    from tests.unit.bench.benched import Counting

    made = case.Case
    monkeypatch.setattr("attncc.bench.case.Case", lambda *fields: made(*fields, device="cpu"))
    monkeypatch.setattr("attncc.cli.bench.gpu_name", lambda: "a GPU")
    monkeypatch.setattr("attncc.bench.stopwatch.TorchStopwatch", Counting)
    monkeypatch.setattr("attncc.bench.environment.environment", lambda: {"device": "a GPU"})
    uncompiled = flex.candidates
    monkeypatch.setitem(peers.PEERS, "flex", lambda case, form: uncompiled(case, lambda function, **_: function))


def test_no_gpu_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    shown = run("bench", "causal", status=1).output
    assert "error[A503]" in shown and "help: " in shown


def test_a_torch_that_cannot_use_the_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")

    class Driver:
        def device(self, _: int) -> None:
            """There is one."""

    monkeypatch.setattr("attncc.runtime.cuda.driver.driver", Driver)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "can't use the GPU here: install a torch for this driver" in " ".join(
        run("bench", "causal", status=2).output.split()
    )


@pytest.mark.usefixtures("on_the_cpu")
def test_the_table_fits_80_columns() -> None:
    lines = run("bench", "alibi", *SIZES).output.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [
        "inputs drawn at random; give yours with -i, others with --seed",
        "  slope: f32[head]: floats at random",
    ]
    assert lines[3] == "alibi, forward, fp32, 4 heads over 2 key heads, head dim 16, on a GPU"
    assert [line.split()[:2] for line in lines[6:] if "  attncc  " in line] == [["32", "attncc"], ["7:40", "attncc"]]


@pytest.mark.usefixtures("on_the_cpu")
def test_json_and_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    given = ("-D", "width=9", "--against", "sdpa,sdpa", "--pass", "both", "-o", tmp_path / "out", "--rounds", "3")
    shown = run("bench", "sliding_window", *SIZES, *given, "--format", "json")
    found = json.loads(shown.stdout)
    assert found["environment"] == {"device": "a GPU"}
    assert [item["problem"]["q_len"] for item in found["cases"]] == [32, 7]
    assert [[row["name"] for row in item["rows"]] for item in found["cases"]] == [["attncc", "sdpa"]] * 2
    assert len(found["cases"][0]["rows"][0]["timing"]["windows"]) == 3
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"sliding_window_both_fp32.{ending}" for ending in ("json", "txt", "png")}
    assert json.loads((tmp_path / "out" / "sliding_window_both_fp32.json").read_text()) == found


@pytest.mark.usefixtures("on_the_cpu")
def test_inputs_are_given_and_checked(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "lengths.npy"
    np.save(path, np.array([3, 5], np.int32))
    shown = run("bench", "prefix_lm", *SIZES[2:], "--lengths", "32", "-i", f"prefix_len={path}", "--format", "json")
    (case,) = json.loads(shown.stdout)["cases"]
    assert case["kept_pairs"] == 4 * sum(32 * 33 // 2 + n * (n - 1) // 2 for n in (3, 5))
    np.save(path, np.array([3, 5, 7], np.int32))
    assert "error[A609]" in run("bench", "prefix_lm", *SIZES, "-i", f"prefix_len={path}", status=1).output


@pytest.mark.usefixtures("on_the_cpu")
def test_a_wrong_result_of_ours_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncc.api.compile", lambda *_, **__: lambda q, k, v: q * 2)
    shown = run("bench", "causal", *SIZES, "--against", "sdpa", status=1).output
    assert "error[A904]" in shown and "wrong" in shown


@pytest.mark.usefixtures("on_the_cpu")
def test_warnings_of_a_file_are_printed_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.attn"
    path.write_text("attn 1\nvariant mine {\n    keep if 3 >= 2\n}\n")
    assert run("bench", path, *SIZES, "--against", "sdpa").output.count("warning[A302]") == 1
