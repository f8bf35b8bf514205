"""The plans that one kernel may have, the fastest first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from ..analysis.grid_2d import Grid2D
from ..analysis.mask.plain import plain_on
from ..analysis.mask.tiles import analyse, analyse_tiles_2d, analyse_windows
from ..analysis.rules import TileRules
from ..analysis.tiles_2d.fixed import WORTH, find_grid, live_share
from ..analysis.tiles_2d.windows import WINDOW_ROWS, find_window, window_share
from ..diagnostics import AttnccError, Diagnostic
from ..ir import Variant
from ..schedule.choice import TILE_KNOBS, Choice, Value
from ..schedule.plan import KEY_PASSES, TILES_2D_PASSES, Build, KernelPlan
from ..schedule.plan_json import to_json
from ..schedule.schedule import Schedule
from . import legality
from .guess import TILE_COST
from .known_tiles import known_tiles
from .registry import find, forward_facts, kinds, most_general, why_not
from .settings import loop_set

# Of a build: what keys without it were kept by.
_OFTEN_UNSET = ("paged", "kv_dtype", "prefixed", "least_rows", "one_block", "split", "unclustered")
_MAY_PAY = 2  # times what fixed tiles may leave for windows to be tried


@dataclass(frozen=True)
class Candidates:
    """The plans that one kernel may have, the fastest first: each leaves it more registers than the one before.

    What the variant computes tells where to begin (`instruction_cost`); whether that is enough, ptxas alone knows. The
    plans of the portable family come last.
    """

    variant: Variant
    build: Build
    schedule: Schedule
    grid_2d: Grid2D | None = None  # of the passes in 2-D tiles
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
        grid_2d = None if self.grid_2d is None else asdict(self.grid_2d)
        build = {name: value for name, value in asdict(self.build).items() if name not in _OFTEN_UNSET or value}
        if self.build.lengths is None:
            del build["lengths"]
        asked = [variant, build, self.settings, self.schedule.target, grid_2d]
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
            family, loop = find(kind, self.build.pass_name), loop_set(self.settings, self.build)
            lacked = why_not(kind, self.build.pass_name) if family is None else family.lacks_dims(self.build, loop)
            if family is None or lacked is not None:
                raise AttnccError(legality.no_kernel(kind, str(lacked), self.build, loop, self.schedule.where))
            for choice in family.begin(self):
                if choice not in seen:
                    yield choice
                seen.add(choice)
            if not seen:
                lacked = family.lacks(self.build, loop) or "tiles for this"
                raise AttnccError(legality.no_kernel(kind, lacked, self.build, loop, self.schedule.where))

    @property
    def short(self) -> Candidates | None:
        """Of calls so short that tiles of their own are faster, where no schedule says anything; None if none are."""
        kind = self.families[0]
        family = find(kind, self.build.pass_name)
        lengths = None if family is None or self.settings else family.short_lengths(self)
        return None if lengths is None else replace(self, build=replace(self.build, lengths=lengths))

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
    def window(self) -> Grid2D | None:
        """What tiles of WINDOW_ROWS rows of the grid are, if windows pay."""
        if self.grid_2d is None or self.build.pass_name != "patches":
            return None
        return find_window(self.variant, self.grid_2d)

    def _grid_of(self, choice: Choice) -> Grid2D | None:
        family = find(choice.family, self.build.pass_name)
        window = self.window if family is not None and family.has_windows else None
        return window if window and choice.block_kv == WINDOW_ROWS * window.kv_columns else self.grid_2d

    def _rules(self, choice: Choice, grid_2d: Grid2D | None) -> TileRules:
        blocks, inner = (choice.block_q, choice.block_kv), "q" if self.build.pass_name in KEY_PASSES else "kv"
        if grid_2d is None:
            family = find(choice.family, self.build.pass_name)
            searches = family is not None and family.searches(choice.loop)
            return analyse(self.variant, *blocks, inner, searches=searches)
        found = analyse_windows(self.variant, *blocks, grid_2d) if grid_2d.window else None
        return found or analyse_tiles_2d(self.variant, *blocks, grid_2d, inner)

    def _new_plan(self, choice: Choice) -> KernelPlan:
        build, grid_2d = self.build, self._grid_of(choice)
        rules, family = self._rules(choice, grid_2d), find(choice.family, build.pass_name)
        early = family is not None and family.begins_early(self.variant, build)
        of_build, of_tiles = asdict(build), asdict(choice)
        return KernelPlan(
            variant=self.variant, rules=rules, grid_2d=grid_2d, begins_early=early, **of_build, **of_tiles
        )


def make_tiles_2d(tiles_1d: Candidates, schedule: Schedule | None = None) -> Candidates | None:
    """The pass `forward` or `backward` in 2-D tiles, where those leave much less to compute; else None.

    Dropout asks for keys that stand beside each other. Forward, a grid asks for `loop = q_outer` and all keys in one
    block, backward for the family hopper. AttnccError A409 if there is a schedule for what can't be.
    """
    plan, name = tiles_1d.first, TILES_2D_PASSES[tiles_1d.build.pass_name]
    able = _can_have_tiles_2d(plan) and plan.skip != "never" and plan.variant.dropout is None
    found = _in_tiles_2d(tiles_1d, name) if able else None
    if found is not None:
        return found if schedule is None else replace(found, schedule=schedule)
    if schedule is not None:
        needed = "the family hopper" if plan.is_backward else "`loop = q_outer`"
        raise AttnccError(
            Diagnostic(
                "A409",
                f"2-D tiles don't serve {tiles_1d.variant.name}",
                schedule.span,
                notes=(f"they must leave far fewer pairs than 1-D tiles do, and need {needed}",),
                help="remove the schedule",
            )
        )
    return None


def _can_have_tiles_2d(plan: KernelPlan) -> bool:
    if plan.is_backward:
        return find(plan.family, TILES_2D_PASSES[plan.pass_name]) is not None
    has_pass = find(plan.family, TILES_2D_PASSES[plan.pass_name]) is not None
    return has_pass and plan.loop == "q_outer" and plan.split_kv == 1


def _in_tiles_2d(tiles_1d: Candidates, name: str) -> Candidates | None:
    """The candidates of a pass in 2-D tiles, if the first of its plans leaves much less to compute.

    What may pay is counted for the rows that kernels tell apart, those of a warpgroup in the family hopper. Windows may
    leave half of what fixed tiles do.
    """
    plan = tiles_1d.first
    rows = _group_rows(plan)
    grid_2d = find_grid(plan.variant, rows, min(plan.block_kv, rows), plan.rules, _MAY_PAY * WORTH)
    if grid_2d is None:
        return None
    schedule = replace(tiles_1d.schedule, pass_name=name, settings=_family(tiles_1d.schedule))
    variant = plain_on(tiles_1d.variant, grid_2d.width)
    found = Candidates(variant, replace(tiles_1d.build, pass_name=name), schedule, grid_2d)
    return found if _work(found.first, grid_2d.width) < WORTH * _work(plan, grid_2d.width) else None


def _group_rows(plan: KernelPlan) -> int:
    """The rows of a block of queries for which tiles are told to be live."""
    return plan.block_q if plan.is_backward else plan.block_q // forward_facts(plan).row_groups


def _work(plan: KernelPlan, width: int) -> float:
    """What a plan computes of a sample's pairs, with what each tile costs beside them."""
    if plan.rules.columns is not None and plan.grid_2d is not None:
        share = window_share(plan.rules, plan.grid_2d, _group_rows(plan))
    else:
        share = live_share(plan.rules, plan.grid_2d, _group_rows(plan), plan.block_kv, width)
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
