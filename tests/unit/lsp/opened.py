"""Texts as an editor has them open, for the tests of what it asks."""

from __future__ import annotations

from pathlib import Path

from attncc.lsp.documents import Document, Documents

ROOT = Path(__file__).resolve().parents[3]
SPECS = sorted((ROOT / "specs").glob("*.attn"))


def opened(text: str, path: Path = ROOT / "specs" / "test.attn") -> tuple[Documents, Document]:
    documents = Documents()
    return documents, documents.put(path, 1, text)


def marked(text: str) -> tuple[Documents, Document, int]:
    """Of a text with a `|` where the cursor stands."""
    documents, document = opened(text.replace("|", "", 1))
    return documents, document, text.index("|")


def spec(path: Path) -> tuple[Documents, Document]:
    return opened(path.read_text("utf-8"), path)
