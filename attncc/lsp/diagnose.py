"""What `attncc check` finds, as places of one open file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..checks import Checked
from ..diagnostics import Diagnostic, Edit, Label
from ..source import Span
from .documents import Document, Documents


@dataclass(frozen=True)
class Finding:
    """A diagnostic with its place in the open file: of one in an imported file, the import that leads there."""

    diagnostic: Diagnostic
    span: Span
    related: tuple[Label, ...]

    @property
    def message(self) -> str:
        """All of it but the related places: what, why, what to do."""
        item = self.diagnostic
        lines = [f"{item.message} ({item.label})" if item.label else item.message]
        lines += [f"note: {note}" for note in item.notes]
        return "\n".join([*lines, f"help: {item.help}"] if item.help else lines)

    @property
    def edit(self) -> Edit | None:
        """What the help asks for, where it is one edit of this file."""
        edit = self.diagnostic.edit
        return edit if edit is not None and edit.span.source is self.span.source else None


def diagnose(documents: Documents, document: Document) -> list[Finding]:
    return findings(documents, document, documents.check(document))


def findings(documents: Documents, document: Document, checked: Checked) -> list[Finding]:
    return [_finding(documents, document, item) for item in checked.diagnostics]


def _finding(documents: Documents, document: Document, item: Diagnostic) -> Finding:
    source, span = document.source, item.span
    start = Span(source, 0, 0)
    item = replace(item, help=item.help.replace("allow_imports=…", "`attncc lsp --allow-imports DIR`"))
    if span is None:
        return Finding(item, start, item.labels)
    if span.source.path == source.path:
        return Finding(item, replace(span, source=source), item.labels)
    leads = _import_of(documents, document, Path(span.source.path)) or start
    return Finding(item, leads, (Label(span, item.message), *item.labels))


def _import_of(documents: Documents, document: Document, path: Path) -> Span | None:
    """The import that brings a file. For one that an imported file imports, the first of a file that isn't the
    library's, which has no mistakes."""
    imports = [item for item in document.outline.items if item.kind == "import" and len(item.head.tokens) > 1]
    for item in imports:
        target = documents.imported_file(document, str(item.head.tokens[1]))
        if target is not None and target.resolve() == path.resolve():
            return item.whole
    own = [item for item in imports if item.head.tokens[1].type == "STRING"]
    return next((item.whole for item in (*own, *imports)), None)
