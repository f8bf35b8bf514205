"""Templates must read as the algorithm: few choices, all in plain sight, no nesting, no `#if` and no Python in them."""

from __future__ import annotations

import re
from pathlib import Path

from attncc.resources import folder

ROOT = folder("templates")
TEMPLATES = sorted(ROOT.rglob("*.cu.j2"))
LEAVES = sorted(ROOT.rglob("*.cuh"))
NAMING = ("kernels", "codegen", "operators")  # packages that name the templates of kernels, and some leaves
CODE = sorted(path for name in NAMING for path in (ROOT.parent / "attncc" / name).rglob("*.py"))

MAX_LINES = 200
CHOICES_PER_HUNDRED_LINES = 14
# This number may fall. Wide heads on Hopper took 8, with 8-bit caches, parts, pages and prefixes 13; low scores 10,
# what is read at keys 7, e4m3's second loading warp, quadratics and decode's copies 5, decode with wgmma 1;
# to leave out of 16-bit kernels what e4m3 alone needs, 4, for 73 lines of each; heads of a group in a tile of Q 4, a
# combine kernel that begins early 2.
ALL_CHOICES = 282

OPENING = re.compile(r"^\s*//%\s*(if|for|macro|block|call|set)\b")
CLOSING = re.compile(r"^\s*//%\s*end\w+")
HOLE = re.compile(r"\$\{(.*?)\}")
INCLUDE = re.compile(r'^\s*(?:#include|//% include) "((?:\w+/)+\w+\.(?:cuh|cu\.j2))"$', re.M)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def choices(path: Path) -> int:
    """Each `if`, `elif` and loop, and each hole that prints one of two texts."""
    lines = path.read_text().splitlines()
    tags = sum(bool(re.match(r"^\s*//%\s*(if|elif|for)\b", line)) for line in lines)
    return tags + sum(bool(re.search(r"\bif\b", hole)) for line in lines for hole in HOLE.findall(line))


def test_there_are_templates() -> None:
    assert TEMPLATES and LEAVES


def test_files_are_short() -> None:
    lengths = {named(path): len(path.read_text().splitlines()) for path in (*TEMPLATES, *LEAVES)}
    assert not {name: length for name, length in lengths.items() if length > MAX_LINES}


def test_choices_are_few_and_not_nested() -> None:
    for path in TEMPLATES:
        lines = path.read_text().splitlines()
        assert 100 * choices(path) <= CHOICES_PER_HUNDRED_LINES * max(len(lines), 100), path
        depth = 0
        for line in lines:
            depth += bool(OPENING.match(line)) - bool(CLOSING.match(line))
            assert depth <= 1, (path, line)


def test_choices_do_not_grow() -> None:
    assert sum(map(choices, TEMPLATES)) <= ALL_CHOICES


def test_each_file_is_found_by_its_name() -> None:
    """Somebody includes it, by a path that a search finds."""
    texts = [path.read_text() for path in (*TEMPLATES, *LEAVES)]
    used = {name for text in texts for name in INCLUDE.findall(text)}
    used |= {name for path in CODE for name in re.findall(r'"(\w+/\w+\.(?:cuh|cu\.j2))"', path.read_text())}
    assert used == {named(path) for path in (*TEMPLATES, *LEAVES)}


def test_no_name_of_a_file_is_computed() -> None:
    for path in (*TEMPLATES, *LEAVES):
        lines = [line for line in path.read_text().splitlines() if re.search(r"#\s*include|//%\s*include", line)]
        assert [line for line in lines if not INCLUDE.match(line) and line != "${code.includes}"] == [], path


def test_no_preprocessor() -> None:
    """A choice is a line of the template, or `if constexpr`, which a reader sees where it is made."""
    for path in TEMPLATES:
        assert not re.search(r"^\s*#\s*(if|ifdef|ifndef|define)\b", path.read_text(), re.M), path


def test_holes_print_and_dont_compute() -> None:
    for path in TEMPLATES:
        for hole in HOLE.findall(path.read_text()):
            assert not re.search(r"[-+*/%]|\bfor\b", re.sub(r'"[^"]*"', "", hole)), (path, hole)


def test_leaves_are_plain_cuda() -> None:
    for path in LEAVES:
        text = path.read_text()
        assert "//%" not in text and "${" not in text, path
        assert not re.search(r"^#(?!include \"\w+/\w+\.cuh\"|pragma unroll|define (?:[A-Z]|__ldg\())", text, re.M), path
