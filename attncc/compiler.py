"""From a `.attn` text to plans and kernels: the steps that `attncc.compile` and `attncc build` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from .descales import with_descales
from .diagnostics import AttnccError, Diagnostic, did_you_mean
from .ir import Variant
from .kernels.candidates import Candidates, make_candidates, make_tiles_2d
from .kernels.crossings import Chip
from .kernels.kernel_names import kernel_name
from .kernels.launched import kernel_names
from .kernels.over_prefix import over_prefix, prefix_schedule
from .kernels.registry import backward_facts, facts_of, family_of, has_own_kernel, kinds, targets_of
from .kernels.serving import plan_for
from .kernels.settings import loop_set
from .machine_code import Compiled, append_code, compiled, other_kernels
from .notebook import shown_while
from .problem import Problem
from .problem.facts import KERNEL_DTYPES, KV_DTYPES
from .problem.quantized import Q_DTYPES
from .runtime.cuda.device import best_target
from .runtime.cuda.driver import driver
from .runtime.cuda.nvrtc_pool import jobs
from .runtime.store.store import Configuration, MachineCode
from .schedule.choice import SIZE_KNOBS
from .schedule.plan import BACKWARD_PASSES, FORWARD_PASSES, OWN_KERNELS, PASSES, SPLIT, Build, KernelPlan
from .schedule.schedule import Schedule, from_asts
from .schedule.target import TARGETS, target_help
from .semantics.constants import NO_DEFINES, Defines, checked_defines
from .semantics.load import Program, load
from .semantics.reach import Folders
from .settle import Settled, settle
from .spec_text import read
from .threads import DaemonThreads

__all__ = [
    "NO_DEFINES", "CompiledStore", "Defines", "Specification", "check_dtype", "check_targets", "load_specification",
    "specify",
]  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Specification:
    """A variant and its schedules, judged. `passes`: those of forward calls that it gets kernels for.
    `has_own_kernels`: whether some of these calls may have kernels of their own."""

    variant: Variant
    schedules: tuple[Schedule, ...]
    passes: tuple[str, ...] = FORWARD_PASSES
    has_own_kernels: bool = True

    def serving(self, *dtypes: str) -> Specification:
        """The same for kernels of these dtypes: calls of e4m3 kernels bring descales.

        AttnccError A414 if that can't be, or where other kernels are to be called alike.
        """
        if "e4m3" not in dtypes:
            return self
        if set(dtypes) != {"e4m3"}:
            raise AttnccError(
                Diagnostic(
                    "A414",
                    "kernels of e4m3 share no package with others",
                    notes=("their calls take q_descale, k_descale and v_descale",),
                    help="build them into a folder of their own",
                )
            )
        return replace(self, variant=with_descales(self.variant))

    def without_unasked_decode(self) -> Specification:
        """The same without kernels of the pass decode, unless a schedule is for it."""
        if any(schedule.pass_name == "decode" for schedule in self.schedules):
            return self
        return replace(self, passes=tuple(name for name in self.passes if name != "decode"))

    def candidates(self, configuration: Configuration, target: str) -> tuple[Candidates, ...]:
        """The plans that the kernels of forward calls may have: forward, decode where the dtype has such kernels, and
        2-D tiles where the mask asks for them. Of a shared prefix those over it and behind it. Of calls that have a
        kernel of their own that, if there is one."""
        if configuration.own_kernel:
            return self._own(configuration, target)
        if configuration.prefixed:
            return self._prefixed(configuration, target)
        builds = (Build(pass_name, target, *configuration) for pass_name in ("forward", "decode"))
        forward, decode = (make_candidates(self.variant, build, self.schedule_of(build)) for build in builds)
        tiles_2d = None if configuration.serves_caches else make_tiles_2d(forward, self.schedule("patches", target))
        wanted = targets_of(configuration.dtype, "decode")
        found = (forward, *([decode] if wanted else []), *([tiles_2d] if tiles_2d else []))
        found += self._of_lengths(configuration, target, FORWARD_PASSES) or self._of_short_calls(forward)
        return tuple(item for item in found if item.build.pass_name in self.passes)

    def _prefixed(self, configuration: Configuration, target: str) -> tuple[Candidates, ...]:
        """Of calls whose sequences share a prefix."""
        over, behind = (Build(pass_name, target, *configuration) for pass_name in ("forward", "decode"))
        variant = over_prefix(self.variant)
        return (
            make_candidates(variant, over, prefix_schedule(variant, over)),
            make_candidates(self.variant, behind, self.schedule_of(behind)),
        )

    def _own(self, configuration: Configuration, target: str) -> tuple[Candidates, ...]:
        """Of forward or decode calls that have a kernel of their own, where calls of few queries are to have such. What
        a schedule for their pass sets, it sets for all its calls: they have one kernel then."""
        build = Build("forward" if configuration.split else "decode", target, *configuration)
        schedule = self.schedule_of(build)
        sets = schedule is not None and bool(schedule.settings)
        if sets or not self.has_own_kernels or build.pass_name not in self.passes or not has_own_kernel(build):
            return ()
        found = make_candidates(self.variant, build, schedule)
        # Not every variant has one: it may get another family than builds usually do, or its mask may rule it out.
        return (found,) if family_of(found.first).runs_own_calls(found.first) else ()

    def seen_by(self, chip: Chip, configuration: Configuration, target: str) -> Chip:
        """A GPU as these kernels choose on it: without one that splits keys, no call is to wait for it."""
        splits = self.candidates(configuration._replace(**SPLIT._asdict()), target)
        return chip if splits else chip.without_splits()

    def runs(self, configuration: Configuration, target: str, problem: Problem, chip: Chip) -> KernelPlan:
        """The plan of the kernel that runs a forward call, one of its own where that is faster."""
        chip = self.seen_by(chip, configuration, target)
        usual = plan_for(self.plans(configuration, target), problem, chip)
        faster = (configuration._replace(**own._asdict()) for own in facts_of(usual).own_kernels(problem, chip))
        return next((item.first for own in faster for item in self.candidates(own, target)), usual)

    def _of_lengths(self, configuration: Configuration, target: str, passes: Sequence[str]) -> tuple[Candidates, ...]:
        """Of the schedules for ranges of lengths."""
        builds = (
            Build(name, target, *configuration, item.lengths)
            for name in passes
            for item in self._schedules(name, target)
            if item.lengths is not None
        )
        found = ((build, self.schedule_of(build)) for build in builds)
        return tuple(make_candidates(self.variant, build, item) for build, item in found if item is not None)

    def _of_short_calls(self, forward: Candidates) -> tuple[Candidates, ...]:
        """Of lengths for which other tiles are the default: where no schedule sets anything, and there is no cache."""
        build = forward.build
        sets = any(item.settings for item in self._schedules(build.pass_name, build.target))
        short = None if sets or build.paged or build.kv_dtype is not None else forward.short
        return () if short is None else (short,)

    def backward_candidates(self, configuration: Configuration, target: str) -> tuple[Candidates, ...]:
        """The plans that the kernels of the passes `backward` and `backward_dq` may have, and of `backward_patches`
        where the mask asks for it. Whether calls need the second follows from the plan that the first gets. Of calls
        that have a kernel of their own that, if there is one."""
        if configuration.unclustered:
            return self._unclustered(configuration, target)
        keys, rows = (
            make_candidates(self.variant, Build(pass_name, target, *configuration), self.schedule(pass_name, target))
            for pass_name in ("backward", "backward_dq")
        )
        tiles_2d = make_tiles_2d(keys, self.schedule("backward_patches", target))
        of_lengths = self._of_lengths(configuration, target, BACKWARD_PASSES)
        return keys, rows, *([tiles_2d] if tiles_2d else []), *of_lengths

    def _unclustered(self, configuration: Configuration, target: str) -> tuple[Candidates, ...]:
        """Of backward calls whose thread blocks form no clusters: beside each kernel that is made for clusters one
        by the same schedule."""
        usual = self.backward_candidates(configuration._replace(unclustered=False), target)
        made_for = [item for item in usual if backward_facts(item.first).uses_clusters]
        return tuple(replace(item, build=replace(item.build, unclustered=True)) for item in made_for)

    def plans(self, configuration: Configuration, target: str) -> tuple[KernelPlan, ...]:
        """The plan of each kernel where nothing is compiled. AttnccError A4xx where there can be none."""
        return tuple(item.first for item in self.candidates(configuration, target))

    def schedule(self, pass_name: str, target: str, lengths: tuple[int, int] | None = None) -> Schedule | None:
        """The schedule for a target and a range of lengths; where there is none, that for all lengths."""
        of_lengths = {item.lengths: item for item in self._schedules(pass_name, target)}
        return of_lengths.get(lengths) or of_lengths.get(None)

    def _schedules(self, pass_name: str, target: str) -> tuple[Schedule, ...]:
        """Those for a target; those for sm_90 also serve sm_90a, where that has none of its own."""
        of_pass = [item for item in self.schedules if item.pass_name == pass_name]
        own = tuple(item for item in of_pass if item.target == target)
        return own or tuple(item for item in of_pass if item.target == target.removesuffix("a"))

    def schedule_of(self, build: Build) -> Schedule | None:
        """The schedule of a kernel, as far as it is for such kernels: without sizes of tiles that are for others."""
        found = self.schedule(build.pass_name, build.target, build.lengths)
        if found is None or not _is_for(found, build):
            return None
        return found.without(*SIZE_KNOBS) if ignores_sizes(found, build) else found


def ignores_sizes(schedule: Schedule, build: Build) -> bool:
    """Whether the sizes of tiles that a schedule sets are for other head dims: those above `NARROW` have families of
    their own, whose tiles are smaller."""
    return build.is_wide and "family" not in schedule.chosen and any(name in schedule.chosen for name in SIZE_KNOBS)


def _is_for(schedule: Schedule, build: Build) -> bool:
    """False for kernels of 8-bit caches where calls with k and v in q's type have another family: what the schedule
    says of tiles is for that one."""
    if build.kv_dtype is None or "family" in schedule.chosen:
        return True
    loop = loop_set(schedule.chosen, build)
    return kinds(build, loop)[:1] == kinds(replace(build, kv_dtype=None), loop)[:1]


def no_variants(where: str, advice: str) -> AttnccError:
    """A512 for files of masks and consts alone."""
    return AttnccError(
        Diagnostic("A512", f"there is no variant {where}: what was given holds masks alone", help=advice)
    )


def specify(program: Program, name: str | None) -> Specification:
    """The variant named, or the only one, with its schedules. AttnccError A512 if the name doesn't settle it."""
    variants = {variant.name: variant for variant in program.variants}
    if not variants:
        raise no_variants("here", "give a file that imports it, and whose variant uses its masks")
    if name is not None and not isinstance(name, str):
        what, came = "`variant` is not a name", f"came {name!r}"
        raise AttnccError(Diagnostic("A512", what, notes=(came,), help="give the variant's name as a text, or None"))
    variant = next(iter(variants.values())) if name is None and len(variants) == 1 else variants.get(name or "")
    if variant is None:
        what = f"the file has {len(variants)} variants" if name is None else f"there is no variant `{name}`"
        known = ", ".join(variants)
        hint = did_you_mean(name or "", variants) or "name one with variant=…"
        raise AttnccError(Diagnostic("A512", what, notes=(f"its variants are: {known}",), help=hint))
    return Specification(variant, from_asts(node for node in program.schedules if node.variant.name == variant.name))


def load_specification(
    spec: Path | str, variant: str | None, defines: Defines, allow_imports: Folders = ()
) -> tuple[Specification, Program]:
    """Parses, checks and judges. AttnccError with everything that is wrong with the text."""
    program = load(read(spec), checked_defines(defines), allow_imports)
    return specify(program, variant), program


def check_targets(names: Sequence[str]) -> None:
    """AttnccError A513 for the first name that is no target."""
    for name in names:
        if not isinstance(name, str) or name not in TARGETS:
            raise AttnccError(
                Diagnostic(
                    "A513",
                    f"{'an empty text' if name == '' else name} is not a target",
                    notes=(f"the targets are {', '.join(TARGETS)}; sm_80 serves every GPU of 8.x, older ones none",),
                    help=target_help(str(name)),
                )
            )


def check_dtype(dtype: str, archs: Sequence[str]) -> None:
    """AttnccError A514 for fp64, where machine code is asked for; A410 for another framework's name of a dtype."""
    if dtype == "fp64" and archs:
        raise AttnccError(
            Diagnostic(
                "A514",
                "fp64 can't be built: it runs on the CPU alone",
                help="use attncc.compile without arch=, and NumPy arrays",
            )
        )
    own = {name: short for short, name in KERNEL_DTYPES.items()}.get(dtype.removeprefix("torch."))
    if own is not None:
        raise AttnccError(Diagnostic("A410", f"there is no dtype `{dtype}`", help=f"attncc calls it `{own}`"))


def check_cache_dtype(configuration: Configuration) -> None:
    """AttnccError A410 for caches of 8 bits beside q that hasn't 16, or of a type that there is no such cache of."""
    if configuration.kv_dtype is None:
        return
    if configuration.kv_dtype not in KV_DTYPES:
        what = f"there is no dtype `{configuration.kv_dtype}` of caches"
        raise AttnccError(Diagnostic("A410", what, notes=(f"there are {', '.join(KV_DTYPES)}",)))
    if KERNEL_DTYPES[configuration.dtype] not in Q_DTYPES:
        what = f"kernels of {configuration.dtype} have no caches of {configuration.kv_dtype}"
        raise AttnccError(Diagnostic("A410", what, help="build fp16 or bf16, or leave out --kv-dtype"))


class CompiledStore:
    """Kernels of one variant and configuration, compiled when they are first asked for. See `store.KernelStore`."""

    def __init__(self, specification: Specification, configuration: Configuration, archs: tuple[str, ...]) -> None:
        self._made_of = specification, configuration, archs
        self._specification = specification = specification.serving(configuration.dtype)
        self._configuration = configuration
        self._archs = archs
        self._settled: dict[tuple[Configuration, str], tuple[Settled, ...]] = {}  # by configuration and target
        self._settled_backward: dict[tuple[Configuration, str], tuple[Settled, ...]] = {}
        self._targets_of_own: dict[Configuration, tuple[str, ...]] = {}  # of kernels of some calls alone
        self._others: dict[str, Compiled] = {}  # by name
        self._host = self._host_target()
        self._first_plans = specification.plans(configuration, self._host)

    def __reduce__(self) -> tuple[Any, ...]:
        """Without machine code, which another version or another GPU can't use: it is compiled where it is needed."""
        return CompiledStore, self._made_of

    def changed(self, change: Callable[[Variant], Variant]) -> CompiledStore:
        """The same configuration, targets and schedules for what the user's variant is changed to."""
        specification, configuration, archs = self._made_of
        return CompiledStore(replace(specification, variant=change(specification.variant)), configuration, archs)

    @property
    def variant(self) -> Variant:
        return self._specification.variant

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        return (self._configuration,)

    @property
    def ready(self) -> tuple[Configuration, ...]:
        own = (self._configuration._replace(**kernel._asdict()) for kernel in OWN_KERNELS)
        return (self._configuration, *(item for item in own if self.targets(item)))

    def targets(self, configuration: Configuration) -> tuple[str, ...]:
        if configuration.dtype == "fp64":
            return ()
        targets = self._archs or targets_of(configuration.dtype)
        if not configuration.own_kernel:
            return targets
        if configuration not in self._targets_of_own:
            specification = self._specification
            made = specification.backward_candidates if configuration.unclustered else specification.candidates
            self._targets_of_own[configuration] = tuple(target for target in targets if made(configuration, target))
        return self._targets_of_own[configuration]

    def plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        if target is not None:
            return tuple(item.plan for item in self._settle(configuration, target))
        settled = self._settled.get((self._configuration, self._host))
        return self._first_plans if settled is None else tuple(item.plan for item in settled)

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        if target is None:
            return self._first_backward_plans
        key = configuration, target
        if key not in self._settled_backward:
            with shown_while(f"compiling the backward pass of {self.variant.name} for {target}"):
                candidates = self._specification.backward_candidates(configuration, target)
                settle_these = _settle_all if configuration.own_kernel else _settle_backward
                self._settled_backward[key] = settle_these(candidates)
        return tuple(item.plan for item in self._settled_backward[key])

    def check_backward(self, configuration: Configuration, target: str) -> None:
        """It is compiled when it is first asked for."""

    @cached_property
    def _first_backward_plans(self) -> tuple[KernelPlan, ...]:
        """What the CPU executor walks."""
        keys, rows, *rest = self._specification.backward_candidates(self._configuration, self._host)
        own = [keys.first, *(item.first for item in rest if item.build.lengths is not None)]
        separate = any(backward_facts(plan).separates_dq for plan in own)
        return (own[0], *([rows.first] if separate else []), *own[1:])

    def machine_codes(self, plans: Sequence[KernelPlan]) -> Mapping[str, MachineCode]:
        codes = {kernel_name(item.plan): item.compiled for item in self._all_settled()}
        others = other_kernels(plans)
        missing = [name for name in others if name not in self._others]
        self._others |= zip(missing, _in_parallel(lambda name: compiled(*others[name]), missing), strict=True)
        codes |= self._others
        return {name: codes[name].code for plan in plans for name in kernel_names(plan)}

    def append_code(self, dtype: str, angles: str, capability: int, kv_dtype: str | None = None) -> MachineCode:
        return append_code(dtype, angles, capability, kv_dtype)

    def report(self) -> dict[str, dict[str, Any]]:
        return {kernel_name(item.plan): item.report() for item in self._all_settled()}

    def _all_settled(self) -> list[Settled]:
        found = [*self._settled.values(), *self._settled_backward.values()]
        return [item for settled in found for item in settled]

    def compile_now(self) -> None:
        """Compiles for the targets that were asked for, or else for the GPUs of this machine."""
        for target in self._archs or _targets_here(self.targets(self._configuration)):
            self.machine_codes(self.plans(self._configuration, target))

    def _settle(self, configuration: Configuration, target: str) -> tuple[Settled, ...]:
        key = configuration, target
        if key not in self._settled:
            with shown_while(f"compiling {self.variant.name} for {target}"):
                self._settled[key] = _settle_all(self._specification.candidates(configuration, target))
        return self._settled[key]

    def _host_target(self) -> str:
        """The target whose plan the CPU executor walks: one that the variant has a schedule for, if it has any."""
        choices = self._archs or targets_of(self._configuration.dtype)
        schedules = sorted(self._specification.schedules, key=lambda item: PASSES.index(item.pass_name))
        scheduled = [item.target for item in schedules]
        return next((target for target in scheduled if target in choices), choices[0])


def _settle_backward(kernels: Sequence[Candidates]) -> tuple[Settled, ...]:
    """The second is compiled if it may be launched: beside the others where that is known before."""
    keys, rows, *rest = kernels
    if any(backward_facts(item.first).separates_dq for item in (keys, *rest)):
        return _settle_all(kernels)
    found, *others = _settle_all((keys, *rest))
    separate = any(backward_facts(item.plan).separates_dq for item in (found, *others))
    return (found, *(_settle_all((rows,)) if separate else ()), *others)


def _settle_all(kernels: Sequence[Candidates]) -> tuple[Settled, ...]:
    """All at once; processes that are left compile further candidates."""
    at_once = max(jobs() // len(kernels), 1)
    return tuple(_in_parallel(lambda candidates: settle(candidates, at_once), kernels))


def _in_parallel(function: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
    with DaemonThreads(min(len(items), jobs())) as pool:
        return list(pool.map(function, items))


def _targets_here(targets: Sequence[str]) -> set[str]:
    """The best target for each GPU of this machine."""
    try:
        capabilities = driver().capabilities()
    except AttnccError:
        return set()
    return {target for capability in capabilities if (target := best_target(targets, capability))}
