"""`attncc lsp` where it can't start, and what it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.test_cli import run
from tests.unit.lsp.opened import ROOT


@pytest.mark.parametrize("missing", ["pygls", "lsprotocol"])
def test_what_to_install_is_said(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("attncc.lsp.server", "attncc.lsp.messages"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    shown = run("lsp", status=2).output
    assert "pip install 'attncc[lsp]'" in shown and "Traceback" not in shown


# What is imported before the first answer: the rest, kernels above all, is for those who look at figures.
LIGHT = """
import sys
import attncc.lsp.completion, attncc.lsp.definition, attncc.lsp.documents, attncc.lsp.hover
from pathlib import Path
documents = attncc.lsp.documents.Documents()
text = "attn 1\\nimport masks\\nvariant v { keep if causal() }"
assert documents.check(documents.put(Path("specs/x.attn"), 1, text)).diagnostics == ()
heavy = {"attncc.compiler", "attncc.codegen", "attncc.executor", "attncc.kernels.candidates", "pygls", "cupy"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_the_first_answer_loads_no_kernels() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
