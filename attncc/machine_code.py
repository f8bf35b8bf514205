"""From plans to machine code: every kernel of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from .codegen.render import KernelSource, render, render_helper
from .diagnostics import AttnccError, Diagnostic
from .kernels.helpers import append
from .kernels.launched import helper_kernels
from .runtime.cuda.cubin import code_bytes
from .runtime.cuda.device import best_target
from .runtime.cuda.nvrtc import Cubin, Resources, wait
from .runtime.store.cache import submit_cached
from .runtime.store.store import MachineCode
from .schedule.plan import KernelPlan
from .schedule.target import TARGETS

INSTRUCTION_BYTES = 16


@dataclass(frozen=True)
class Compiled:
    """A kernel's machine code, and what ptxas said of it."""

    code: MachineCode
    resources: Resources

    @property
    def instructions(self) -> int:
        """How long its code is."""
        return code_bytes(self.code.image) // INSTRUCTION_BYTES

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


def kernel_sources(plan: KernelPlan, own: KernelSource | None = None) -> dict[str, KernelSource]:
    """The CUDA file of every kernel that launches of a plan may need, by name (`kernels.launched`).

    `own`: the plan's own, if it is rendered already.
    """
    return {source.name: source for source in (own or render(plan), *helper_sources(plan))}


def helper_sources(plan: KernelPlan) -> tuple[KernelSource, ...]:
    """Those besides the plan's own."""
    return tuple(map(render_helper, helper_kernels(plan)))


def submit(source: KernelSource, target: str) -> Future[Cubin]:
    """Begins to compile a kernel, or finds it in the cache."""
    return submit_cached(source.text, target, f"{source.name}.cu")


def compiled(source: KernelSource, target: str, begun: Future[Cubin] | None = None) -> Compiled:
    """A kernel's machine code, from the cache if it can be. `begun`: what `submit` gave."""
    cubin = wait(submit(source, target) if begun is None else begun)
    code = MachineCode(cubin.image, cubin.nvrtc, source.entry, source.threads, source.shared_bytes)
    return Compiled(code, cubin.resources)


def append_code(dtype: str, angles: str, capability: int, kv_dtype: str | None = None) -> MachineCode:
    """The kernel that writes into caches, for a GPU. AttnccError A505 where no target serves it."""
    target = best_target(TARGETS, capability)
    if target is None:
        what = f"no kernel can be made for compute capability {capability // 10}.{capability % 10}"
        raise AttnccError(Diagnostic("A505", what))
    return compiled(render_helper(append.kernel(dtype, angles, target, kv_dtype)), target).code


def other_kernels(plans: Sequence[KernelPlan]) -> dict[str, tuple[KernelSource, str]]:
    """Those that launches of the plans need besides the plans' own, by name, each with its target."""
    return {source.name: (source, plan.target) for plan in plans for source in helper_sources(plan)}
