"""Which schedules are tried: what the file's schedule leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import chain, product

from ..compiler import Specification
from ..diagnostics import AttnccError, Diagnostic
from ..ir import Variant
from ..kernels.candidates import Candidates, make_candidates, make_tiles_2d
from ..kernels.registry import find
from ..runtime.store.store import Configuration
from ..schedule.choice import KNOBS, SIZE_KNOBS, TILE_KNOBS, Choice, Value
from ..schedule.plan import BACKWARD_PASSES, KEY_PASSES, OWN_KERNELS, TILES_2D_PASSES, Build, KernelPlan, OwnKernel
from ..schedule.schedule import Schedule

NAME = "tuned"  # of a schedule that wasn't there
_IN_1D = {name: own for own, name in TILES_2D_PASSES.items()}
_STEP = 16  # keys, or rows, of a neighbouring tile
# Of tiles farther away. What lies between is one step beside one of these.
_SIZES, _WARPS, _STAGES = (32, 48, 64, 80, 96, 112, 128, 160, 192), (1, 2, 4, 8, 12, 16), range(2, 6)


@dataclass(frozen=True)
class TunedKernel:
    """The kernel that is tuned: of a pass, on a target. `specification`: as the file has it, without descales."""

    specification: Specification
    build: Build
    # What runs the timed call instead, if it is a forward or decode call with its own kernel, which a schedule that
    # sets anything takes from it, or a backward call with one.
    own: OwnKernel | None = None

    @property
    def configuration(self) -> Configuration:
        build = self.build
        return Configuration(build.dtype, build.head_dim, build.value_head_dim)

    @cached_property
    def variant(self) -> Variant:
        """With the descales that calls of e4m3 bring."""
        return self.specification.serving(self.build.dtype).variant

    @property
    def held(self) -> Schedule | None:
        """The file's schedule for these calls: it may be for sm_90 and serve sm_90a, and for all lengths where there is
        none for the range that is tuned."""
        return self.specification.schedule_of(self.build)

    @property
    def has_own_kernels(self) -> bool:
        """Whether some calls of the pass run others than this one, which a schedule that sets anything takes from
        them."""
        configurations = (self.configuration._replace(**own._asdict()) for own in OWN_KERNELS)
        found = (self.specification.candidates(item, self.build.target) for item in configurations)
        return any(item.build.pass_name == self.build.pass_name for of in found for item in of)

    def candidates(self, schedule: Schedule | None) -> Candidates:
        """The plans that the kernel may have by a schedule."""
        if self.build.pass_name not in _IN_1D:
            return make_candidates(self.variant, self.build, schedule)
        return self._in_2d if schedule is None else replace(self._in_2d, schedule=schedule)

    def running(self, schedule: Schedule | None) -> Candidates:
        """The plans of what runs the timed call by a schedule."""
        found = self.candidates(schedule)
        if self.own is None:
            return found
        if found.build.pass_name in BACKWARD_PASSES:  # by the same schedule
            return replace(found, build=replace(found.build, **self.own._asdict()))
        if schedule is not None and schedule.settings:
            return found
        return replace(found, build=replace(self.build, lengths=None, **self.own._asdict()))

    @cached_property
    def _in_2d(self) -> Candidates:
        build = replace(self.build, pass_name=_IN_1D[self.build.pass_name])
        in_1d = make_candidates(self.variant, build, self.specification.schedule(build.pass_name, build.target))
        found = make_tiles_2d(in_1d)
        assert found is not None, "the pass is one that calls use"
        return found

    def with_schedule(self, schedule: Schedule | None) -> Specification:
        """The specification with this schedule in place of the file's, for calls that this kernel alone runs. Those
        that are checked against fp64 have few blocks: they must not run an own kernel that the timed call doesn't."""
        build = self.build
        targets = build.target, build.target.removesuffix("a")
        kept = [
            item
            for item in self.specification.schedules
            if item.pass_name != build.pass_name or item.target not in targets
        ]
        if schedule is not None:  # for all lengths: what is checked against fp64 has fewer keys
            kept.append(replace(schedule, lengths=None))
        if build.pass_name in ("patches", "decode"):
            # 2-D tiles serve some lengths alone; of the others the pass that is tuned runs every call.
            passes = ("forward", "patches") if build.pass_name == "patches" else ("decode",)
        else:
            passes = ("forward",)
        return replace(self.specification, schedules=tuple(kept), passes=passes, has_own_kernels=self.own is not None)


def schedules(kernel: TunedKernel) -> tuple[Schedule, ...]:
    """What is tried: each combination of what the braces of the file's schedule hold. Where it has none, the tiles that
    attncc would choose among, of all families, and tiles one step beside those of the fastest; what the schedule says
    of other knobs stays.

    A schedule for sm_90 that serves sm_90a too keeps there what isn't about tiles.
    """
    if is_closed(kernel):
        assert kernel.held is not None
        return tuple(kernel.held.candidates())
    found, pass_name = kernel.candidates(_without_tiles(kernel)), kernel.build.pass_name
    families = [tuple(_family_tiles(found, kind)) for kind in found.families]
    first = next(filter(None, families), ())  # the fastest, as far as is known
    beside = [item for tile in first for item in _neighbours(tile, pass_name)]
    return _scheduled(kernel, (*chain.from_iterable(families), *beside))


def near(kernel: TunedKernel, plan: KernelPlan) -> tuple[Schedule, ...]:
    """Those one step beside a plan; none where braces say what is tried."""
    return () if is_closed(kernel) else _scheduled(kernel, _neighbours(_choice(plan), plan.pass_name))


def of_same_warps(kernel: TunedKernel, plan: KernelPlan) -> tuple[Schedule, ...]:
    """Those with a plan's warps, of any inner tile and stages, which depend on each other: both fill shared memory."""
    return (
        () if is_closed(kernel) else _scheduled(kernel, _at_any_distance(_choice(plan), plan.pass_name, (plan.warps,)))
    )


def farther(kernel: TunedKernel, plan: KernelPlan) -> tuple[Schedule, ...]:
    """Those of a plan's family at any distance; none where braces say what is tried."""
    return () if is_closed(kernel) else _scheduled(kernel, _at_any_distance(_choice(plan), plan.pass_name))


def _choice(plan: KernelPlan) -> Choice:
    return Choice(**{item.name: getattr(plan, item.name) for item in fields(Choice)})


def is_closed(kernel: TunedKernel) -> bool:
    """Whether the braces of the file's schedule say what is tried."""
    held, build = kernel.held, kernel.build
    if held is None or (held.target, held.lengths) != (build.target, build.lengths):
        return False
    return any(len(item[1]) > 1 for item in held.settings)


def _without_tiles(kernel: TunedKernel) -> Schedule:
    """The file's schedule, of which what settles tiles is left out."""
    build = kernel.build
    own = kernel.held or Schedule(NAME, kernel.variant.name, build.pass_name, build.target)
    own = replace(own, lengths=build.lengths)
    if own.target == build.target and not any(name in own.chosen for name in TILE_KNOBS):
        return own
    kept = tuple(item for item in own.settings if item[0] not in (*SIZE_KNOBS, "family"))
    return replace(own, target=build.target, settings=kept)


def _scheduled(kernel: TunedKernel, choices: Iterable[Choice]) -> tuple[Schedule, ...]:
    own = _without_tiles(kernel)
    named = kernel.build.is_wide or len(kernel.candidates(own).families) > 1 or "family" in own.chosen
    found = []
    for choice in choices:
        family = find(choice.family, kernel.build.pass_name)
        assert family is not None
        sizes: dict[str, Value] = {name: getattr(choice, name) for name in family.sizes}
        found.append(with_settings(kernel, own.chosen | ({"family": choice.family} if named else {}) | sizes))
    return tuple(dict.fromkeys(found))


def with_settings(kernel: TunedKernel, settings: Mapping[str, Value]) -> Schedule:
    """The schedule of the file's name, for this kernel, that sets these knobs and no others."""
    return replace(_without_tiles(kernel), settings=tuple((name, (value,)) for name, value in settings.items()))


def _family_tiles(found: Candidates, kind: str) -> Iterator[Choice]:
    """Those that a variant may get, and those where a kernel may begin. No schedule can ask for low register ones."""
    family = find(kind, found.build.pass_name)
    if family is None:
        return
    tiles = family.tiles(found.settings, found.build)
    for choice in (*family.begin(found), *tiles.choices[: tiles.guesses]):
        if not choice.low_register:
            yield choice


def _neighbours(choice: Choice, pass_name: str) -> Iterator[Choice]:
    """One step from a tile: a longer or shorter inner loop's tile, other warps, that have as many rows or keys each as
    before, other stages. Legality tells later which of them there are."""
    inner, shared = _sides(pass_name)
    size, warps, stages = getattr(choice, inner), choice.warps, choice.stages
    each = getattr(choice, shared) // warps
    changes = [{inner: other} for other in (size - 2 * _STEP, size - _STEP, size + _STEP, 2 * size)]
    changes += [{"warps": other, shared: other * each} for other in (warps // 2, warps - 4, warps + 4, 2 * warps)]
    changes += [{"stages": other} for other in (stages - 1, stages + 1)]
    for changed in changes:
        if all(KNOBS[name].allows(value) for name, value in changed.items()):
            yield Choice(**(asdict(choice) | changed))


def _at_any_distance(choice: Choice, pass_name: str, among: Iterable[int] = _WARPS) -> Iterator[Choice]:
    """Each number of warps that have as many rows or keys each as a tile's, with each inner tile and number of stages:
    more rows often fit only with fewer keys and other stages at once, which is no single step."""
    inner, shared = _sides(pass_name)
    each = getattr(choice, shared) // choice.warps
    for warps, size, stages in product(among, _SIZES, _STAGES):
        if KNOBS[shared].allows(warps * each):
            yield replace(choice, **{"warps": warps, shared: warps * each, inner: size, "stages": stages})


def _sides(pass_name: str) -> tuple[str, str]:
    """The knobs of a tile's inner loop, and of what its warps share."""
    return ("block_q", "block_kv") if pass_name in KEY_PASSES else ("block_kv", "block_q")


def first_plan(kernel: TunedKernel, schedule: Schedule | None) -> KernelPlan:
    """Of what runs the timed call. AttnccError A4xx with what forbids it; A402 for what no schedule may have."""
    chosen = {} if schedule is None else schedule.chosen
    bad = [(name, value) for name, value in chosen.items() if not KNOBS[name].allows(value)]
    if bad:
        found = (Diagnostic("A402", f"`{name}` can't be {value}", help=KNOBS[name].values) for name, value in bad)
        raise AttnccError(found)
    return kernel.running(schedule).first


def settings_of(schedule: Schedule) -> str:
    """`block_q = 128, stages = 2`"""
    return ", ".join(f"{name} = {value}" for name, value in schedule.chosen.items())
