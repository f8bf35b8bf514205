"""Kernels compiled on all cores beside the other tests, so that the whole default build fits into the suite's time.

In processes of their own: tests change the environment, such as the folder of the cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Set
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from attncc.compiler import load_specification
from attncc.kernels.candidates import Candidates, make_candidates
from attncc.kernels.hopper_forward.facts import HopperForward
from attncc.kernels.kernel_names import kernel_name, separate_dq_name
from attncc.kernels.registry import facts_of
from attncc.machine_code import Compiled, compiled, other_kernels
from attncc.package import prepare
from attncc.resources import folder
from attncc.runtime.cuda.nvrtc import Resources
from attncc.schedule.plan import BACKWARD_PASSES, Build, KernelPlan
from attncc.schedule.schedule import Schedule
from attncc.settle import Settled, settle
from attncc.source import SourceFile
from benchmarks.cubin import compiler_version
from tests.kernels import processes
from tests.machine_code import conditional_common_values, instructions


class Compilation(ABC):
    """Kernels that a test needs compiled. It goes to another process, and so does what comes of it."""

    @abstractmethod
    def compile(self) -> Any: ...


class Kernel(NamedTuple):
    plan: KernelPlan | None  # of one that belongs to a plan
    resources: Resources
    conditional_common_values: int
    instructions: int
    compiler: str  # of ptxas, the version


@dataclass(frozen=True)
class Case(Compilation):
    """What `attncc build` is asked for."""

    spec: str
    target: str
    dtype: str
    head_dim: int
    value_head_dim: int | None = None  # the same
    backward: bool = False  # the kernels of the backward pass, and no others
    decode: bool = False  # the same of the decode pass

    def __str__(self) -> str:
        dims = self.head_dim if self.value_head_dim is None else f"{self.head_dim}x{self.value_head_dim}"
        return f"{self.spec}-{self.target}-{self.dtype}-{dims}{'-backward' * self.backward}{'-decode' * self.decode}"

    def compile(self) -> Mapping[str, Kernel]:
        """Each kernel of the build, by name; of those with several plans, the one that a user gets."""
        path = folder("specs") / f"{self.spec}.attn"
        source = SourceFile(f"specs/{self.spec}.attn", path.read_text(encoding="utf-8"))
        dims = [self.head_dim] if self.value_head_dim is None else [(self.head_dim, self.value_head_dim)]
        asked = {"decode": self.decode, "backward": self.backward}
        packages = prepare(source, archs=[self.target], dtypes=[self.dtype], head_dims=dims, **asked)
        kernels = (item for package in packages for item in package.candidates)
        wanted = BACKWARD_PASSES if self.backward else ("decode",) if self.decode else ("forward", "patches")
        settled = _settled({kernel_name(item.first): item for item in kernels if item.build.pass_name in wanted})
        others = other_kernels([item.plan for item in settled.values()])
        return {name: _kernel(item.compiled, item.plan) for name, item in settled.items()} | {
            name: _kernel(compiled(*item)) for name, item in others.items()
        }


def _settled(kernels: Mapping[str, Candidates]) -> dict[str, Settled]:
    """Of the passes `backward_dq` those that calls launch: others would be compiled, and looked at by nobody."""
    first = {name: settle(item) for name, item in kernels.items() if item.build.pass_name != "backward_dq"}
    separate = {separate_dq_name(item.plan) for item in first.values() if facts_of(item.plan).separates_dq}
    return first | {name: settle(kernels[name]) for name in separate}


def _kernel(found: Compiled, plan: KernelPlan | None = None) -> Kernel:
    image = found.code.image
    return Kernel(plan, found.resources, conditional_common_values(image), instructions(image), compiler_version(image))


@dataclass(frozen=True)
class HopperCase(Compilation):
    """A forward kernel of the family hopper."""

    spec: str
    dtype: str
    head_dim: int
    value_head_dim: int

    def __str__(self) -> str:
        return f"{self.spec}-{self.dtype}-{self.head_dim}-{self.value_head_dim}"

    def candidates(self) -> Candidates:
        path = folder("specs") / f"{self.spec}.attn"
        variant = load_specification(path, None, {})[0].serving(self.dtype).variant
        schedule = Schedule("hopper", variant.name, "forward", "sm_90a", (("family", ("hopper",)),))
        build = Build("forward", "sm_90a", self.dtype, self.head_dim, self.value_head_dim)
        return make_candidates(variant, build, schedule)

    def compile(self) -> tuple[KernelPlan, Resources]:
        settled = settle(self.candidates())
        return settled.plan, settled.compiled.resources


def has_registers(plan: KernelPlan, resources: Resources) -> bool:
    """Whether the warpgroups of a forward kernel of the family hopper can share a block's registers as they mean to:
    else it would wait for them for ever."""
    hopper = HopperForward(plan)
    wanted = hopper.producer_registers + facts_of(plan).warpgroups * hopper.consumer_registers
    return wanted <= resources.registers * (facts_of(plan).warpgroups + 1)


class Compilations:
    """Those that are on their way. One that nobody began is compiled when it is asked for."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._futures: dict[Compilation, Future[Any]] = {}

    def begin(self, case: Compilation) -> None:
        self._pool = self._pool or processes()
        self._futures[case] = self._pool.submit(case.compile)

    def keep(self, cases: Set[Compilation]) -> None:
        """Of the others, what hasn't begun won't."""
        for case in self._futures.keys() - cases:
            self._futures.pop(case).cancel()

    def result(self, case: Compilation) -> Any:
        return self._futures[case].result() if case in self._futures else case.compile()

    def end(self) -> None:
        """What hasn't begun won't."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


COMPILATIONS = Compilations()
