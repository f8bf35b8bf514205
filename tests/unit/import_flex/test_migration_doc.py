"""docs/migration.md: what it says that Python becomes, it becomes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attncc.import_flex import import_flex
from tests.unit.import_flex.snippets import lines, mask, score, statements  # noqa: F401

TEXT = (Path(__file__).parents[3] / "docs" / "migration.md").read_text()


def rows(heading: str) -> list[tuple[str, str]]:
    """The pairs of a table: each form in Python, and the first one in .attn."""
    table = TEXT[TEXT.index(heading) :].split("\n\n")[0]
    found = []
    for row in table.split("\n")[2:]:
        python, attn = re.split(r"(?<!\\)\|", row)[1:3]
        form = re.findall(r"`(.*?)`", attn)[0].replace("\\|", "|")
        found += [(item.replace("\\|", "|"), form) for item in re.findall(r"`(.*?)`", python)]
    return found


@pytest.mark.parametrize(("python", "attn"), rows("| in a mod |"))
def test_conditions(lines, python: str, attn: str) -> None:  # noqa: F811
    found = [line for line in lines(mask(python)) if not line.startswith("input")]
    assert found == [f"keep if {part}" for part in attn.split(" and ")]


@pytest.mark.parametrize(("python", "attn"), rows("| in a score_mod |"))
def test_scores(lines, python: str, attn: str) -> None:  # noqa: F811
    found = [line for line in lines(score(python)) if not line.startswith("input")]
    assert found == [attn if attn.startswith("keep") else f"score = {attn}"]


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT[TEXT.index("## One file") :]
    python, attn = (re.findall(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)[0] for kind in ("python", "attn"))
    monkeypatch.chdir(tmp_path)
    Path("example.py").write_text(python)
    assert statements(import_flex(["example.py:documents(1024)"]).text) == statements(attn)


def test_the_example_with_axes(lines) -> None:  # noqa: F811
    text = TEXT[TEXT.index("## Tensors with axes") :]
    (python,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)[:1]
    (attn,) = re.findall(r"gives `(.*?)`", text)[:1]
    expected = ["const size: int = 64", "input chosen: i32[batch, head, _, _]", attn]
    assert lines(python, "tiles(torch.empty(2, 4, 16, 8), 64)") == expected
    declared = ("chosen:i32[batch, head, _, 8]",)
    found = lines(python, "tiles(size=64)", inputs=declared)
    assert found == ["const size: int = 64", "input chosen: i32[batch, head, _, 8]", attn]


def test_there_are_rows() -> None:
    assert len(rows("| in a mod |")) >= 20
    assert len(rows("| in a score_mod |")) >= 10
