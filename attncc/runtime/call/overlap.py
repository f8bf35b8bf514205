"""Whether `out` shares memory with what a call on a GPU reads: ranges of addresses, and elements where those meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...problem import ArrayFacts, Call
from ...problem.overlap import addressed, byte_span, elements_meet, shares_memory
from .operands import INPUTS, OUT, K, Q, V


class Span(NamedTuple):
    """Where an operand lies: from `low` to `high`, in bytes from its pointer."""

    name: str
    operand: int
    low: int
    high: int
    facts: ArrayFacts


class Spans(NamedTuple):
    """Those of a call that is given `out`."""

    read: tuple[Span, ...]
    out: Span


def spans_of(call: Call, inputs: Sequence[str]) -> Spans | None:
    """The spans of the arrays that a call reads, and of `out`; None without `out`."""
    if call.out is None:
        return None
    given = dict(call.inputs)
    read = [("q", Q, call.q), ("k", K, call.k), ("v", V, call.v)]
    read += [
        (name, INPUTS + i, facts) for i, name in enumerate(inputs) if isinstance(facts := given.get(name), ArrayFacts)
    ]
    *spans, out = (Span(name, at, *byte_span(facts), facts) for name, at, facts in [*read, ("out", OUT, call.out)])
    return Spans(tuple(spans), out)


def check_spans(spans: Spans, values: Sequence[Any]) -> None:
    """AttnccError A617 if `out` shares memory with what is read; `values` are the pointers of a call."""
    read, out = spans
    base = values[OUT]
    low, high = base + out.low, base + out.high
    for span in read:
        name, operand, span_low, span_high, _ = span
        start = values[operand]
        ranges_meet = start + span_low < high and low < start + span_high
        if ranges_meet and _elements_meet(out, base, span, start):
            raise shares_memory(name)


def _elements_meet(a: Span, a_base: int, b: Span, b_base: int) -> bool:
    """Apart from where errors are raised: who prints a traceback's variables must not find arrays it can't read."""
    return elements_meet(addressed(a.facts, a_base), addressed(b.facts, b_base))
