"""`Schedule`: how a variant runs, as the user wrote it; `kernels.candidates` fills in what it leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from ..diagnostics import AttnccError, Diagnostic, Diagnostics
from ..ir import MAX_LENGTH
from ..source import Span
from . import knobs
from .choice import Value
from .plan import BY_LENGTH, PASSES
from .target import TARGETS

if TYPE_CHECKING:
    from ..syntax import ast


@dataclass(frozen=True)
class Schedule:
    """The settings of one schedule, each with its candidates. What runs is the first of each."""

    name: str
    variant: str
    pass_name: str
    target: str
    settings: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    lengths: tuple[int, int] | None = None  # keys of the calls that it is for, both ends included; None: all
    span: Span | None = field(default=None, compare=False, repr=False)
    setting_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)

    @property
    def chosen(self) -> dict[str, Value]:
        """The value of each knob that is set: the first of its candidates."""
        return {name: values[0] for name, values in self.settings}

    def candidates(self) -> Iterator[Schedule]:
        """One schedule for each combination of candidates, the one that runs first."""
        for values in product(*(values for _, values in self.settings)):
            names = (name for name, _ in self.settings)
            yield replace(self, settings=tuple((name, (value,)) for name, value in zip(names, values, strict=True)))

    def without(self, *names: str) -> Schedule:
        """The same schedule, which doesn't set these knobs."""
        kept = tuple(item for item in self.settings if item[0] not in names)
        spans = zip(self.chosen, self.setting_spans, strict=False)
        return replace(self, settings=kept, setting_spans=tuple(span for name, span in spans if name not in names))

    def where(self, *names: str) -> Span | None:
        """The place of the first of these knobs that is set; else the whole schedule."""
        places: Mapping[str, Span] = dict(zip(self.chosen, self.setting_spans, strict=False))
        return next((places[name] for name in names if name in places), self.span)


def from_ast(node: ast.Schedule) -> Schedule:
    """Judges the knobs, their values and the target of a schedule. AttnccError with every A401 to A404 found."""
    found = Diagnostics()
    if node.target.name not in TARGETS:
        found.add(knobs.unknown_target(node.target, TARGETS))
    before: dict[str, ast.Setting] = {}
    for setting in node.settings:
        found.items += knobs.judge(setting, before)
        before.setdefault(setting.knob.name, setting)
    found.items += _check_lengths(node)
    found.raise_errors()
    return Schedule(
        node.name.name,
        node.variant.name,
        "forward" if node.pass_name is None else node.pass_name.name,
        node.target.name,
        tuple((setting.knob.name, setting.values) for setting in node.settings),
        None if node.lengths is None else ends(node.lengths),
        node.span,
        tuple(setting.span for setting in node.settings),
    )


def ends(lengths: ast.Lengths) -> tuple[int, int]:
    """Both are included."""
    return lengths.first, MAX_LENGTH if lengths.last is None else lengths.last


def _check_lengths(node: ast.Schedule) -> Iterator[Diagnostic]:
    """A415 for a range without lengths, or with ones that no call has, and for a pass that has no ranges."""
    if node.lengths is None:
        return
    first, last = ends(node.lengths)
    if not 0 < first <= last <= MAX_LENGTH:
        why = f"lengths are 1 to {MAX_LENGTH}, and the first is the least"
        what = f"a schedule can't be for lengths {node.lengths.range}"
        yield Diagnostic("A415", what, node.lengths.span, notes=(why,), help="write a range such as 1024..8192")
    name = "forward" if node.pass_name is None else node.pass_name.name
    if name in PASSES and name not in BY_LENGTH:
        passes = ", ".join(BY_LENGTH)
        what = f"the pass {name} has no schedules for ranges of lengths"
        yield Diagnostic(
            "A415", what, node.lengths.span, notes=(f"there are such of {passes}",), help="remove the range"
        )


def from_asts(nodes: Iterable[ast.Schedule]) -> tuple[Schedule, ...]:
    """`from_ast` of each. AttnccError with what is wrong with any of them."""
    found, judged = Diagnostics(), []
    for node in nodes:
        try:
            judged.append(from_ast(node))
        except AttnccError as error:
            found.items += error.diagnostics
    found.raise_errors()
    return tuple(judged)
