"""As text, a command shows the first errors of many; as JSON, all."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from attncc.cli import attncc
from attncc.cli.console import MOST_ERRORS
from tests.large_files import many, variant


def test_the_first_errors_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    path = tmp_path / "wrong.attn"
    path.write_text(f"attn 1\n{variant(many('keep if nothing@ >= kv_idx', 50))}")
    told = CliRunner().invoke(attncc, ["check", str(path)])
    assert told.output.count("error[A101]") == MOST_ERRORS and f"and {50 - MOST_ERRORS} more errors" in told.output
    assert told.exit_code == 1
    listed = CliRunner().invoke(attncc, ["check", "--format", "json", str(path)])
    assert len(json.loads(listed.stdout)) == 50
