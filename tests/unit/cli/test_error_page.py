"""`attncc explain A203`: the page of a code, as wide as what other commands print."""

from __future__ import annotations

import json

from click.testing import CliRunner

from attncc import resources
from attncc.cli import attncc
from attncc.cli.console import COLUMNS
from attncc.cli.error_page import error_page, in_columns


def test_pages_are_80_columns_wide_and_lose_no_word() -> None:
    for path in (resources.folder("docs") / "errors").glob("A*.md"):
        shown, written = error_page(path.stem), path.read_text(encoding="utf-8")
        assert max(map(len, shown.split("\n"))) <= COLUMNS, path.stem
        assert shown.split() == written.split(), path.stem


def test_code_stays_as_it_is_and_messages_hang() -> None:
    code = f"    keep if q_pos >= kv_idx{' ' * 40}# a comment that is far to the right"
    assert in_columns(f"Text\nthat goes on\n\n{code}") == f"Text that goes on\n\n{code}"
    first, second = in_columns(f"       = help: {'word ' * 16}").split("\n")
    assert first.startswith("       = help: word") and second.startswith(f"{' ' * 10}word")
    assert in_columns("- one\n- two\n  goes on") == "- one\n- two goes on"


def test_as_json() -> None:
    shown = CliRunner().invoke(attncc, ["explain", "a203", "--format", "json"])
    assert json.loads(shown.stdout) == {"code": "A203", "text": error_page("A203")}
