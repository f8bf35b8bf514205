"""`Schedule`: how a variant runs, as the user wrote it; `make_plan` fills in what it leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, product, takewhile
from typing import TYPE_CHECKING

from ..analysis.canvas import Canvas
from ..analysis.patches import find_canvas, live_share, widths
from ..analysis.rules import TileRules
from ..analysis.tiles import analyse, analyse_patches, analyse_windows
from ..analysis.windows import WINDOW_ROWS, find_window
from ..diagnostics import AttnccError, Diagnostic, Diagnostics
from ..ir import Variant
from ..source import Span
from . import knobs, legality
from .choices import Build, Choice, choose, guesses, loop_of, rungs
from .crowding import crowded
from .families import default_family
from .grain import key_blocks, suits
from .hopper_tiles import light_tiles, window_tiles
from .knobs import Value
from .plan import BACKWARD_PASSES, KEY_PASSES, PATCHED_PASSES, KernelPlan
from .target import TARGETS
from .weight import Room, is_plain, room, room_needed, tests_ids

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


_SMALL_TILE = 128 * 64  # pairs; of a tile where a mask compares ids
_TILE_COST = 16  # of a tile of keys whatever its size, in keys; roughly

TILE_KNOBS = ("block_q", "block_kv", "warps")


@dataclass(frozen=True)
class Ladder:
    """The plans that one kernel may have, the fastest first: each rung leaves it more registers than the one above.

    What the variant weighs tells where to begin (`weight`); whether a rung is enough, ptxas alone knows. The portable
    family's rungs are the last of every ladder.
    """

    variant: Variant
    build: Build
    schedule: Schedule
    canvas: Canvas | None = None  # of the passes in patches
    _made: dict[Choice, KernelPlan] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def names_tiles(self) -> bool:
        """Whether the schedule settles the tiles: there is one rung then."""
        return any(name in self.schedule.chosen for name in TILE_KNOBS)

    @property
    def first(self) -> KernelPlan:
        return next(self.plans())

    def plans(self) -> Iterator[KernelPlan]:
        """From the first guess on, without the rungs that can't be, and if there are others those that are crowded.

        AttnccError A403, A405 to A412, with the arithmetic, where none can be: what forbids the first.
        """
        legality.check_build(self.build, self.schedule.span)
        refusal: AttnccError | None = None
        found, crowds = 0, []
        for plan in map(self._plan, self._choices()):
            try:
                legality.check(plan, self.schedule.where)
            except AttnccError as error:
                refusal = refusal or error
            else:
                if self._passes_by(plan):
                    crowds.append(plan)
                    continue
                found += 1
                yield plan
            if self.names_tiles:
                break
        if not found and not crowds and refusal is not None:
            raise refusal
        yield from () if found else crowds

    def refused_above(self, plan: KernelPlan) -> dict[str, str]:
        """Of the rungs above one of `plans`, those that aren't among them, by their tiles, and why."""
        found: dict[str, str] = {}
        for above in takewhile(lambda item: item is not plan, map(self._plan, self._choices())):
            try:
                legality.check(above, self.schedule.where)
            except AttnccError as error:
                first = error.diagnostics[0]
                found[above.tiles] = "; ".join([first.message, *first.notes[:1]])
            else:
                if self._passes_by(above):
                    found[above.tiles] = "not compiled: such tiles spilled, or had long code, for such variants"
        return found

    def _passes_by(self, plan: KernelPlan) -> bool:
        return not self.names_tiles and crowded(plan)

    def _choices(self) -> Iterator[Choice]:
        seen: set[Choice] = set()
        for family in self.families:
            guess = self._guess(family)
            below = range(guess, rungs(family, self.build))
            choices = (choose(self.schedule.chosen, self.build, family, rung) for rung in below)
            for choice in chain(self._for_light(family, guess), choices):
                if choice not in seen:
                    yield choice
                seen.add(choice)

    def _for_light(self, family: str, guess: int) -> Iterator[Choice]:
        """What goes before the first guess for light variants, under a mask or plain."""
        build, chosen, variant = self.build, self.schedule.chosen, self.variant
        light = room(variant) == 0 and (variant.keeps or is_plain(variant))
        if family != "hopper" or build.pass_name not in ("forward", "patches") or not light or self.names_tiles:
            return
        keys = 0 if self._window is None else WINDOW_ROWS * self._window.kv_columns
        dims = *build.padded_head_dims, build.element_bytes
        for tiles in filter(None, (window_tiles(keys, *dims), light_tiles(*dims))):
            sizes = {"block_q": tiles.block_q, "block_kv": tiles.block_kv, "stages": tiles.stages}
            choice = choose(sizes | dict(chosen), build, family, guess)
            plan = self._plan(choice)
            if self.canvas is not None or not plan.tests_tiles or suits(plan):
                yield choice

    @property
    def families(self) -> tuple[str, ...]:
        """Those whose tiles the ladder has, the fastest first."""
        chosen, build = self.schedule.chosen, self.build
        if "family" in chosen:
            return (str(chosen["family"]),)
        loop = str(chosen.get("loop", loop_of(build.pass_name)))
        default = default_family(self.schedule.target, build.dtype, loop, build.pass_name)
        alone = build.dtype == "e4m3" or build.pass_name == "backward_patches"
        return (default,) if alone else tuple(dict.fromkeys((default, "portable")))

    def _guess(self, family: str) -> int:
        last = guesses(family, self.build) - 1
        backward = self.build.pass_name in BACKWARD_PASSES
        needed = room(self.variant) if family == "hopper" else room_needed(self.variant, backward=backward)
        rung = min(needed, last)
        plan = self._plan(choose(self.schedule.chosen, self.build, family, rung))
        # Registers for that; smaller tiles find more to skip.
        smaller = 1 if family == "hopper" else Room.MUCH
        rung = min(max(rung, smaller), last) if plan.tests_tiles else rung
        if self.canvas is None:
            rung = self._suiting(family, rung, last) if plan.tests_tiles else rung
            return self._small(family, rung, last) if tests_ids(self.variant) and not key_blocks(self.variant) else rung
        return min(range(rung, last + 1), key=lambda below: self._work_in_patches(family, below))

    def _suiting(self, family: str, rung: int, last: int) -> int:
        """The first rung from here whose tiles begin and end with the blocks of the mask; this one if there is none."""
        rungs_below = range(rung, last + 1)
        plans = (self._plan(choose(self.schedule.chosen, self.build, family, below)) for below in rungs_below)
        return next((below for below, plan in zip(rungs_below, plans, strict=True) if suits(plan)), rung)

    def _small(self, family: str, rung: int, last: int) -> int:
        """The first rung from here with small tiles, in the family hopper: documents begin anywhere, and a
        block of queries meets few tiles of them, so that what tiles leave out counts, and how many are in flight."""
        if family != "hopper":
            return rung
        choices = ((below, choose(self.schedule.chosen, self.build, family, below)) for below in range(rung, last + 1))
        return next((below for below, choice in choices if choice.block_q * choice.block_kv <= _SMALL_TILE), rung)

    def _work_in_patches(self, family: str, rung: int) -> float:
        plan = self._plan(choose(self.schedule.chosen, self.build, family, rung))
        sizes, patches = (plan.block_q, plan.block_kv), self.canvas
        assert patches is not None
        rules = plan.rules if plan.canvas is patches else analyse_patches(self.variant, *sizes, patches)
        share = live_share(rules, patches, *sizes)
        return share * (plan.block_kv + _TILE_COST) / plan.block_kv

    def _plan(self, choice: Choice) -> KernelPlan:
        if choice not in self._made:
            self._made[choice] = self._new_plan(choice)
        return self._made[choice]

    @cached_property
    def _window(self) -> Canvas | None:
        """What tiles of WINDOW_ROWS rows of the canvas are, if windows pay."""
        if self.canvas is None or self.build.pass_name != "patches":
            return None
        return find_window(self.variant, self.canvas)

    def _canvas_of(self, choice: Choice) -> Canvas | None:
        window = self._window if choice.family == "hopper" else None
        return window if window and choice.block_kv == WINDOW_ROWS * window.kv_columns else self.canvas

    def _rules(self, choice: Choice, canvas: Canvas | None) -> TileRules:
        blocks, inner = (choice.block_q, choice.block_kv), "q" if self.build.pass_name in KEY_PASSES else "kv"
        if canvas is None:
            searches = choice.loop == "q_outer" or choice.family == "hopper"
            return analyse(self.variant, *blocks, inner, searches=searches)
        found = analyse_windows(self.variant, *blocks, canvas) if canvas.window else None
        return found or analyse_patches(self.variant, *blocks, canvas, inner)

    def _new_plan(self, choice: Choice) -> KernelPlan:
        build, canvas = self.build, self._canvas_of(choice)
        rules = self._rules(choice, canvas)
        return KernelPlan(
            self.variant,
            rules,
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
            canvas,
            choice.thrifty,
        )


def make_patches(stretches: Ladder, schedule: Schedule | None = None) -> Ladder | None:
    """The pass `forward` or `backward` in tiles that are patches of a canvas, where those leave much less to compute;
    else None.

    Dropout asks for keys that stand beside each other. Forward, a canvas asks for `loop = q_outer` and all keys in one
    block, backward for the family hopper. AttnccError A409 if there is a schedule for what can't be.
    """
    plan, canvas, name = stretches.first, None, PATCHED_PASSES[stretches.build.pass_name]
    able = plan.family == "hopper" if plan.is_backward else plan.loop == "q_outer" and plan.split_kv == 1
    if able and plan.skip != "never" and plan.variant.dropout is None:
        found = widths(plan.variant, plan.block_q, plan.block_kv, plan.rules)
        tiles = (below for below in stretches.plans() if below.family == plan.family) if found else ()
        tried = (find_canvas(plan.variant, below.block_q, below.block_kv, below.rules) for below in tiles)
        canvas = next((item for item in tried if item is not None), None)  # the first tiles may divide it badly
    if canvas is not None:
        default = replace(stretches.schedule, pass_name=name, settings=_family(stretches.schedule))
        return Ladder(stretches.variant, replace(stretches.build, pass_name=name), schedule or default, canvas)
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


def _family(schedule: Schedule) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    return tuple((name, values) for name, values in schedule.settings if name == "family")


def make_ladder(variant: Variant, build: Build, schedule: Schedule | None = None) -> Ladder:
    """What one kernel may look like: what the schedule sets (the first of its candidates), defaults for the rest."""
    return Ladder(variant, build, schedule or Schedule("default", variant.name, build.pass_name, build.target))


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
    return make_ladder(variant, Build(pass_name, target, dtype, head_dim, value_head_dim), schedule).first
