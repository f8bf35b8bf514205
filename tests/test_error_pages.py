"""Every code that attncc can print has a page in docs/errors/, and every page a code."""

from __future__ import annotations

import re
from pathlib import Path

from attncc.schedule.choice import KNOBS

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


def test_pages_of_knobs_have_all_knobs_and_their_words() -> None:
    names, values = ((ROOT / "docs" / "errors" / f"{code}.md").read_text("utf-8") for code in ("A401", "A402"))
    assert [name for name in KNOBS if f"`{name}`" not in names] == []
    assert [name for name in KNOBS if f"`{name}" not in values] == []
    assert [word for knob in KNOBS.values() for word in knob.words if not re.search(rf"\b{word}\b", values)] == []
