"""docs/language.md is normative: its examples load, those marked with a code give that error, its lists are complete.

An example that isn't a whole file is taken as the items of one, or as the statements of a variant.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attncc.diagnostics import AttnccError
from attncc.schedule.choice import KNOBS
from attncc.schedule.schedule import from_ast
from attncc.semantics import builtins
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.syntax.formatter import format_source
from attncc.syntax.grammar import keywords
from attncc.syntax.parser import parse

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "language.md").read_text()
EXAMPLES = re.findall(r"^```attn *(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)


def whole(example: str) -> SourceFile:
    if not example.startswith("attn 1"):
        items = example.startswith(("mask", "variant", "schedule", "import"))
        example = f"attn 1\n{example}" if items else f"attn 1\nvariant example {{\n{example}}}\n"
    return SourceFile("docs/language.md", example)


@pytest.mark.parametrize(("code", "example"), EXAMPLES)
def test_example(code: str, example: str) -> None:
    if not code:
        program = load(whole(example))
        assert program.variants
        assert not [warning for warning in program.warnings if warning.code != "A120"]
        for schedule in program.schedules:
            from_ast(schedule)
        return
    with pytest.raises(AttnccError) as raised:
        load(whole(example))
    assert [item.code for item in raised.value.diagnostics] == [code]


@pytest.mark.parametrize("example", [example for _, example in EXAMPLES if example.startswith("attn 1")])
def test_example_is_formatted(example: str) -> None:
    assert format_source(SourceFile("docs/language.md", example)) == example


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8
    assert len(re.findall(r"^```", TEXT, re.MULTILINE)) == 2 * len(EXAMPLES)


def quoted_words() -> set[str]:
    return {word for quote in re.findall(r"`([^`]*)`", PROSE) for word in re.findall(r"\w+", quote)}


@pytest.mark.parametrize(
    "words",
    [
        builtins.VALUES, builtins.TAGS, builtins.DTYPES, builtins.PROPERTIES, builtins.NORMALIZERS, builtins.PASSES,
        builtins.CONST_TYPES, builtins.REDUCTIONS, KNOBS, keywords(), builtins.CALL_ARGUMENTS - {"batch"},
    ],
)  # fmt: skip
def test_every_word_is_explained(words) -> None:
    assert set(words) <= quoted_words()


def test_every_function_has_its_signature() -> None:
    assert [item.signature for item in builtins.FUNCTIONS.values() if f"`{item.signature}`" not in PROSE] == []


def test_every_mask_of_the_library_is_named() -> None:
    library = parse(SourceFile.read(ROOT / "specs" / "masks.attn"))
    signatures = [
        f"{item.name.name}({', '.join(parameter.name for parameter in item.parameters)})" for item in library.items
    ]
    assert [signature for signature in signatures if f"`{signature}`" not in PROSE] == []
