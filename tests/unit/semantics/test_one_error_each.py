"""One mistake is one error, also where it makes everything that uses it wrong."""

from __future__ import annotations

import pytest

from attncc.diagnostics import AttnccError, Diagnostic
from attncc.semantics.load import load
from attncc.semantics.report import Report
from attncc.source import SourceFile, Span
from tests.large_files import chain, variant


def errors(text: str) -> list[Diagnostic]:
    with pytest.raises(AttnccError) as caught:
        load(SourceFile("x.attn", f"attn 1\n{text}"))
    return list(caught.value.diagnostics)


def test_masks_that_double_are_too_large_once() -> None:
    """Each mask from the tenth on is too large by itself, and so is the line that calls the last."""
    masks = chain("mask", "m", "kv_idx > x", "@(x) and @(x + 1)", 15)
    (found,) = errors(masks + variant("keep if m15(q_idx)"))
    assert found.code == "A220"


def test_of_many_calls_those_at_both_ends_are_shown() -> None:
    source = SourceFile("x.attn", "abcdefghijklmnopqrstuvwxyz")
    report = Report()
    for number in reversed(range(20)):
        report = report.inside(Span(source, number, number + 1), f"m{number}")
    report.error("A1", "m", Span(source, 25, 26))
    (found,) = report.found.items
    shown = ["`m0`", "`m1`", "`m2` is used here, by 15 more in turn", "`m18`", "`m19`"]
    assert [label.text.removesuffix(" is used here") for label in found.labels] == shown


def test_a_sum_of_many_terms_is_told_why_it_is_nested() -> None:
    (found,) = errors(variant(f"score = score{' + 1.0' * 200}"))
    assert found.code == "A010" and "each operator of a chain is a level" in found.notes[0]
