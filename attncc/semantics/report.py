"""Where the checks put their diagnostics: each problem once, with the mask calls that led to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..diagnostics import Diagnostic, Diagnostics, Edit, Label, suggested
from ..source import Span

_MOST_CALLS = 6  # that are shown of those that led to a problem
_OF_ALL = frozenset({"A220"})  # said once, wherever: what is too large makes all that uses it too large


@dataclass(frozen=True)
class Report:
    """Collects diagnostics. A mask's body is checked at every call: what was said once isn't said again."""

    found: Diagnostics = field(default_factory=Diagnostics)
    calls: tuple[Label, ...] = ()  # the mask calls that the text being checked is reached through
    _said: set[tuple[str, str, Span | None]] = field(default_factory=set)

    def error(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        *,
        labels: Iterable[Label] = (),
        notes: Iterable[str] = (),
        help: str = "",
        instead: Span | Edit | None = None,
        severity: str = "error",
    ) -> None:
        """Adds a diagnostic, unless the same was said of the same place before. `instead`: what the code in the help
        replaces, or the whole edit where the help shortens it."""
        said = code, message, None if code in _OF_ALL else span
        if said in self._said:
            return
        self._said.add(said)
        every_label = (*labels, *_shown(self.calls))
        edit = suggested(help, instead) if isinstance(instead, Span) else instead
        self.found.add(Diagnostic(code, message, span, label, every_label, tuple(notes), help, edit, severity=severity))

    def warning(
        self, code: str, message: str, span: Span, label: str = "", *, help: str = "", instead: Edit | None = None
    ) -> None:
        self.error(code, message, span, label, help=help, instead=instead, severity="warning")

    def inside(self, call: Span, mask: str) -> Report:
        """The same report, for the body of a mask that is called at `call`."""
        return replace(self, calls=(Label(call, f"`{mask}` is used here"), *self.calls))

    @property
    def has_errors(self) -> bool:
        return any(item.severity == "error" for item in self.found.items)

    @property
    def lacks_masks(self) -> bool:
        """Whether an import went wrong, so that masks may be missing through no fault of who calls them."""
        return any(item.code.startswith("A0") or item.code in ("A107", "A108", "A115") for item in self.found.items)

    def in_order(self) -> Diagnostics:
        """All diagnostics: files in the order in which they came up, each from top to bottom."""
        files: dict[str, int] = {}
        for item in self.found.items:
            files.setdefault(item.span.source.path if item.span else "", len(files))

        def place(item: Diagnostic) -> tuple[int, int]:
            return (files[item.span.source.path], item.span.start) if item.span else (files[""], 0)

        return Diagnostics(sorted(self.found.items, key=place))


def _shown(calls: tuple[Label, ...]) -> tuple[Label, ...]:
    """Calls, the innermost first; of many those at both ends."""
    left_out = len(calls) - _MOST_CALLS + 1
    if left_out < 2:
        return calls
    *inner, last = calls[: _MOST_CALLS // 2]
    last = replace(last, text=f"{last.text}, by {left_out} more in turn")
    return (*inner, last, *calls[-(_MOST_CALLS // 2 - 1) :])


def quoted(span: Span, otherwise: str) -> str:
    """The source text of a span, for use in a help text; `otherwise` where that is long or more than one line."""
    return brief(span.text, otherwise)


def brief(text: str, otherwise: str) -> str:
    return text if text and len(text) <= 40 and "\n" not in text else otherwise
