"""`Family`: what a family of kernels answers. Each is registered in `schedule.families` and lives in its own folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

from ..analysis.grid_2d import Grid2D
from ..diagnostics import Diagnostic
from ..ir import Variant
from ..schedule.choice import SIZE_KNOBS, Choice, Value
from ..schedule.plan import Build, KernelPlan
from ..source import Span
from .facts import Facts
from .helpers.helper import HelperKernel

Where = Callable[..., Span | None]  # of knobs: the place to point at
Settings = Mapping[str, Value]  # the value of each knob that a schedule sets


class Tiles(NamedTuple):
    """What a family has for a build, the fastest first: each leaves a variant more registers than the one before."""

    choices: Sequence[Choice]
    guesses: int  # how many of them, from the first, may be where a kernel begins; the others are slower to the end


class Asked(Protocol):
    """What tiles are chosen for, and a maker of plans, to ask about their facts."""

    @property
    def variant(self) -> Variant: ...

    @property
    def build(self) -> Build: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def grid_2d(self) -> Grid2D | None: ...

    @property
    def window(self) -> Grid2D | None: ...

    def plan(self, choice: Choice) -> KernelPlan: ...


class Family(ABC):
    """Kernels that are made alike. What a call of a built package asks loads no analysis: facts, helpers."""

    passes: ClassVar[tuple[str, ...]]
    # Passes of which there are kernels, but not in this family: why.
    lacked_passes: ClassVar[Mapping[str, str]] = MappingProxyType({})
    # Of each kernel besides the plan's own, whether launches need it (`helpers`).
    helpers: ClassVar[tuple[Callable[[Any], tuple[HelperKernel, ...]], ...]]

    # The knobs that a schedule sets to have certain tiles.
    sizes: ClassVar[tuple[str, ...]] = SIZE_KNOBS
    # The head dims by which `attncc check` judges a schedule.
    judged_by: ClassVar[tuple[int, ...]] = (64, 128)
    has_windows: ClassVar[bool] = False  # whether tiles of a 2-D grid may begin where a block of queries looks at first

    def searches(self, loop: str) -> bool:
        """Whether loop bounds may be searched for: where they are asked for once a block, by whole warps."""
        return True

    def begins_early(self, variant: Variant, build: Build) -> bool:
        """Whether its thread blocks wait for the kernel ahead by themselves (`KernelPlan.begins_early`)."""
        return False

    def has_own_kernel(self, build: Build) -> bool:
        """Whether what `OwnKernel` tells of a build has a kernel of its own (`Facts.own_kernels`)."""
        return False

    def runs_own_calls(self, plan: KernelPlan) -> bool:
        """Whether calls may run this plan as a kernel of their own: variants differ in that."""
        return self.has_own_kernel(plan.build)

    def short_lengths(self, asked: Asked) -> tuple[int, int] | None:
        """The range of lengths of keys, both ends included, whose calls get tiles of their own by default; None where
        no calls do."""
        return None

    def lacks(self, build: Build, loop: str) -> str | None:
        """What of these the family has no kernel for; None if it has one."""
        return None

    def lacks_dims(self, build: Build, loop: str) -> str | None:
        """The same of head dims that the family has no tiles for, so that none can be asked about."""
        return self.lacks(build, loop) if build.is_wide else None

    @abstractmethod
    def facts(self, plan: KernelPlan) -> Facts:
        """What follows from one of its plans."""

    @abstractmethod
    def tiles(self, settings: Settings, build: Build) -> Tiles:
        """What it can be, made to agree with what is set. LookupError for head dims that it lacks."""

    @abstractmethod
    def begin(self, asked: Asked) -> Iterator[Choice]:
        """Those of its tiles that a variant may get, in order: from where it probably has enough registers."""

    @abstractmethod
    def misfits(self, plan: KernelPlan, where: Where) -> Iterator[Diagnostic]:
        """AttnccError A405 and A412: what of a plan there is no such kernel for."""
