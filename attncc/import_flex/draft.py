"""The text of one variant: the terms of its lines laid out as statements."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from ..diagnostics import Diagnostics
from ..quoting import attn_comment
from ..syntax import printer
from .inputs import Inputs
from .kinds import Kinds
from .layout import Layout, Line
from .machine import ScoreLine
from .masking import separate
from .naming import Naming
from .terms import Captured, Element, Named, Score, Variable, bare, walk
from .write import Writer

_WIDTH = 118  # of comment lines


class Draft:
    """The text of one variant, before it is formatted."""

    def __init__(self, keeps: Sequence[Line], scores: Sequence[ScoreLine], inputs: Inputs, found: Diagnostics) -> None:
        hidden, shown = separate(scores)
        masks = [*keeps, *(Line(line.value, line.order) for line in hidden)]
        lines = [Line(line.value, line.order, version) for version, line in enumerate(shown)]
        self.found = found
        self.versions = _same_scores(lines)
        inputs.collect([line.term for line in (*masks, *lines)])
        found.raise_errors()
        self.uses = inputs.uses
        self.declared = {item for item in inputs.uses if inputs.declaration(item) is not None}
        self.kinds = Kinds(inputs.known_kinds())
        self.kinds.infer([line.term for line in masks], [line.term for line in lines])
        self.layout = Layout(masks, lines, self.kinds)
        self.naming = Naming()
        consts: dict[Named | Variable, str] = {
            item: self.naming.fresh(item.name, "const") for item in self.layout.consts
        }
        self.inputs = inputs.write(self.kinds, self.naming, _learnable(lines))
        names = {captured: line.name for captured, line in self.inputs.items()}
        self.writer = Writer(self.kinds, names, found, self.layout.inlined)
        self.writer.names.update(consts)
        for group in self.layout.loop_variables():
            shared = self.naming.fresh(group[0].name, "loop variable")
            self.writer.names.update(dict.fromkeys(group, shared))

    def text(self, name: str, notes: Iterable[str], inputs: Iterable[str] = (), settings: Iterable[str] = ()) -> str:
        """The variant under this name, with the notes as comments above it, and with further inputs and settings."""
        further = [f"input {item}" for item in inputs]
        statements = [*self._consts(), *self._inputs(), *further, *self._statements(), *settings]
        comment = "\n".join(f"# {line}" for part in notes for line in textwrap.wrap(attn_comment(part), _WIDTH))
        return "\n".join(["attn 1", "", comment, f"variant {name} {{", *statements, "}", ""])

    # ---------------------------------------------------------------- statements

    def _consts(self) -> Iterator[str]:
        for item in self.layout.consts:
            written = self.writer.write(item.value)
            self.writer.types[item] = written.kind
            yield f"const {self.writer.names[item]}: {written.kind.value} = {printer.expression(written.node)}"

    def _inputs(self) -> Iterator[str]:
        for line in self.inputs.values():
            comment = f"  # {attn_comment(line.comment)}" if line.comment else ""
            yield f"input {line.name}: {line.declaration}{comment}"

    def _statements(self) -> Iterator[str]:
        """Lets, keep and score lines. What the score was before is kept in a let where it is read later."""
        self.writer.scores = {0: "score"}
        stale = self._read_late()
        last_mask = max((line.order for line in self.layout.lines if line.version is None), default=0)
        part = None
        for item in self.layout.statements:
            if part != (part := item.order <= last_mask):
                yield ""
            if isinstance(item, Named):
                yield self._let(item)
            elif item.version is None:
                yield from self._keeps(item)
            else:
                yield from self._score(item, item.version, stale)

    def _let(self, item: Named) -> str:
        written = self.writer.write(item.value)
        self.writer.names[item] = self.naming.fresh(item.name, "let")
        self.writer.types[item] = written.written
        return f"let {self.writer.names[item]} = {printer.expression(written.node)}"

    def _keeps(self, line: Line) -> Iterator[str]:
        for term in self.layout.conjuncts(line):
            yield f"keep if {printer.expression(self.writer.condition(term))}"

    def _score(self, line: Line, version: int, stale: set[int]) -> Iterator[str]:
        if self.versions[version + 1] == self.versions[version]:
            self.writer.scores[version + 1] = self.writer.scores[version]
            return
        value = printer.expression(self.writer.number(line.term).node)
        same = [number for number, first in self.versions.items() if first == self.versions[version]]
        if stale.intersection(same):
            kept = self.naming.fresh("score_before", "let")
            yield f"let {kept} = score"
            self.writer.scores.update(dict.fromkeys(same, kept))
        self.writer.scores[version + 1] = "score"
        yield f"score = {value}"

    def _read_late(self) -> set[int]:
        """The versions of the score that are read when there is a newer one."""
        stale: set[int] = set()
        now = 0
        for item in self.layout.statements:
            read = {term.version for term in self.layout.own(item) if isinstance(term, Score)}
            stale |= {version for version in read if self.versions[version] != now}
            if isinstance(item, Line) and item.version is not None:
                now = self.versions[item.version + 1]
        return stale


def _same_scores(lines: Sequence[Line]) -> dict[int, int]:
    """For each version of the score the first that is the same: a line `score = score` makes no new one."""
    same = {0: 0}
    for version, line in enumerate(lines):
        value = bare(line.term)
        is_same = isinstance(value, Score) and same[value.version] == same[version]
        same[version + 1] = same[version] if is_same else version + 1
    return same


def _learnable(lines: Sequence[Line]) -> frozenset[Captured]:
    """Parameters of the model that score lines read: their gradient is wanted."""
    terms = walk(*(line.term for line in lines))
    return frozenset(term.captured for term in terms if isinstance(term, Element) and term.captured.learnable)
