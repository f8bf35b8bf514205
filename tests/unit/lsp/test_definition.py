"""Where names lead: every name of the shipped files to where it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from attncc.lsp.definition import definition
from attncc.lsp.documents import Documents
from attncc.lsp.words import find
from attncc.syntax.grammar import keywords
from tests.unit.lsp.opened import ROOT, SPECS, marked, spec

LIBRARY = ROOT / "specs" / "masks.attn"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_name_has_a_definition(path: Path) -> None:
    documents, document = spec(path)
    for token in document.outline.tokens:
        found = definition(documents, document, token.start_pos)
        if str(token) in keywords():
            assert found is None
        elif token.type == "NAME" and find(str(token)) is None:  # given in the file, or in one that it imports
            assert found is not None, token
            assert found.text in (str(token), "")  # "": a file's begin


@pytest.mark.parametrize(
    ("text", "leads"),
    [
        ("attn 1\nvariant v { const w: int = 1 keep if kv_idx < |w }", "w: int"),
        ("attn 1\nvariant v { let x = 1 keep if kv_idx < |x }", "x ="),
        ("attn 1\nmask m(a) = |a > 1", "a) ="),
        ("attn 1\nvariant v { keep if |m() }\nmask m() = kv_idx > 1", "m() ="),
        ("attn 1\nvariant v { keep if any(|i < 2 for i in range(2)) }", "i in"),
        (
            "attn 1\nvariant v { keep if any(i < 2 for i in range(2)) and all(|i < 2 for i in range(3)) }",
            "i in range(3)",
        ),
        ("attn 1\nvariant v { input s: f32[head] sink |s }", "s: f32"),
        ("attn 1\nvariant v {}\nschedule s for |v on sm_80 {}", "v {}"),
        ("attn 1\nvariant v { let x = 1 }\nvariant u { let y = 2 let x = 3 keep if kv_idx < |x }", "x = 3"),
    ],
)
def test_in_the_file(text: str, leads: str) -> None:
    found = definition(*marked(text))
    whole = text.replace("|", "", 1)
    assert found.start == whole.index(leads)


def test_into_the_library() -> None:
    found = definition(*marked("attn 1\nimport masks\nvariant v { keep if win|dow(4) }"))
    assert (Path(found.source.path), found.text) == (LIBRARY, "window")
    assert Path(definition(*marked("attn 1\nimport ma|sks")).source.path) == LIBRARY


def test_into_a_file_as_it_is_open(tmp_path: Path) -> None:
    (tmp_path / "other.attn").write_text("attn 1\nmask far() = kv_idx > 9\n")
    documents = Documents()
    text = 'attn 1\nimport "other.attn"\nvariant v { keep if far() }'
    document = documents.put(tmp_path / "mine.attn", 1, text)
    found = definition(documents, document, text.index("far"))
    assert found.source.path == str(tmp_path / "other.attn") and found.start == len("attn 1\nmask ")
    documents.put(tmp_path / "other.attn", 1, "attn 1\n# moved\nmask far() = kv_idx > 9\n")
    assert definition(documents, document, text.index("far")).start == len("attn 1\n# moved\nmask ")


@pytest.mark.parametrize("text", ["|", "attn |1", "attn 1\nvariant v { keep if q_p|os > 1 }", "attn 1\nimport nob|ody"])
def test_what_leads_nowhere(text: str) -> None:
    assert definition(*marked(text)) is None


def test_imports_outside_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "other.attn").write_text("attn 1\nmask far() = kv_idx > 9\n")
    text = 'attn 1\nimport "../other.attn"\nvariant v { keep if far() }'
    for allowed, leads in (((), False), ((tmp_path,), True)):
        documents = Documents(allowed)
        document = documents.put(tmp_path / "own" / "mine.attn", 1, text)
        assert (definition(documents, document, text.index("far")) is not None) == leads
        assert [item.code for item in documents.check(document).diagnostics] == ([] if leads else ["A115"])
