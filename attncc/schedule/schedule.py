"""`Schedule`: how a variant runs, as the user wrote it; `make_plan` fills in what it leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from ..analysis.tiles import analyse
from ..diagnostics import AttnccError, Diagnostics
from ..ir import Variant
from ..source import Span
from . import knobs, legality
from .choices import Build, choose, loop_of
from .families import default_family
from .knobs import Value
from .plan import KernelPlan
from .target import TARGETS
from .weight import is_busy, room

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


def make_plan(
    variant: Variant,
    *,
    dtype: str,
    head_dim: int,
    value_head_dim: int,
    target: str,
    pass_name: str = "forward",
    schedule: Schedule | None = None,
) -> KernelPlan:
    """The plan of one kernel: what the schedule sets (the first of its candidates), good defaults for the rest.

    AttnccError A403, A405 to A412, with the arithmetic, where there can be no such kernel.
    """
    schedule = schedule or Schedule("default", variant.name, pass_name, target)
    build = Build(pass_name, target, dtype, head_dim, value_head_dim)
    legality.check_build(build, schedule.span)
    chosen = schedule.chosen
    loop = str(chosen.get("loop", loop_of(pass_name)))
    family = str(chosen.get("family") or default_family(schedule.target, dtype, loop, pass_name))
    rung = room(variant) if family == "hopper" else int(is_busy(variant))
    plan = _plan(variant, build, chosen, family, rung)
    if plan.uses_tile_kind:  # registers for that, and smaller tiles find more to skip
        plan = _plan(variant, build, chosen, family, max(rung, 1))
    legality.check(plan, schedule.where)
    return plan


def _plan(variant: Variant, build: Build, chosen: Mapping[str, Value], family: str, rung: int) -> KernelPlan:
    choice = choose(chosen, build, family, rung)
    return KernelPlan(
        variant,
        analyse(variant, choice.block_q, choice.block_kv, "q" if build.pass_name == "backward" else "kv"),
        build.pass_name,
        build.target,
        build.dtype,
        build.head_dim,
        build.value_head_dim,
        choice.loop,
        choice.block_q,
        choice.block_kv,
        choice.warps,
        choice.stages,
        choice.split_kv,
        choice.skip,
        choice.family,
        choice.overlap,
    )
