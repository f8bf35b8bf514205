"""Templates must read as the algorithm: few control tags, no nesting, no `#if` and no Python in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attncc.resources import folder

TEMPLATES = sorted(folder("templates").rglob("*.cu.j2"))
LEAVES = sorted(folder("templates").glob("include/attncc/*.cuh"))

MAX_LINES = 200
TAGS_PER_HUNDRED_LINES = 8
OPENING = re.compile(r"^\s*//%\s*(if|for|macro|block|call|set)\b")
CLOSING = re.compile(r"^\s*//%\s*end\w+")
HOLE = re.compile(r"\$\{(.*?)\}")


def named(path: Path) -> str:
    return path.name


def test_there_are_templates() -> None:
    assert TEMPLATES and LEAVES


@pytest.mark.parametrize("path", [*TEMPLATES, *LEAVES], ids=named)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", TEMPLATES, ids=named)
def test_control_tags_are_few_and_not_nested(path: Path) -> None:
    """`include` is no control; an `if` and its `endif` are one phase that exists or doesn't, so they count once."""
    lines = path.read_text().splitlines()
    opened = [line for line in lines if OPENING.match(line) or re.match(r"^\s*//%\s*el", line)]
    assert 100 * len(opened) <= TAGS_PER_HUNDRED_LINES * max(len(lines), 50), opened
    depth = 0
    for line in lines:
        depth += bool(OPENING.match(line)) - bool(CLOSING.match(line))
        assert depth <= 1, line


@pytest.mark.parametrize("path", TEMPLATES, ids=named)
def test_no_preprocessor_and_no_constant_branches(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"^\s*#\s*(if|ifdef|ifndef|define)\b", text, re.M)
    assert "if constexpr" not in text


@pytest.mark.parametrize("path", TEMPLATES, ids=named)
def test_holes_print_and_dont_compute(path: Path) -> None:
    for hole in HOLE.findall(path.read_text()):
        assert not re.search(r"[-+*/%]|\bfor\b", re.sub(r'"[^"]*"', "", hole)), hole


@pytest.mark.parametrize("path", LEAVES, ids=named)
def test_leaves_are_plain_cuda(path: Path) -> None:
    text = path.read_text()
    assert "//%" not in text and "${" not in text
    assert not re.search(r"^#(?!include \"attncc/\w+\.cuh\"|pragma unroll|define [A-Z])", text, re.M)
