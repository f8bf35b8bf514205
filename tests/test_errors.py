"""Every `tests/errors/Axxx_*.attn` holds one mistake; the `.txt` beside it is the full text that its author is shown.

A line `# -D name=value` in a file is given to `load` as a define, the value as JSON. The lists of all functions
and of all knobs stand as `{every built-in function}` and `{every knob}`: a new one leaves these texts alone.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from attncc.checks import schedule_errors
from attncc.diagnostics import AttnccError, Diagnostic, render_all
from attncc.schedule.choice import KNOBS
from attncc.semantics import builtins
from attncc.semantics.load import load
from attncc.source import SourceFile

FOLDER = Path(__file__).parent / "errors"
ROOT = FOLDER.parents[1]
CASES = sorted(FOLDER.glob("*.attn"))


@cache
def diagnose(path: Path) -> tuple[Diagnostic, ...]:
    return diagnose_source(SourceFile.read(path))


def diagnose_source(source: SourceFile) -> tuple[Diagnostic, ...]:
    defines = dict(re.findall(r"^# -D (\w+)=(\S+)$", source.text, re.MULTILINE))
    try:
        program = load(source, {name: json.loads(value) for name, value in defines.items()})
    except AttnccError as error:
        return error.diagnostics
    return (*program.warnings, *schedule_errors(program))


def shown(diagnostics: tuple[Diagnostic, ...]) -> str:
    """The rendered text; paths as the author of the file would see them from its folder."""
    text = render_all(diagnostics).replace(f"{FOLDER}/", "").replace(f"{ROOT}/", "") + "\n"
    text = text.replace(", ".join(builtins.FUNCTIONS), "{every built-in function}")
    return text.replace(", ".join(KNOBS), "{every knob}")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_text(path: Path, golden) -> None:
    diagnostics = diagnose(path)
    assert path.name.split("_")[0] in {item.code for item in diagnostics}
    golden(path.with_suffix(".txt"), shown(diagnostics))


def test_no_text_without_its_file() -> None:
    assert sorted(FOLDER.glob("*.txt")) == [path.with_suffix(".txt") for path in CASES]


def test_enough_mistakes() -> None:
    """At least sixty, and no two files that differ in their name alone."""
    texts = {path.read_text() for path in CASES}
    assert len(texts) == len(CASES) >= 60


def test_every_code_is_explained() -> None:
    """Each code that this folder shows has a page, and says something to do."""
    for path in CASES:
        for item in diagnose(path):
            assert (ROOT / "docs" / "errors" / f"{item.code}.md").is_file(), item.code
            assert item.help or item.label, path.name
