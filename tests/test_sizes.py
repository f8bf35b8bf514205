"""Files and functions stay short: what can't be read at once isn't reviewed. (Templates: test_template_budget.py.)"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("attncc", "tests", "benchmarks")
BLOCKS = (ast.stmt, ast.excepthandler, ast.match_case)  # what functions stand in


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def lengths_of_functions(path: Path) -> Iterator[int]:
    """Without a walk through expressions, which hold none."""
    found: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while found:
        node = found.pop()
        if isinstance(node, ast.FunctionDef):
            yield node.end_lineno - node.lineno + 1
        found += (child for child in ast.iter_child_nodes(node) if isinstance(child, BLOCKS))


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_short(folder: str) -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files(folder)}
    assert [str(path) for path, count in lines.items() if count > 500] == []
    assert median(lines.values()) <= 200


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_are_short(folder: str) -> None:
    lengths = [length for path in files(folder) for length in lengths_of_functions(path)]
    assert median(lengths) <= 8
    assert quantiles(lengths, n=20)[-1] <= 35
