"""Every code that attncc can print has a page in docs/errors/, and every page a code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "errors").glob("*.md"))
CODES = {
    code for path in (ROOT / "attncc").rglob("*.py") for code in re.findall(r'"(A\d{3})"', path.read_text("utf-8"))
}


def test_codes_and_pages_agree() -> None:
    assert {path.stem for path in PAGES} == CODES


def test_pages_are_short_and_begin_with_their_code() -> None:
    for path in PAGES:
        text = path.read_text("utf-8")
        assert re.match(rf"# {path.stem}: \S.*\n\n *\S", text), path
        assert 4 <= len(text.splitlines()) <= 30, path
        assert all(len(line) <= 125 for line in text.splitlines()), path
