"""What check, explain and show say of a mask: proofs, inputs that were drawn, warnings; in 80 columns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from attncc.cli import COMMANDS
from attncc.resources import folder
from tests.test_cli import run

SPECS = folder("specs")


def written(place: Path, lines: str) -> Path:
    path = place / "mine.attn"
    path.write_text(f"attn 1\nvariant mine {{\n{lines}\n}}\n")
    return path


def test_check_as_json_of_a_clean_file_holds_the_proof() -> None:
    files = [SPECS / f"{name}.attn" for name in ("causal", "documents", "selected_attention", "full")]
    found = json.loads(run("check", *files, "--format", "json").stdout)
    assert [item["file"] for item in found["files"]] == list(map(str, files))
    causal, documents, selected, full = (item["variants"][0] for item in found["files"])
    blocks = 4096 // 128
    assert causal["tiles"]["partial"] == blocks / blocks**2
    assert causal["tiles"]["full"] == causal["tiles"]["empty"] == (blocks - 1) / 2 / blocks
    assert (causal["rows"], full["rows"], selected["rows"]) == ("own_key", "all_lengths", "not_proven")
    assert full["tiles"]["full"] == 1 and causal["loop_bounds_suffice"]
    assert documents["verified_nondecreasing"] == ["doc"] and "segments" in documents["tiles"]["drawn"]["doc"]
    assert selected["min_max_tables"] == ["doc"] and selected["undecided"][0]["line"] == 23
    assert found["diagnostics"] == []


def test_check_as_json_has_warnings_beside_the_proof(tmp_path: Path) -> None:
    found = json.loads(run("check", written(tmp_path, "keep if 3 <= 2"), "--format", "json").stdout)
    assert [item["code"] for item in found["diagnostics"]] == ["A302"]
    assert found["files"][0]["variants"][0]["tiles"]["empty"] == 1


@pytest.mark.slow
def test_what_is_printed_fits_80_columns() -> None:
    names = ("selected_attention", "shared_prefix", "natten", "graphormer_edge", "flash_attention_1", "alibi_documents")
    lines = [*run("list").stdout.splitlines(), *run("check", *names).stdout.splitlines()]
    for name in names:
        sizes = ["--q-len", 9000, "--kv-len", 70000, "--heads", 64, "--batch", 4] if name == "alibi_documents" else []
        lines += run("explain", name, "--no-compile", *sizes).stdout.splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []  # a path may be longer
    assert run("show", "causal").output.splitlines()[2].startswith("mask, keys")
    for sizes in ([], ["--q-len", 9000, "--kv-len", 70000]):
        assert max(map(len, run("show", "causal", *sizes).output.splitlines())) <= 80


@pytest.mark.parametrize("command", [["explain", "--no-compile"], ["show"]])
def test_inputs_that_were_drawn_are_told(command: list[str], tmp_path: Path) -> None:
    given = ["documents_prefix_lm", "--q-len", 1024]
    shown = run(*command, *given).output
    assert "inputs drawn at random; give yours with -i" in shown
    assert re.search(r"start: i32\[batch, pos\] nondecreasing: where segments begin, 2 of\s+\d+ to \d+", shown)
    np.save(tmp_path / "start.npy", np.zeros((1, 1024), np.int32))
    drawn = json.loads(run(*command, *given, "-i", f"start={tmp_path}/start.npy", "--format", "json").stdout)["drawn"]
    assert list(drawn) == ["prefix_end"]
    assert "drawn" not in run(*command, "causal").output


@pytest.mark.parametrize("command", [["explain", "--no-compile"], ["show"]])
def test_little_that_is_kept_is_warned_of(command: list[str], tmp_path: Path) -> None:
    scattered = "input doc: i32[batch, pos]\nkeep if doc[b, q_pos] * 0 + kv_idx % 37 == q_pos % 37"
    shown = run(*command, written(tmp_path, scattered), "--q-len", 1024)
    assert "warning[A304]: the mask keeps 2.7% of the pairs in the tiles" in shown.output
    assert "order the positions by the remainder" in shown.output
    assert "A304" not in run(*command, "causal", "--q-len", 1024).output
    assert "A304" not in run(*command, "causal", "--q-len", 1, "--kv-len", 4096).output


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command: str) -> None:
    lines = run(*command.split(), "--help").output.splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= 80
