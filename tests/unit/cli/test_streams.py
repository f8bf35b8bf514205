"""Stdin in place of a file, and output without colours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attncc.cli import attncc

SPEC = "attn 1\n\nvariant mine {\n    keep if q_idx >= kv_idx\n}\n"


def run(*arguments: str, given: str | bytes, status: int = 0, color: bool = False) -> Result:
    result = CliRunner().invoke(attncc, arguments, input=given, color=color)
    assert result.exit_code == status, result.output
    return result


def test_check_reads_stdin() -> None:
    assert "variant mine: tiles are skipped" in run("check", "-", given=SPEC).output
    wrong = run("check", "-", given=SPEC.replace("kv_idx", "kv_id"), status=1).output
    assert "--> <stdin>:4:" in wrong and "`kv_idx`" in wrong


def test_stdin_of_another_encoding() -> None:
    assert "A511" in run("check", "-", given="attn 1\n# ä\n".encode("latin-1"), status=1).output


def test_fmt_writes_what_it_reads_to_stdout() -> None:
    assert run("fmt", "-", given="attn 1\nvariant mine{keep if q_idx>=kv_idx}").stdout == SPEC
    assert run("fmt", "-", given=SPEC).stdout == SPEC
    assert run("fmt", "--check", "-", given=SPEC).stdout == ""
    assert "+    keep" in run("fmt", "--check", "-", given=SPEC.replace("    keep", "keep"), status=1).stdout


@pytest.mark.parametrize("command", ["check", "fmt"])
def test_stdin_is_read_once(command: str) -> None:
    shown = run(command, "-", "-", given=SPEC, status=2).output
    assert "`-` is there twice" in shown and "error[" not in shown


@pytest.mark.parametrize("stage", ["ast", "ir", "rules"])
def test_show_and_explain_read_stdin(stage: str) -> None:
    assert "mine" in run("show", "-", given=SPEC).output
    assert "mine" in run("show", "-", "--stage", stage, given=SPEC).output
    assert "tiles" in run("explain", "-", "--no-compile", "--q-len", "256", given=SPEC).output


@pytest.mark.parametrize("command", ["run", "bench", "build", "tune"])
def test_what_reads_its_file_again_wants_one(command: str) -> None:
    assert "wants a file: `-` is taken by" in " ".join(run(command, "-", given=SPEC, status=2).output.split())


def test_colours_where_there_may_be_some(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SPEC.replace("kv_idx", "kv_id")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in run("check", "-", given=wrong, status=1, color=True).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("check", "-", given=wrong, status=1, color=True).output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("more", [(), ("--format", "json")])
def test_a_full_disk_is_no_mistake_of_attncc(more: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "attncc", "list", *more]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: the output can't be written: disk full\n")
