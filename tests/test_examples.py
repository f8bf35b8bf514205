"""The examples run, and show what they say that they show."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from tests.ranks import run_ranks  # noqa: E402  (needs torch)

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> Any:
    return loaded("train_characters")


@pytest.fixture(scope="module")
def runs(example: Any) -> dict[str, Any]:
    size = example.Size(layers=1, heads=2, head_dim=16, context=40, width=24, batch=2, dtype="fp32", learning_rate=1e-2)
    text = example.Text.of(example.make_text(4000))
    return {kind: example.train(kind, size, text, 12, "cpu", report=False) for kind in example.KINDS}


def test_the_text_is_the_same_each_time_and_its_sums_are_right(example: Any) -> None:
    text = example.make_text(3000)
    assert text == example.make_text(3000)
    for line in text.splitlines()[:-1]:
        first, second, result = (int(number) for number in "".join(c if c.isdigit() else " " for c in line).split())
        assert result == (first + second if "finds" in line else first - second)


def test_the_variant_trains_as_the_dense_formula_does(runs: dict[str, Any]) -> None:
    for own, dense in zip(runs["attncc"].losses, runs["dense"].losses, strict=True):
        assert own == pytest.approx(dense, abs=1e-4)
    own, dense = (runs[kind].model.blocks[0].attention.slope for kind in ("attncc", "dense"))
    torch.testing.assert_close(own, dense, rtol=1e-4, atol=1e-5)


def test_every_kind_learns(runs: dict[str, Any]) -> None:
    for run in runs.values():
        assert run.losses[-1] < run.losses[0] - 0.5
    assert runs["dropout"].losses != runs["attncc"].losses
    assert runs["sdpa"].losses == pytest.approx(runs["dense"].losses, abs=0.1)
    assert runs["sdpa"].losses == pytest.approx(runs["uncapped"].losses, abs=1e-4)


def test_it_writes_and_plots(example: Any, runs: dict[str, Any], tmp_path: Path) -> None:
    text = example.Text.of(example.make_text(4000))
    written = example.write(runs["dropout"].model, text, example.CPU, "anna has", 5)
    assert written.startswith("anna has")
    assert len(written) == 13
    pytest.importorskip("matplotlib")
    example.plot(runs, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_unasked_it_trains_with_dropout_and_plots(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    example.main(["--steps", "2", "--device", "cpu"])
    assert "dropout  step    1" in capsys.readouterr().out
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "needs matplotlib" in example.plot({}, tmp_path / "other.png")


@pytest.mark.parametrize("page", ["3", "16"])
def test_tokens_are_the_same_with_a_paged_cache(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["generate.py", "--steps", "6", "--page", page])
    loaded("generate").main()
    assert "all 24 tokens are the same" in capsys.readouterr().out


def test_processes_that_share_sequences_train_as_one_does(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Processes come from the server that tests have; to start as the example's own do takes seconds each."""
    monkeypatch.syspath_prepend(EXAMPLES)  # the processes import it by its name
    monkeypatch.setattr(sys, "argv", ["train_long.py", "--rows", "64", "--steps", "3"])
    monkeypatch.setattr(torch.multiprocessing, "spawn", run_ranks)
    for name in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST"):  # it sets them; put back behind this test
        monkeypatch.setenv(name, "")
    loaded("train_long").main()
    shown = capfd.readouterr().out
    assert "rank" in shown  # the plan, which a process prints
    losses = re.findall(r"loss ([\d.]+) of 2 processes, ([\d.]+) of one", shown)
    assert len(losses) == 3
    assert len({own for own, _ in losses}) == 3
    for own, other in losses:
        assert float(own) == pytest.approx(float(other), abs=1e-4)
