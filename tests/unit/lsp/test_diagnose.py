"""Findings are those of `attncc check`, at places of the open file; and no text, however damaged, is an accident."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from attncc.lsp.completion import completion
from attncc.lsp.definition import definition
from attncc.lsp.diagnose import Finding, diagnose
from attncc.lsp.documents import Documents
from attncc.lsp.hover import hover
from attncc.lsp.text import Places, normal
from attncc.threads import DaemonThreads
from tests.evil_texts import EVIL
from tests.property.mutations import mutated, sources
from tests.test_errors import CASES, diagnose_source
from tests.unit.lsp.opened import SPECS, opened

MOST_SECONDS = 0.2  # of the processor, for a normal spec


@pytest.mark.parametrize(
    "path", [path for path in CASES if "# -D " not in path.read_text("utf-8")], ids=lambda path: path.stem
)
def test_what_check_says_is_said(path: Path) -> None:
    """Message, label, notes, help and edit of each."""
    documents, document = opened(path.read_text("utf-8"), path)
    found, expected = diagnose(documents, document), diagnose_source(document.source)
    assert [item.diagnostic.code for item in found] == [item.code for item in expected]
    for item, diagnostic in zip(found, expected, strict=True):
        parts = [
            diagnostic.message,
            diagnostic.label,
            *diagnostic.notes,
            diagnostic.help.partition("allow_imports=")[0],
        ]
        assert [part for part in parts if part not in item.message] == []
        own = diagnostic.span is None or diagnostic.span.source.path == str(path)
        assert not own or diagnostic.span is None or item.span == diagnostic.span
        assert item.edit == (diagnostic.edit if own else None)
        assert 0 <= item.span.start <= item.span.end <= len(document.source.text)


def test_what_is_wrong_in_an_imported_file_stands_at_its_import(tmp_path: Path) -> None:
    (tmp_path / "b.attn").write_text('attn 1\nimport "c.attn"\nmask near() = kv_idx > 1\n')
    (tmp_path / "c.attn").write_text("attn 1\nmask far() = = 1\n")
    text = 'attn 1\nimport masks\nimport "b.attn"\nvariant v { keep if causal() }'
    documents = Documents()
    (found,) = diagnose(documents, documents.put(tmp_path / "mine.attn", 1, text))
    assert (found.diagnostic.code[:2], found.span.text) == ("A0", 'import "b.attn"')  # which leads there
    assert [label.span.source.path for label in found.related] == [str(tmp_path / "c.attn")]
    documents.put(tmp_path / "b.attn", 1, "attn 1\nmask near() = kv_idx\n")
    (found,) = diagnose(documents, documents.put(tmp_path / "mine.attn", 2, text))
    assert found.span.text == 'import "b.attn"'
    documents.put(tmp_path / "b.attn", 2, "attn 1\nmask near() = kv_idx > 1\n")
    assert diagnose(documents, documents.put(tmp_path / "mine.attn", 3, text)) == []


def test_texts_without_a_place_of_their_own() -> None:
    documents, document = opened("attn 1\n" + "#" * 140_000)
    (found,) = diagnose(documents, document)
    assert found.diagnostic.code == "A011" and found.span.text == "1"


def test_imports_stay_within_the_folder(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    text = 'attn 1\nimport "../other.attn"\nvariant v {}'
    (found,) = diagnose(Documents(), Documents().put(tmp_path / "own" / "mine.attn", 1, text))
    assert found.diagnostic.code == "A115" and "--allow-imports DIR" in found.message


# -------------------------------------------------------------------- damaged files


def asked(text: str, rng: random.Random, hovers: bool = False) -> list[Finding]:
    """What is found in a text, after all else was asked of a few places in it."""
    documents, document = opened(text)
    length = len(document.source.text)
    for offset in {length, *(rng.randrange(length + 1) for _ in range(3))}:
        completion(documents, document, offset)
        definition(documents, document, offset)
        if hovers:
            hover(documents, document, offset)
    found = diagnose(documents, document)
    for item in found:
        assert item.span.source is document.source
        assert item.message and Places(document.source).range(item.span)
    return found


@pytest.mark.parametrize("name", ["alibi_documents", "decode", "flamingo", "sta_2d", "natten"])
def test_every_beginning_of_a_file(name: str) -> None:
    text = next(path for path in SPECS if path.stem == name).read_text("utf-8")
    rng = random.Random(0)
    broken = [bool(asked(text[:end], rng)) for end in range(0, len(text), 7)]
    assert any(broken) and asked(text, rng) == []


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files(seed: int) -> None:
    rng, texts = random.Random(seed), sources()
    for _ in range(60):
        text = mutated(rng, texts)
        asked(text[: rng.randrange(len(text) + 1)] if rng.random() < 0.3 else text, rng)


def test_hover_of_damaged_files() -> None:
    rng, texts = random.Random(1), sources()
    for _ in range(40):
        asked(mutated(rng, texts), rng, hovers=True)


@pytest.mark.parametrize("name", EVIL)
def test_evil_texts_in_a_thread(name: str) -> None:
    """As the server asks: threads have less stack."""
    text = f"attn 1\n# {EVIL[name]}\nvariant v {{ keep if {EVIL[name]} }}"
    with DaemonThreads(1) as threads:
        threads.submit(asked, text, random.Random(0), True).result(60)
        threads.submit(asked, EVIL[name], random.Random(0), True).result(60)


@pytest.mark.parametrize(
    "deep", ["(" * 5000, "not " * 5000, "1 + (" * 120, "-" * 9000, "x[" * 4000, "a if b else " * 3000]
)
def test_deep_texts_in_a_thread(deep: str) -> None:
    with DaemonThreads(1) as threads:
        text = f"attn 1\nvariant v {{ keep if {deep}"
        assert threads.submit(asked, text, random.Random(0), True).result(60)


def test_text_as_editors_send_it() -> None:
    documents, document = opened("attn 1\r\nvariant v {\r\n    keep if nobody\r\n}\ud800")
    found = diagnose(documents, document)
    assert ["nobody" in item.span.text or "\ufffd" in item.span.text for item in found] == [True] * len(found)
    assert Places(document.source).place(document.source.text.index("nobody")) == (2, 12)
    assert document.source.text == normal(document.source.text)


@pytest.mark.parametrize("name", ["alibi_documents", "causal", "sliding_window", "documents", "natten"])
def test_a_normal_spec_is_checked_while_somebody_types(name: str) -> None:
    text = next(path for path in SPECS if path.stem == name).read_text("utf-8")
    times = []
    for change in range(4):  # the first also imports modules
        documents, document = opened(f"{text}\n# {change}\n")
        start = time.process_time()
        assert diagnose(documents, document) == []
        times.append(time.process_time() - start)
    assert min(times) < MOST_SECONDS
