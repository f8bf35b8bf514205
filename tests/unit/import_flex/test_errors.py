"""Every `errors/A7xx_*.py` holds what can't be taken; the `.txt` beside it is the full text that its author is shown.

The first line of each is the command.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.import_flex import import_flex

FOLDER = Path(__file__).parent / "errors"
ROOT = FOLDER.parents[3]
CASES = sorted(FOLDER.glob("*.py"))


def diagnose(path: Path) -> AttnccError:
    words = shlex.split(path.read_text().split("\n")[0].removeprefix("# attncc import-flex "))
    inputs = [words[place + 1] for place, word in enumerate(words) if word == "--input"]
    with pytest.raises(AttnccError) as raised:
        import_flex([word for word in words if word.startswith(path.stem)], inputs)
    return raised.value


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_text(path: Path, golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    error = diagnose(path)
    assert {item.code for item in error.diagnostics} >= {path.name.split("_")[0]}
    assert all(item.help for item in error.diagnostics)
    golden(path.with_suffix(".txt"), f"{error}\n")


def test_no_text_without_its_file() -> None:
    assert sorted(FOLDER.glob("*.txt")) == [path.with_suffix(".txt") for path in CASES]


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(AttnccError, match=r"nowhere.py can't be read: No such file"):
        import_flex(["nowhere.py:mask"])
    with pytest.raises(AttnccError, match="names no function of a Python file"):
        import_flex(["mask"])


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    path = tmp_path / "mods.py"
    path.write_text("def mask(b, h, q_idx, kv_idx)\n    return q_idx >= kv_idx\n")
    with pytest.raises(AttnccError) as raised:
        import_flex([f"{path}:mask"])
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "A702"
    assert str(diagnostic.span).endswith("mods.py:1:30")
