from __future__ import annotations

from attncc.semantics.report import Report, quoted
from attncc.source import SourceFile, Span

MAIN, OTHER = SourceFile("main.attn", "abcdefghij"), SourceFile("other.attn", "klmnopqrst")


def test_the_same_is_said_once() -> None:
    report = Report()
    for code, message, at in [("A1", "m", 0), ("A1", "m", 0), ("A1", "n", 0), ("A2", "m", 0), ("A1", "m", 1)]:
        report.error(code, message, Span(MAIN, at, at + 1))
    assert len(report.found.items) == 4


def test_order() -> None:
    report = Report()
    for source, start in [(MAIN, 5), (OTHER, 3), (MAIN, 1), (OTHER, 2)]:
        report.error("A1", "m", Span(source, start, start + 1))
    assert [item.span.text for item in report.in_order().items] == ["b", "f", "m", "n"]


def test_the_calls_that_led_into_a_mask_are_shown() -> None:
    report = Report()
    inside = report.inside(Span(MAIN, 0, 1), "outer").inside(Span(OTHER, 0, 1), "inner")
    inside.error("A1", "m", Span(OTHER, 5, 6))
    (found,) = report.found.items
    assert [label.text for label in found.labels] == ["`inner` is used here", "`outer` is used here"]


def test_warnings_are_no_errors() -> None:
    report = Report()
    report.warning("A1", "m", Span(MAIN, 0, 1))
    assert not report.has_errors
    report.in_order().raise_errors()


def test_long_texts_are_not_quoted() -> None:
    assert quoted(Span(MAIN, 1, 4), "x") == "bcd"
    assert quoted(Span(SourceFile("a", "b\nc"), 0, 3), "x") == "x"
    assert quoted(Span(SourceFile("a", "b" * 41), 0, 41), "x") == "x"
