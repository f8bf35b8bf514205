"""Where a `Kernel` finds its plans and machine code: a built package on disk, or the compiler in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...ir import Variant
from ...kernels.kernel_names import configuration_name
from ...problem import Signature
from ...schedule.plan import KernelPlan, OwnKernel


class Configuration(NamedTuple):
    """What a kernel is compiled for besides its variant and target."""

    dtype: str  # fp16 | bf16 | fp32 | fp64 (on the CPU alone)
    head_dim: int  # of q and k
    value_head_dim: int
    paged: bool = False  # k and v are pools of pages
    kv_dtype: str | None = None  # of a cache of 8 bits: e4m3 | int8
    prefixed: bool = False  # sequences share a prefix (`shared_prefix=`)
    least_rows: int = 0  # of decode calls that have a kernel of their own (`OwnKernel`)
    one_block: bool = False  # the same
    split: bool = False  # of forward calls that have one
    unclustered: bool = False  # of backward calls that have one

    @property
    def serves_caches(self) -> bool:
        """Whether it is for calls over certain caches alone, or for those that have a kernel of their own."""
        return self.paged or self.kv_dtype is not None or self.prefixed or self.own_kernel

    @property
    def own_kernel(self) -> bool:
        """Whether it is for some calls of its pass alone."""
        return self.least_rows > 0 or self.one_block or self.split or self.unclustered

    @property
    def name(self) -> str:
        """`bf16_d64`: part of file names."""
        return configuration_name(*self)

    def signature(self, variant: Variant) -> Signature:
        """What arguments of calls are checked against; with pages or without, and whatever type a cache has, these
        are the same."""
        return Signature(variant, self.dtype, self.head_dim, self.value_head_dim)


@dataclass(frozen=True, slots=True)
class MachineCode:
    """One compiled kernel, and what its launch needs to know."""

    image: bytes = field(repr=False)
    nvrtc: str  # the version that compiled it
    entry: str
    threads: int
    shared_bytes: int  # dynamic


class KernelStore(Protocol):
    """Plans and machine code of one variant. Names of kernels are those of `kernels/kernel_names.py`."""

    @property
    def variant(self) -> Variant: ...

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Those of calls without pages: of each there may be one with pages too, and such for caches of 8 bits and
        shared prefixes."""

    @property
    def ready(self) -> tuple[Configuration, ...]:
        """Those that `Kernel.load` loads: of a package all that it was built for, pages and such too; of what is
        compiled when it is first called, `configurations`, and the own kernels of their calls."""

    def targets(self, configuration: Configuration) -> tuple[str, ...]:
        """The targets that machine code exists for, or can be made for. Of an own kernel those that have it."""

    def plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        """The plan of the forward pass, and after it that of decode where there is one; of an own kernel that alone.

        `target` None: the plans that the CPU executor walks.
        """

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        """The plan of the pass `backward`, and after it those of `backward_dq` where calls need it and of
        `backward_patches` where there is one; of an own kernel its plans of `backward` alone. AttnccError A520 if a
        package was built without.

        `target` None: the plans that the CPU executor walks; none, if a package was built without.
        """

    def check_backward(self, configuration: Configuration, target: str) -> None:
        """AttnccError A520 where `backward_plans` would raise it. Compiles nothing."""

    def report(self) -> Mapping[str, Mapping[str, Any]]:
        """What is known of the machine code that exists so far, by name: the entries of a package's manifest."""

    def machine_codes(self, plans: Sequence[KernelPlan]) -> Mapping[str, MachineCode]:
        """Every kernel that launches of the plans, all for one target, may need, by name.

        AttnccError A505 if a built package lacks one, A5xx or A9xx if one can't be compiled.
        """

    def append_code(self, dtype: str, angles: str, capability: int, kv_dtype: str | None = None) -> MachineCode:
        """What writes new rows of a dtype into a cache, rotated by angles of one; for a GPU of this compute capability.
        `kv_dtype`: of a cache of 8 bits.

        AttnccError A505 if there is none.
        """


def first_own(
    store: KernelStore, configuration: Configuration, target: str, kernels: Iterable[OwnKernel]
) -> Configuration | None:
    """That of the first of these kernels that there is for a target; None if there is none of them."""
    own = (configuration._replace(**kernel._asdict()) for kernel in kernels)
    return next((item for item in own if target in store.targets(item)), None)
