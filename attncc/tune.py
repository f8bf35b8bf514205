"""Which schedule is the fastest on a GPU: candidates, what becomes of each, and the file with the best in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from .compiler import CompiledStore, Specification
from .diagnostics import AttnccError, Diagnostic
from .kernels.candidates import make_candidates
from .kernels.registry import find
from .runtime.cuda.nvrtc_pool import jobs
from .runtime.kernel import Kernel
from .runtime.store.store import Configuration
from .schedule.knobs import TILE_KNOBS, Value
from .schedule.plan import Build
from .schedule.schedule import Schedule
from .settle import settle
from .source import SourceFile
from .syntax import ast
from .syntax.formatter import format_source
from .syntax.parser import parse

Measure = Callable[[Sequence[Kernel]], Sequence[float]]  # milliseconds of a call of each
Watch = Callable[[int], AbstractContextManager[Callable[[str], None]]]  # of so many parts, called after each


def unwatched(_: int) -> AbstractContextManager[Callable[[str], None]]:
    return nullcontext(lambda _: None)


@dataclass(frozen=True)
class Trial:
    """One candidate, which sets each knob to one value, and what became of it."""

    schedule: Schedule
    trouble: str = ""  # why there is no such kernel, or what ptxas says against it
    milliseconds: float | None = None  # None: not timed

    @property
    def settings(self) -> str:
        """`block_q = 128, stages = 2`"""
        return ", ".join(f"{name} = {value}" for name, value in self.schedule.chosen.items())


def tune(
    specification: Specification,
    configuration: Configuration,
    target: str,
    pass_name: str,
    measure: Measure,
    *,
    watch: Watch = unwatched,
) -> tuple[Trial, ...]:
    """Every candidate, the fastest first, those that weren't timed last.

    All are compiled, on all cores. Those that spill registers or serialise products are timed only if all of them do.
    AttnccError A521 if the schedule leaves nothing open, or no candidate can be.
    """
    variant = specification.variant
    build = Build(pass_name, target, *configuration)

    def compiled(candidate: Schedule) -> Trial:
        try:
            return Trial(candidate, settle(make_candidates(variant, build, candidate)).troubles)
        except AttnccError as error:
            refused[candidate] = error.diagnostics[0].message
            return Trial(candidate, refused[candidate])
        finally:
            advance("")

    refused: dict[Schedule, str] = {}
    tried = candidates(specification, build)
    with watch(len(tried)) as advance, ThreadPoolExecutor(jobs()) as pool:
        trials = list(pool.map(compiled, tried))
    possible = [trial for trial in trials if trial.schedule not in refused]
    chosen = [trial for trial in possible if not trial.trouble] or possible
    if not chosen:
        raise _nothing("none of the candidates can be", refused.values(), "choose others, or leave the tiles out")
    kernels = [_kernel(specification, configuration, trial.schedule) for trial in chosen]
    timed = [replace(trial, milliseconds=time) for trial, time in zip(chosen, measure(kernels), strict=True)]
    timed.sort(key=lambda trial: trial.milliseconds or 0)
    return (*timed, *(trial for trial in trials if trial not in chosen))


def candidates(specification: Specification, build: Build) -> tuple[Schedule, ...]:
    """Each combination of what the schedule's braces hold; where it has none and names no tiles, those of all families.

    A schedule for sm_90 that serves sm_90a too keeps there what isn't about tiles.
    """
    own = specification.schedule(build.pass_name, build.target)
    own = own or Schedule("tuned", specification.variant.name, build.pass_name, build.target)
    if own.target != build.target:
        kept = tuple(item for item in own.settings if item[0] not in (*TILE_KNOBS, "stages", "family"))
        own = replace(own, target=build.target, settings=kept)
    if any(len(values) > 1 for _, values in own.settings):
        return tuple(own.candidates())
    if any(name in own.chosen for name in TILE_KNOBS):
        what = f"the schedule `{own.name}` leaves nothing open"
        raise _nothing(what, (), "write candidates, as in `block_kv = {64, 128}`, or leave the tiles out")
    families = make_candidates(specification.variant, build, own).families
    named = len(families) > 1 or "family" in own.chosen
    return tuple(dict.fromkeys(tiled for kind in families for tiled in _tiled(own, build, kind, named=named)))


def _tiled(own: Schedule, build: Build, kind: str, *, named: bool) -> Iterator[Schedule]:
    """The schedule with each of a family's tiles where a kernel may begin."""
    family = find(kind, build.pass_name)
    if family is None:
        return
    tiles = family.tiles(own.chosen, build)
    for choice in tiles.choices[: tiles.guesses]:
        sizes: dict[str, Value] = {name: getattr(choice, name) for name in family.sizes}
        set_here = own.chosen | sizes | ({"family": kind} if named else {})
        yield replace(own, settings=tuple((name, (value,)) for name, value in set_here.items()))


def _kernel(specification: Specification, configuration: Configuration, schedule: Schedule) -> Kernel:
    kept = tuple(item for item in specification.schedules if item.pass_name != schedule.pass_name)
    # 2-D tiles serve some lengths alone; of the others the pass that is tuned runs every call.
    passes = ("forward", "patches") if schedule.pass_name == "patches" else (schedule.pass_name,)
    tuned = Specification(specification.variant, (*kept, schedule), passes)
    store = CompiledStore(tuned, configuration, (schedule.target,))
    store.compile_now()
    return Kernel(store)


def _nothing(what: str, notes: Iterable[str], advice: str) -> AttnccError:
    return AttnccError(Diagnostic("A521", f"there is nothing to tune: {what}", notes=tuple(notes), help=advice))


# -------------------------------------------------------------------- the file


def written(source: SourceFile, schedule: Schedule) -> str:
    """The file's text with this schedule, one value for each knob: in place of that for the same variant, pass and
    target, or at the end. All else stays as it is; where the file is laid out as `attncc fmt` does it, it still is.
    """
    changed = SourceFile(source.path, _spliced(source, schedule))
    return format_source(changed) if format_source(source) == source.text else changed.text


def _spliced(source: SourceFile, schedule: Schedule) -> str:
    node = next((item for item in parse(source).items if _is_for(item, schedule)), None)
    lines = {name: f"{name} = {value}" for name, value in schedule.chosen.items()}
    if not isinstance(node, ast.Schedule):
        pass_name = "" if schedule.pass_name == "forward" else f" {schedule.pass_name}"
        head = f"schedule {schedule.name} for {schedule.variant}{pass_name} on {schedule.target}"
        body = "".join(f"    {line}\n" for line in lines.values())
        return f"{source.text.rstrip()}\n\n{head} {{\n{body}}}\n"
    text = source.text
    new = [line for name, line in lines.items() if name not in {setting.knob.name for setting in node.settings}]
    brace = node.span.end - 1
    text = text[:brace].rstrip(" ") + "".join(f"    {line}\n" for line in new) + text[brace:]
    for setting in reversed(node.settings):
        text = text[: setting.span.start] + lines[setting.knob.name] + text[setting.span.end :]
    return text


def _is_for(item: ast.Item, schedule: Schedule) -> bool:
    if not isinstance(item, ast.Schedule):
        return False
    pass_name = "forward" if item.pass_name is None else item.pass_name.name
    found = (item.variant.name, pass_name, item.target.name)
    return found == (schedule.variant, schedule.pass_name, schedule.target)
