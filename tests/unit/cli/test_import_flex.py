from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attncc.cli import attncc

MODS = """
def window(width):
    return lambda b, h, q_idx, kv_idx: q_idx - kv_idx < width

def twice(score, b, h, q_idx, kv_idx):
    return score * 2

def wrong(b, h, q_idx, kv_idx):
    return q_idx.cumsum(0) > kv_idx
"""


@pytest.fixture(autouse=True)
def mods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mods.py").write_text(MODS)


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(attncc, ["import-flex", *arguments])
    assert result.exit_code == status, result.output
    return result


def test_prints_what_check_and_fmt_take() -> None:
    text = run("mods.py:window(16)", "mods.py:twice").stdout
    Path("mine.attn").write_text(text)
    assert "const width: int = 16" in text
    assert "score = score * 2" in text
    assert CliRunner().invoke(attncc, ["fmt", "--check", "mine.attn"]).exit_code == 0
    assert "mine.attn: ok" in CliRunner().invoke(attncc, ["check", "mine.attn"]).output


def test_writes_a_file() -> None:
    assert "wrote mine.attn" in run("mods.py:window", "-o", "mine.attn", "--name=mine", "--input=width:i64").output
    text = Path("mine.attn").read_text()
    assert "variant mine {" in text
    assert "input width: i64" in text
    run("mods.py:window", "-o", "no/such/folder.attn", status=2)


def test_a_file_is_replaced_only_by_force() -> None:
    Path("mine.attn").write_text("of somebody")
    assert "replace it with --force" in run("mods.py:window", "-o", "mine.attn", status=2).output
    assert Path("mine.attn").read_text() == "of somebody"
    run("mods.py:window", "-o", "mine.attn", "--force")
    assert "variant window {" in Path("mine.attn").read_text()


def test_errors_name_the_place() -> None:
    shown = run("mods.py:wrong", status=1).stderr
    assert "error[A704]: `.cumsum()` can't be taken" in shown
    assert "--> mods.py:9:12" in shown
    found = json.loads(run("mods.py:wrong", "-o", "mine.attn", "--format", "json", status=1).stdout)
    assert [item["code"] for item in found] == ["A704"]
    assert not Path("mine.attn").exists()


def test_json_needs_a_file_for_the_text() -> None:
    run("mods.py:twice", "--format", "json", status=2)
    assert json.loads(run("mods.py:twice", "-o", "mine.attn", "--format", "json").stdout) == []


def test_warnings_of_the_check_are_shown() -> None:
    Path("mods.py").write_text("def mod(b, h, q_idx, kv_idx):\n    return 1 > 2\n")
    result = run("mods.py:mod")
    assert "keep if 1 > 2" in result.stdout
    assert "warning[A302]" in result.stderr
