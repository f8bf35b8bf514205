"""Where the name at a place was given: in this file, in one that it imports, in the library."""

from __future__ import annotations

from ..source import SourceFile, Span
from .documents import Document, Documents
from .meaning import meaning


def definition(documents: Documents, document: Document, offset: int) -> Span | None:
    """The name's place; of an import, the begin of the file."""
    found = meaning(documents, document, offset)
    if found is None:
        return None
    if found.file is not None:
        return Span(SourceFile(str(found.file), ""), 0, 0)
    return found.declared.at if found.declared else None
