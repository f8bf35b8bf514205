"""attncc's answers as messages of the Language Server Protocol (needs lsprotocol, which comes with pygls)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from lsprotocol import types

from ..diagnostics import Edit, Label
from ..source import Span
from .completion import Choice
from .diagnose import Finding
from .hover import Hover
from .text import Places

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}
UNUSED = "A120"

_KINDS = {
    "item": types.CompletionItemKind.Keyword, "statement": types.CompletionItemKind.Keyword,
    "operator": types.CompletionItemKind.Operator, "constant": types.CompletionItemKind.Constant,
    "value": types.CompletionItemKind.Variable, "function": types.CompletionItemKind.Function,
    "reduction": types.CompletionItemKind.Function, "mask": types.CompletionItemKind.Function,
    "variant": types.CompletionItemKind.Class, "const": types.CompletionItemKind.Constant,
    "input": types.CompletionItemKind.Field, "let": types.CompletionItemKind.Variable,
    "parameter": types.CompletionItemKind.Variable, "loop variable": types.CompletionItemKind.Variable,
    "dtype": types.CompletionItemKind.TypeParameter, "type": types.CompletionItemKind.TypeParameter,
    "tag": types.CompletionItemKind.EnumMember, "property": types.CompletionItemKind.Property,
    "normalizer": types.CompletionItemKind.EnumMember, "pass": types.CompletionItemKind.EnumMember,
    "target": types.CompletionItemKind.EnumMember, "knob": types.CompletionItemKind.Property,
    "setting": types.CompletionItemKind.Value, "file": types.CompletionItemKind.File,
}  # fmt: skip


class Messages:
    """`encoding` is that of columns; `address` gives the URI of a file."""

    def __init__(self, encoding: str, address: Callable[[Path], str]) -> None:
        self.encoding = encoding
        self.address = address

    def range(self, span: Span) -> Any:
        start, end = Places(span.source, self.encoding).range(span)
        return types.Range(types.Position(*start), types.Position(*end))

    def location(self, span: Span) -> Any:
        return types.Location(self.address(Path(span.source.path)), self.range(span))

    def diagnostic(self, finding: Finding) -> Any:
        item = finding.diagnostic
        return types.Diagnostic(
            range=self.range(finding.span),
            message=finding.message,
            severity=_SEVERITIES[item.severity],
            code=item.code,
            source="attncc",
            tags=[types.DiagnosticTag.Unnecessary] if item.code == UNUSED else None,
            related_information=[self._related(label) for label in finding.related] or None,
        )

    def _related(self, label: Label) -> Any:
        return types.DiagnosticRelatedInformation(self.location(label.span), label.text)

    def fix(self, uri: str, finding: Finding, edit: Edit) -> Any:
        """The action that does what a help text asks for."""
        return types.CodeAction(
            title=finding.diagnostic.help,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[self.diagnostic(finding)],
            is_preferred=True,
            edit=types.WorkspaceEdit(changes={uri: [types.TextEdit(self.range(edit.span), edit.text)]}),
        )

    def hover(self, found: Hover) -> Any:
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, found.text), self.range(found.span))

    def completion(self, choices: Iterable[Choice]) -> Any:
        """In their own order, which `sort_text` keeps."""
        items = [
            types.CompletionItem(
                label=choice.name,
                kind=_KINDS[choice.sort],
                detail=choice.form,
                documentation=choice.doc or None,
                sort_text=f"{place:04}",
            )
            for place, choice in enumerate(choices)
        ]
        return types.CompletionList(is_incomplete=False, items=items)

    def replaced(self, whole: Span, text: str) -> Any:
        return [types.TextEdit(self.range(whole), text)]

    def lens(self, uri: str, name: Span) -> Any:
        """Without figures yet."""
        return types.CodeLens(range=self.range(name), data={"uri": uri, "variant": name.text})
