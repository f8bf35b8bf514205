"""From targets to the text of a `.attn` file: find the mods, read them, guess their inputs, write, check."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..diagnostics import Diagnostic, Diagnostics
from ..quoting import attn_comment
from ..semantics.load import load
from ..source import SourceFile
from ..syntax import printer
from ..syntax.formatter import format_source
from .calls import bind_mod, body
from .inputs import Inputs, declared_inputs, may_count_from_the_end
from .kinds import Kinds
from .layout import Layout, Line
from .machine import Machine, ScoreLine
from .masking import separate
from .naming import Naming, variant_name
from .rules import RULES
from .targets import Mod, find_mods
from .terms import Captured, Element, Named, Score, Symbol, Variable, bare, walk
from .write import Writer

_WIDTH = 118  # of comment lines


@dataclass(frozen=True)
class Imported:
    """A formatted, checked `.attn` text, and what the check warns of."""

    text: str
    warnings: tuple[Diagnostic, ...]


def import_flex(targets: Sequence[str], inputs: Iterable[str] = (), name: str | None = None) -> Imported:
    """One variant that computes what FlexAttention does with these mods: the masks AND-ed, the scores in order.

    A target is `FILE.py:function`, where the function is a mod or returns one; `inputs` declare captured values, as in
    `doc:i32[batch, pos]`. The Python text is read and never run.
    AttnccError A7xx with everything that can't be taken, or A0xx for an input that isn't `.attn`.
    """
    declared = declared_inputs(inputs)
    found = Diagnostics()
    machine = Machine(found, RULES, declared)
    mods = [mod for target in targets for mod in find_mods(machine, target)]
    mods.sort(key=lambda mod: not mod.is_mask)
    keeps = _read(machine, mods)
    found.raise_errors()
    wanted = name or "_".join(dict.fromkeys(mod.name for mod in mods))
    draft = _Draft(keeps, machine.scores, Inputs(declared, found), found)
    text = draft.text(variant_name(wanted), list(dict.fromkeys(mod.target for mod in mods)))
    found.raise_errors()
    source = SourceFile(f"{wanted}.attn", format_source(SourceFile(f"{wanted}.attn", text)))
    return Imported(source.text, load(source).warnings)


def _read(machine: Machine, mods: Sequence[Mod]) -> list[Line]:
    """What the mask_mods keep. What the score_mods compute becomes score lines of the machine."""
    keeps: list[Line] = []
    for mod in mods:
        with machine.mode(inside=True):
            scope = bind_mod(machine, mod.function, mod.is_mask, mod.span)
            result = body(machine, mod.function, scope)
            term = machine.number(result, machine.span(mod.function.node, mod.function.scope))
        if term is None:
            continue
        if mod.is_mask:
            keeps.append(Line(term, machine.tick()))
        elif not (isinstance(term, Score) and term.version == len(machine.scores)):
            machine.score_line(term)
    return keeps


class _Draft:
    """The text of one variant, before it is formatted."""

    def __init__(self, keeps: Sequence[Line], scores: Sequence[ScoreLine], inputs: Inputs, found: Diagnostics) -> None:
        hidden, shown = separate(scores)
        masks = [*keeps, *(Line(line.value, line.order) for line in hidden)]
        lines = [Line(line.value, line.order, version) for version, line in enumerate(shown)]
        self.found = found
        self.versions = _same_scores(lines)
        inputs.collect([line.term for line in (*masks, *lines)])
        found.raise_errors()
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

    def text(self, name: str, targets: Sequence[str]) -> str:
        statements = [*self._consts(), *self._inputs(), *self._statements()]
        comment = "\n".join(
            f"# {line}" for part in self._notes(targets) for line in textwrap.wrap(attn_comment(part), _WIDTH)
        )
        return "\n".join(["attn 1", "", comment, f"variant {name} {{", *statements, "}", ""])

    # ---------------------------------------------------------------- statements

    def _consts(self) -> Iterator[str]:
        for item in self.layout.consts:
            written = self.writer.write(item.value)
            self.writer.types[item] = written.kind
            yield f"const {self.writer.names[item]}: {written.kind.value} = {printer.expression(written.node)}"

    def _inputs(self) -> Iterator[str]:
        for line in self.inputs.values():
            yield f"input {line.name}: {line.declaration}  # {attn_comment(line.comment)}"

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

    # ---------------------------------------------------------------- comments

    def _notes(self, targets: Sequence[str]) -> Iterator[str]:
        terms = list(walk(*self.layout.roots))
        yield f"Imported from FlexAttention: {', '.join(targets)}."
        if any(isinstance(term, Symbol) and term.name == "q_idx" for term in terms):
            yield _ALIGNMENT
        if any(line.comment.startswith("a guess") for line in self.inputs.values()):
            yield _GUESSES
        if may_count_from_the_end(self.layout.roots):
            yield _NEGATIVE


_ALIGNMENT = (
    "q_idx is the query's own index, as in FlexAttention: top-left aligned, query 0 beside key 0. Where q_len differs "
    "from kv_len (decoding, chunks), q_pos is the query's place among the keys."
)
_GUESSES = "A guess is made from how the mod uses an input: change dtype or axes where it is wrong."
_NEGATIVE = "An index below 0 reads 0 here; PyTorch would count it from the end."


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
