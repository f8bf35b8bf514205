"""Which terms become statements: the order of lets, keep and score lines, and what is written into its one reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..ir import Type
from .kinds import Kinds
from .masking import is_true
from .operators import writes_twice
from .terms import Apply, Element, Named, Reduce, Role, Score, Term, Variable, walk

_AND = ("and", "logical_and", "py_and", "mul", "min")  # of bools


@dataclass(frozen=True, eq=False)
class Line:
    """A keep (`version` None) or score line; `version` counts the score lines before it."""

    term: Term
    order: int
    version: int | None = None


Statement = Line | Named


class Layout:
    """What the lines of a variant read, and where it is written.

    `consts` are known when the variant is built; `lets` and lines stand in the order in which Python computes them,
    since a let of the score has the value that this has there.
    """

    def __init__(self, keeps: Sequence[Line], scores: Sequence[Line], kinds: Kinds) -> None:
        self.kinds = kinds
        self.lines = [*keeps, *scores]
        self._cuts = [line.order for line in scores]
        self.named = list(dict.fromkeys(term for term in walk(*self.roots) if isinstance(term, Named)))
        self.readers: dict[Named, list[Statement]] = {item: [] for item in self.named}
        statements: list[Statement] = [*self.lines, *self.named]
        for statement in statements:
            for item in _direct(statement):
                self.readers[item].append(statement)
        self._twice = {arg for term in walk(*self.roots) if isinstance(term, Apply) for arg in self._repeated(term)}
        self._joined = {item for line in keeps for item in self._joined_by_and(line.term)}
        self.inlined = frozenset(item for item in self.named if self._is_inlined(item))
        written = sorted((item for item in self.named if item not in self.inlined), key=lambda item: item.order)
        self.consts = [item for item in written if _is_const(item)]
        lets = [item for item in written if not _is_const(item)]
        self.statements: list[Statement] = sorted([*lets, *self.lines], key=lambda item: item.order)

    @property
    def roots(self) -> list[Term]:
        return [line.term for line in self.lines]

    def own(self, statement: Statement) -> Iterator[Term]:
        """The terms that a statement writes out itself."""
        stack = [statement.value if isinstance(statement, Named) else statement.term]
        while stack:
            term = stack.pop()
            yield term
            if not isinstance(term, Named) or term in self.inlined:
                stack.extend(term.children)

    def conjuncts(self, line: Line) -> list[Term]:
        """A keep line as several, where it joins conditions by `and`."""
        term = line.term
        while isinstance(term, Named) and term in self.inlined:
            term = term.value
        if not (isinstance(term, Apply) and term.op in _AND and self.kinds.of(term) is Type.BOOL):
            return [] if is_true(term) else [term]
        return [part for arg in term.children for part in self.conjuncts(Line(arg, line.order))]

    def loop_variables(self) -> list[list[Variable]]:
        """The variables of loops that may share a name: those of one name, unless one loop is inside of the other."""
        groups: dict[tuple[str, int], list[Variable]] = {}
        loops = [term for term in walk(*self.roots) if isinstance(term, Reduce)]
        for loop in loops:
            around = [other for other in loops if other is not loop and loop in walk(other.body)]
            depth = sum(other.variable.name == loop.variable.name for other in around)
            groups.setdefault((loop.variable.name, depth), []).append(loop.variable)
        return list(groups.values())

    def _is_inlined(self, item: Named) -> bool:
        """A value that is read once, and has no better name than that of a parameter or of its reader."""
        if item.role is Role.ARGUMENT and _is_const(item):
            return True
        if item.role is Role.OUTER or len(self.readers[item]) != 1 or item in self._twice:
            return False
        reader = self.readers[item][0]
        if any(item.order < cut < reader.order for cut in self._cuts) and _reads_score(item):
            return False
        whole = reader.value if isinstance(reader, Named) else reader.term
        same_name = isinstance(reader, Named) and (reader.name == item.name or whole is item)
        is_line = item in self._joined or (whole is item and not isinstance(reader, Named))
        return item.role is Role.ARGUMENT or same_name or is_line

    def _repeated(self, term: Apply) -> Sequence[Term]:
        return term.args if writes_twice(term, self.kinds.of(term.args[0])) else ()

    def _joined_by_and(self, term: Term) -> Iterator[Named]:
        """The names for conditions of a keep line that nothing else reads: each becomes a line of its own."""
        if isinstance(term, Named) and len(self.readers[term]) == 1:
            yield term
            yield from self._joined_by_and(term.value)
        elif isinstance(term, Apply) and term.op in _AND:
            for arg in term.args:
                yield from self._joined_by_and(arg)


def _direct(statement: Statement) -> Iterator[Named]:
    """The names that a statement reads, not those that they read in turn."""
    stack = [statement.value if isinstance(statement, Named) else statement.term]
    while stack:
        term = stack.pop()
        if isinstance(term, Named):
            yield term
        else:
            stack.extend(term.children)


def _is_const(item: Named) -> bool:
    return not item.varies and not any(isinstance(term, Element) for term in walk(item))


def _reads_score(item: Named) -> bool:
    return any(isinstance(term, Score) for term in walk(item))
