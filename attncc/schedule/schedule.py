"""`Schedule`: how a variant runs, as the user wrote it; `kernels.candidates` fills in what it leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from ..diagnostics import AttnccError, Diagnostics
from ..source import Span
from . import knobs
from .knobs import Value
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
    found.raise_errors()
    return Schedule(
        node.name.name,
        node.variant.name,
        "forward" if node.pass_name is None else node.pass_name.name,
        node.target.name,
        tuple((setting.knob.name, setting.values) for setting in node.settings),
        node.span,
        tuple(setting.span for setting in node.settings),
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
