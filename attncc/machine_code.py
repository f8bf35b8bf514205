"""From plans to machine code: every kernel of a plan, and the choice of a plan among those that a kernel may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from .codegen.render import (
    KernelSource,
    render,
    render_combine,
    render_delta,
    render_dq_sum,
    render_exact_sum,
    render_sink_gradient,
    render_tile_lists,
    render_transposition,
    render_zone_map,
)
from .runtime.cache import compile_cached
from .runtime.nvrtc import Resources
from .runtime.store import MachineCode
from .schedule.kernel_names import other_kinds, surveyed_dtypes
from .schedule.plan import KernelPlan
from .schedule.schedule import Ladder


@dataclass(frozen=True)
class Compiled:
    """A kernel's machine code, and what ptxas said of it."""

    code: MachineCode
    resources: Resources

    def report(self, target: str) -> dict[str, Any]:
        """What a package's manifest says of it. Sizes are bytes; `shared_bytes` is all that a block takes."""
        code, resources = self.code, self.resources
        return {
            "target": target,
            "entry": code.entry,
            "threads": code.threads,
            "registers": resources.registers,
            "spill_stores": resources.spill_stores,
            "spill_loads": resources.spill_loads,
            "shared_bytes": resources.shared_bytes + code.shared_bytes,
            "dynamic_shared_bytes": code.shared_bytes,
            "compile_seconds": resources.compile_seconds,
            "messages": list(resources.messages),
            "nvrtc": code.nvrtc,
        }


@dataclass(frozen=True)
class Settled:
    """The plan that a kernel got, compiled, and by their tiles those above it on the ladder that can't be or were
    rejected."""

    plan: KernelPlan
    source: KernelSource
    compiled: Compiled
    rejected: Mapping[str, str]  # why
    names_tiles: bool  # the schedule does: there was no choice

    @property
    def troubles(self) -> str:
        return troubles(self.compiled.resources)

    @property
    def why(self) -> str:
        """Why it is this plan, and what is wrong with it, if anything is."""
        if self.names_tiles:
            return f"the schedule names its tiles; {self.troubles or 'no spills'}"
        if self.troubles:
            return f"of all tiles these spill least: {self.troubles}"
        return "the first that can be and doesn't spill" if self.rejected else "the first guess: no spills"

    def report(self) -> dict[str, Any]:
        """What a package's manifest says of it."""
        choice = {"tiles": self.plan.tiles, "why": self.why, "rejected": dict(self.rejected)}
        return self.compiled.report(self.plan.target) | {"choice": choice, "calls": self.plan.calls}


def kernel_sources(plan: KernelPlan, own: KernelSource | None = None) -> dict[str, KernelSource]:
    """The CUDA file of every kernel that launches of a plan may need, by name (`schedule.kernel_names`).

    `own`: the plan's own, if it is rendered already.
    """
    return {source.name: source for source in (own or render(plan), *_other_sources(plan))}


_OTHERS: dict[str, Callable[[KernelPlan], KernelSource]] = {
    "combine": lambda plan: render_combine(plan.out_dtype, plan.target),
    "delta": render_delta,
    "dq_sum": render_dq_sum,
    "tile_lists": render_tile_lists,
    "transposition": render_transposition,
    "sink_gradient": render_sink_gradient,
    "exact_sum": render_exact_sum,
}


def _other_sources(plan: KernelPlan) -> list[KernelSource]:
    others = [_OTHERS[kind](plan) for kind in other_kinds(plan)]
    return others + [render_zone_map(dtype, plan.target) for dtype in surveyed_dtypes(plan)]


def compiled(source: KernelSource, target: str) -> Compiled:
    """A kernel's machine code, from the cache if it can be."""
    cubin = compile_cached(source.text, target, f"{source.name}.cu")
    code = MachineCode(cubin.image, cubin.nvrtc, source.entry, source.threads, source.shared_bytes)
    return Compiled(code, cubin.resources)


_rendering = Lock()  # threads that render at once, which Python runs by turns, would all begin to compile late


def settle(ladder: Ladder) -> Settled:
    """The first plan for which ptxas neither spills registers nor serialises products; if there is none, the one that
    spills least. All attempts are kept in the cache, so that a later process pays for none of them.
    """
    attempts: list[tuple[KernelPlan, KernelSource, Compiled]] = []
    for plan in ladder.plans():
        with _rendering:
            source = render(plan)
        attempts.append((plan, source, compiled(source, plan.target)))
        if not troubles(attempts[-1][2].resources):
            break
    best = min(attempts, key=lambda item: _badness(item[2].resources))
    rejected = {plan.tiles: troubles(found.resources) for plan, _, found in attempts if plan is not best[0]}
    rejected = ladder.refused_above(best[0]) | rejected
    return Settled(*best, rejected, ladder.names_tiles)


def troubles(resources: Resources) -> str:
    """What costs the kernel much of its speed; empty if nothing does."""
    stored, loaded = resources.spill_stores, resources.spill_loads
    spills = [f"{stored} bytes of spills stored and {loaded} loaded"] if stored or loaded else []
    return "; ".join([*spills, *resources.losses])


def _badness(resources: Resources) -> tuple[int, int]:
    return len(resources.losses), resources.spill_stores + resources.spill_loads


def other_kernels(plans: Sequence[KernelPlan]) -> dict[str, tuple[KernelSource, str]]:
    """Those that launches of the plans need besides the plans' own, by name, each with its target."""
    return {source.name: (source, plan.target) for plan in plans for source in _other_sources(plan)}
