"""`--allow-imports`: on every command that reads specs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_cli import run

SMALL = {
    "check": [],
    "show": ["--q-len", 64],
    "explain": ["--no-compile", "--q-len", 64],
    "run": ["--device", "cpu", "--q-len", 16],
    "build": ["--arch", "sm_80", "--head-dim", "16"],
}


@pytest.mark.parametrize("command", SMALL)
def test_imports_from_allowed_folders(command: str, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "shared" / "one.attn").write_text("attn 1\nmask one() = kv_idx < 9\n")
    spec = tmp_path / "own" / "mine.attn"
    spec.write_text('attn 1\nimport "../shared/one.attn"\nvariant mine { keep if one() }\n')
    rest = [*SMALL[command], *(["-o", tmp_path / "kernels"] if command == "build" else [])]
    refused = run(command, spec, *rest, status=1).output
    assert "A115" in refused and "--allow-imports DIR" in refused
    run(command, spec, *rest, "--allow-imports", tmp_path / "own", "--allow-imports", tmp_path / "shared")
