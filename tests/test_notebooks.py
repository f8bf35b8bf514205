"""Notebooks of examples/ are kept without outputs, and run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def run(notebook: Any, folder: Path) -> list[Any]:
    """The outputs of each cell of code."""
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute()
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def kinds(outputs: list[Any]) -> set[str]:
    return {kind for output in outputs for kind in output.get("data", {})}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_holds_no_outputs(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs") and not cell.get("execution_count")


def test_masks() -> None:
    variant, picture, tiles, shares, error, kernel = run(nbformat.read(ROOT / "examples" / "masks.ipynb", 4), ROOT)
    assert kinds(variant) == kinds(kernel) == {"text/html", "text/plain"}
    assert kinds(picture) == kinds(tiles) == {"image/svg+xml", "text/plain"}
    assert kinds(shares) == {"text/plain"}
    assert float(error[0].data["text/plain"]) < 1e-5


SLOW = """
import time
from attncc.notebook import shown_while

with shown_while("compiling causal"):
    time.sleep(3.5)
with shown_while("compiling nothing"):
    pass
"""
COMMAND = """
import time
from attncc.cli.console import progress

with progress("timing", 3) as advance:
    for _ in range(3):
        time.sleep(0.7)
        advance("causal")
"""


def test_a_cell_that_takes_long_says_so_on_one_line() -> None:
    (outputs,) = run(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SLOW)]), ROOT)
    (shown,) = outputs
    assert re.fullmatch(r"compiling causal: \d s", shown.data["text/plain"])


def test_a_command_of_a_cell_rewrites_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow.py").write_text(COMMAND, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cell = nbformat.v4.new_code_cell(f"!{sys.executable} slow.py")
    (outputs,) = run(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
    assert "".join(output.text for output in outputs) == "timing …\r\n"
