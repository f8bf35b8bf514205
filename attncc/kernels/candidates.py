"""The plans that one kernel may have, the fastest first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from ..analysis.canvas import Canvas
from ..analysis.mask.plain import plain_on
from ..analysis.mask.tiles import analyse, analyse_patches, analyse_windows
from ..analysis.rules import TileRules
from ..analysis.tiles_2d.patches import WORTH, find_canvas, live_share
from ..analysis.tiles_2d.windows import WINDOW_ROWS, find_window, window_share
from ..diagnostics import AttnccError, Diagnostic
from ..ir import Variant
from ..schedule.knobs import TILE_KNOBS, Value
from ..schedule.plan import KEY_PASSES, PATCHED_PASSES, Build, Choice, KernelPlan
from ..schedule.plan_json import to_json
from ..schedule.schedule import Schedule
from . import legality
from .guess import TILE_COST
from .known_tiles import known_tiles
from .registry import find, forward_facts, kinds, most_general, why_not
from .settings import loop_set

_MAY_PAY = 2  # times what patches may leave for windows to be tried


@dataclass(frozen=True)
class Candidates:
    """The plans that one kernel may have, the fastest first: each leaves it more registers than the one before.

    What the variant computes tells where to begin (`instruction_cost`); whether that is enough, ptxas alone knows. The
    plans of the portable family come last.
    """

    variant: Variant
    build: Build
    schedule: Schedule
    canvas: Canvas | None = None  # of the passes in patches
    _made: dict[Choice, KernelPlan] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def names_tiles(self) -> bool:
        """Whether the schedule settles the tiles: there is one candidate then."""
        return any(name in self.schedule.chosen for name in TILE_KNOBS)

    @property
    def first(self) -> KernelPlan:
        """The plan where nothing is compiled: what is known to be chosen, or else the first.

        AttnccError A403, A405 to A412, with the arithmetic, where none can be.
        """
        return self.known or next(self.plans())

    @cached_property
    def known(self) -> KernelPlan | None:
        """What a table says was chosen of these."""
        tiles = None if self.names_tiles else known_tiles(self.key)
        return None if tiles is None else next((plan for plan in self.plans() if plan.tiles == tiles), None)

    @cached_property
    def key(self) -> str:
        """Stands for all that the choice depends on, but for templates and compilers: by it the table is kept."""
        variant = to_json(replace(self.variant, name="", documentation=""))
        canvas = None if self.canvas is None else asdict(self.canvas)
        asked = [variant, asdict(self.build), self.settings, self.schedule.target, canvas]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]

    def plans(self) -> Iterator[KernelPlan]:
        """From the first guess on, without those that can't be.

        AttnccError A403, A405 to A412, with the arithmetic, where none can be: what forbids the first.
        """
        legality.check_build(self.build, self.schedule.span)
        refusal: AttnccError | None = None
        found = False
        for plan in map(self.plan, self._choices()):
            try:
                legality.check(plan, self.schedule.where)
            except AttnccError as error:
                refusal = refusal or error
            else:
                found = True
                yield plan
            if self.names_tiles:
                break
        if not found and refusal is not None:
            raise refusal

    def refused_before(self, plan: KernelPlan) -> dict[str, str]:
        """Of those before one of `plans`, which can't be, by their tiles, and why."""
        found: dict[str, str] = {}
        for above in takewhile(lambda item: item is not plan, map(self.plan, self._choices())):
            try:
                legality.check(above, self.schedule.where)
            except AttnccError as error:
                first = error.diagnostics[0]
                found[above.tiles] = "; ".join([first.message, *first.notes[:1]])
        return found

    def _choices(self) -> Iterator[Choice]:
        seen: set[Choice] = set()
        for kind in self.families:
            family = find(kind, self.build.pass_name)
            if family is None:
                lacked, loop = why_not(kind, self.build.pass_name), loop_set(self.settings, self.build)
                raise AttnccError(legality.no_kernel(kind, lacked, self.build, loop, self.schedule.where))
            for choice in family.begin(self):
                if choice not in seen:
                    yield choice
                seen.add(choice)

    @property
    def settings(self) -> dict[str, Value]:
        return self.schedule.chosen

    @property
    def families(self) -> tuple[str, ...]:
        """Values of the knob `family`: of those that can make the kernel, the fastest first."""
        if "family" in self.settings:
            return (str(self.settings["family"]),)
        written_for = replace(self.build, target=self.schedule.target)
        loop = loop_set(self.settings, self.build)
        return kinds(written_for, loop) or (most_general(written_for, loop),)

    def plan(self, choice: Choice) -> KernelPlan:
        if choice not in self._made:
            self._made[choice] = self._new_plan(choice)
        return self._made[choice]

    @cached_property
    def window(self) -> Canvas | None:
        """What tiles of WINDOW_ROWS rows of the canvas are, if windows pay."""
        if self.canvas is None or self.build.pass_name != "patches":
            return None
        return find_window(self.variant, self.canvas)

    def _canvas_of(self, choice: Choice) -> Canvas | None:
        family = find(choice.family, self.build.pass_name)
        window = self.window if family is not None and family.has_windows else None
        return window if window and choice.block_kv == WINDOW_ROWS * window.kv_columns else self.canvas

    def _rules(self, choice: Choice, canvas: Canvas | None) -> TileRules:
        blocks, inner = (choice.block_q, choice.block_kv), "q" if self.build.pass_name in KEY_PASSES else "kv"
        if canvas is None:
            family = find(choice.family, self.build.pass_name)
            searches = family is not None and family.searches(choice.loop)
            return analyse(self.variant, *blocks, inner, searches=searches)
        found = analyse_windows(self.variant, *blocks, canvas) if canvas.window else None
        return found or analyse_patches(self.variant, *blocks, canvas, inner)

    def _new_plan(self, choice: Choice) -> KernelPlan:
        build, canvas = self.build, self._canvas_of(choice)
        rules = self._rules(choice, canvas)
        return KernelPlan(variant=self.variant, rules=rules, canvas=canvas, **asdict(build), **asdict(choice))


def make_patches(stretches: Candidates, schedule: Schedule | None = None) -> Candidates | None:
    """The pass `forward` or `backward` in tiles that are patches of a canvas, where those leave much less to compute;
    else None.

    Dropout asks for keys that stand beside each other. Forward, a canvas asks for `loop = q_outer` and all keys in one
    block, backward for the family hopper. AttnccError A409 if there is a schedule for what can't be.
    """
    plan, name = stretches.first, PATCHED_PASSES[stretches.build.pass_name]
    able = _can_have_patches(plan) and plan.skip != "never" and plan.variant.dropout is None
    found = _in_patches(stretches, name) if able else None
    if found is not None:
        return found if schedule is None else replace(found, schedule=schedule)
    if schedule is not None:
        needed = "the family hopper" if plan.is_backward else "`loop = q_outer`"
        raise AttnccError(
            Diagnostic(
                "A409",
                f"patches of a canvas don't serve {stretches.variant.name}",
                schedule.span,
                notes=(f"they must leave far fewer pairs than stretches of positions do, and need {needed}",),
                help="remove the schedule",
            )
        )
    return None


def _can_have_patches(plan: KernelPlan) -> bool:
    if plan.is_backward:
        return find(plan.family, PATCHED_PASSES[plan.pass_name]) is not None
    return plan.loop == "q_outer" and plan.split_kv == 1


def _in_patches(stretches: Candidates, name: str) -> Candidates | None:
    """The candidates of a pass in patches, if the first of its plans leaves much less to compute.

    What may pay is counted for the rows that kernels tell apart, those of a warpgroup in the family hopper. Windows may
    leave half of what patches do.
    """
    plan = stretches.first
    rows = _rows_apart(plan)
    canvas = find_canvas(plan.variant, rows, min(plan.block_kv, rows), plan.rules, _MAY_PAY * WORTH)
    if canvas is None:
        return None
    schedule = replace(stretches.schedule, pass_name=name, settings=_family(stretches.schedule))
    variant = plain_on(stretches.variant, canvas.width)
    found = Candidates(variant, replace(stretches.build, pass_name=name), schedule, canvas)
    return found if _work(found.first, canvas.width) < WORTH * _work(plan, canvas.width) else None


def _rows_apart(plan: KernelPlan) -> int:
    """The rows of a block of queries for which tiles are told to be live."""
    return plan.block_q if plan.is_backward else plan.block_q // forward_facts(plan).row_groups


def _work(plan: KernelPlan, width: int) -> float:
    """What a plan computes of a sample's pairs, with what each tile costs beside them."""
    if plan.rules.columns is not None and plan.canvas is not None:
        share = window_share(plan.rules, plan.canvas, _rows_apart(plan))
    else:
        share = live_share(plan.rules, plan.canvas, _rows_apart(plan), plan.block_kv, width)
    return share * (plan.block_kv + TILE_COST) / plan.block_kv


def _family(schedule: Schedule) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    return tuple((name, values) for name, values in schedule.settings if name == "family")


def make_candidates(variant: Variant, build: Build, schedule: Schedule | None = None) -> Candidates:
    """What one kernel may look like: what the schedule sets (the first of its candidates), defaults for the rest."""
    return Candidates(variant, build, schedule or Schedule("default", variant.name, build.pass_name, build.target))


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
    """The first of the plans that a kernel may have; nothing is compiled.

    AttnccError A403, A405 to A412, with the arithmetic, where there can be no such kernel.
    """
    return make_candidates(variant, Build(pass_name, target, dtype, head_dim, value_head_dim), schedule).first
