"""What is read from tokens alone is what the parser reads; and half-written files have an outline too."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncc.lsp.outline import Outline
from attncc.source import SourceFile
from attncc.syntax import ast
from attncc.syntax.parser import parse
from tests.unit.lsp.opened import SPECS, opened

KINDS = {ast.Mask: "mask", ast.Function: "function", ast.Variant: "variant", ast.Schedule: "schedule"}
DECLARE = {ast.Const: "const", ast.Table: "const", ast.Input: "input", ast.Let: "let"}


def bodies(item: ast.Item) -> tuple[ast.Statement, ...]:
    body = item.statements if isinstance(item, ast.Variant) else getattr(item, "body", ())
    return body if isinstance(body, tuple) else ()


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_outline_is_that_of_the_parser(path: Path) -> None:
    source = SourceFile.read(path)
    module, outline = parse(source), Outline.of(source)
    found = [item for item in outline.items if item.kind != "import"]
    items = [(KINDS[type(node)], node.name.span) for node in module.items]
    assert [(item.kind, item.name.at) for item in found] == items
    for item, node in zip(found, module.items, strict=True):
        assert item.whole == node.span
        statements = bodies(node)
        if item.kind != "schedule":
            spans = [(part.tokens[0].start_pos, part.tokens[-1].end_pos) for part in item.statements]
            assert spans == [(part.span.start, part.span.end) for part in statements]
        named = [part for part in statements if type(part) in DECLARE]
        declared = [(DECLARE[type(part)], part.name.span, part.span) for part in named]
        assert [(d.kind, d.at, d.whole) for d in item.declared if d.kind in DECLARE.values()] == declared
        parameters = [parameter.span for parameter in getattr(node, "parameters", ())]
        assert [d.at for d in item.declared if d.kind == "parameter"] == parameters


def test_half_a_file() -> None:
    _, document = opened("attn 1\nmask near(a, b\nvariant v {\n  const w: int =\n  input d: i32[\n  let x = w +")
    near, v = document.outline.items
    assert [(d.name, d.kind) for d in near.declared] == [("a", "parameter"), ("b", "parameter")]
    assert [(d.name, d.kind) for d in v.declared] == [("w", "const"), ("d", "input"), ("x", "let")]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [("", []), ("attn 2\nvariant v {}", []), ("(" * 500, []), ("variant", ["variant"]), ("} import", ["import"]),
     ("mask m fn", ["mask", "function"]), ("schedule s for", ["schedule"]), ("keep if", [])],
)  # fmt: skip
def test_texts_with_little_to_read(text: str, kinds: list[str]) -> None:
    _, document = opened(text)
    assert [item.kind for item in document.outline.items] == kinds


def test_comments_document() -> None:
    lines = "const w: int = 3  # behind\n    let x = w"
    _, document = opened(f"attn 1\n# Above,\n# two lines.\nvariant v {{\n    {lines}\n}}\n")
    (v,) = document.outline.items
    assert [d.doc for d in (v.name, *v.declared)] == ["Above,\ntwo lines.", "behind", ""]
