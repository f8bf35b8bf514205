"""The one way in which attncc reports a problem: `Diagnostic`, raised together as `AttnccError`.

Codes by phase: A0 syntax, A1 names, A2 types, A3 mask, A4 schedule and resources, A5 target and NVRTC,
A6 call arguments and run time, A7 import from FlexAttention, A9 internal. `docs/errors/` explains each code.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .quoting import json_text, printable_lines
from .source import Span

_WIDEST = 240  # characters of a line that are shown
_BEFORE = 60  # of them before the first mark, where a line is longer


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that helps to understand a diagnostic."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement that an editor can apply."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: what (message), where (span, its label), why (labels, notes), what to do (help, edit)."""

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str = ""
    edit: Edit | None = None
    severity: str = "error"  # error | warning | note

    def render(self) -> str:
        """The diagnostic as text, with the source lines and carets."""
        lines = [f"{self.severity}[{self.code}]: {printable_lines(self.message)}"]
        lines += _excerpt(self)
        lines += [f"   = note: {printable_lines(note)}" for note in self.notes]
        if self.help:
            lines.append(f"   = help: {printable_lines(self.help)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "span": _span_json(self.span),
            "label": self.label,
            "labels": [{"span": _span_json(item.span), "text": item.text} for item in self.labels],
            "notes": list(self.notes),
            "help": self.help,
            "edit": None if self.edit is None else {"span": _span_json(self.edit.span), "text": self.edit.text},
        }


class AttnccError(Exception):
    """One or more diagnostics. `str()` is the full rendered text."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        items = [diagnostics] if isinstance(diagnostics, Diagnostic) else list(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(items)
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return render_all(self.diagnostics)

    def __repr__(self) -> str:
        """With the text, for libraries that show only this of an exception, as torch.compile does."""
        return f"{type(self).__name__}({self})"


class AttnccWarning(UserWarning):
    """A warning that arises where no command prints it: `warn` sends it through Python's `warnings`."""


def warn(diagnostic: Diagnostic, stacklevel: int = 2) -> None:
    """Shows a warning by Python's `warnings`, whose filters decide how often."""
    warnings.warn(diagnostic.render(), AttnccWarning, stacklevel + 1)


@dataclass
class Diagnostics:
    """Collects diagnostics over a phase, so that one run reports several."""

    items: list[Diagnostic] = field(default_factory=list)

    def add(self, diagnostic: Diagnostic) -> None:
        self.items.append(diagnostic)

    def raise_errors(self) -> None:
        """Raises AttnccError if any collected diagnostic is an error; warnings alone pass."""
        if any(item.severity == "error" for item in self.items):
            raise AttnccError(self.items)


def render_all(diagnostics: Sequence[Diagnostic]) -> str:
    return "\n\n".join(item.render() for item in diagnostics)


def render_json(diagnostics: Sequence[Diagnostic]) -> str:
    return json_text([item.to_json() for item in diagnostics], indent=2)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A help text that names the closest candidate, or an empty string."""
    close = difflib.get_close_matches(word, list(candidates), n=3)
    return next((f"did you mean `{item}`?" for item in close if _misspelt(word, item)), "")


def _misspelt(word: str, candidate: str) -> bool:
    """Whether no part of a name is another word: `kv_pos` isn't a misspelt `q_pos`, nor `head_idx` a `head_dim`."""
    if len(candidate) == 1:
        return False
    parts, others = word.strip("_").split("_"), candidate.split("_")
    if len(parts) != len(others):
        return True
    return all(difflib.SequenceMatcher(None, *pair).ratio() >= _SAME_PART for pair in zip(parts, others, strict=True))


_SAME_PART = 0.5


# "write `x`", "did you mean `x`?", "compare it: `x`", and what else there is to choose behind a comma.
_SUGGESTED = r"[^`]*?(?:write|mean|as|is|it:|tag) `((?:(?!\.\.\.)[^`…])+)`(?:\?|(?:, | for ).*)?"


def suggested(help: str, span: Span | None) -> Edit | None:
    """The edit that a help text asks for, where one piece of code in place of the span is all there is to do."""
    found = re.fullmatch(_SUGGESTED, help)
    return None if span is None or found is None else Edit(span, found[1])


def _span_json(span: Span | None) -> dict[str, Any] | None:
    if span is None:
        return None
    end_line, end_column = span.source.position(span.end)
    return {
        "path": span.source.path,
        "start": span.start,
        "end": span.end,
        "line": span.line,
        "column": span.column,
        "end_line": end_line,
        "end_column": end_column,
    }


def _excerpt(diagnostic: Diagnostic) -> list[str]:
    """The source lines of the primary span and of the labels, with carets (^) and dashes (-) under them."""
    if diagnostic.span is None:
        return []
    span = diagnostic.span
    marks = [(span, "^", diagnostic.label)]
    marks += [(label.span, "-", label.text) for label in diagnostic.labels if label.span.source is span.source]
    width = max(len(str(mark[0].line)) for mark in marks)
    margin = " " * width + " |"
    lines = [" " * width + f"--> {span}", margin]
    for number in sorted({mark[0].line for mark in marks}):
        on_line = sorted((mark for mark in marks if mark[0].line == number), key=lambda mark: mark[0].start)
        text, first = _part(_seen(span.source.line(number)), on_line[0][0].column - 1)
        lines.append(f"{number:>{width}} | {text}".rstrip())
        lines += [f"{margin} {_underline(mark, len(text), first)}" for mark in on_line]
    for label in diagnostic.labels:
        if label.span.source is not span.source:
            lines.append(" " * width + f"::: {label.span}: {label.text}")
    return lines


def _seen(line: str) -> str:
    """A line of a source with as many columns, so that carets stand below what they mean."""
    return "".join(char if char.isprintable() else " " for char in line)


def _part(line: str, place: int) -> tuple[str, int]:
    """What is shown of a line so that a place is seen, and where that begins."""
    if len(line) <= _WIDEST:
        return line, 0
    first = max(min(place - _BEFORE, len(line) - _WIDEST), 0)
    text = line[first : first + _WIDEST]
    return "…" * (first > 0) + text[first > 0 :] + "…" * (first + _WIDEST < len(line)), first


def _underline(marked: tuple[Span, str, str], width: int, first: int) -> str:
    """The carets below a part of a line that begins with column `first`, and their text."""
    span, mark, text = marked
    begin = min(max(span.column - 1 - first, 0), width)
    count = min(span.end - span.start, width - begin)
    return (" " * begin + mark * max(1, count) + " " + text).rstrip()
