"""The GPUs that attncc compiles for, and their limits."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..diagnostics import did_you_mean

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target. A cubin runs on devices of the same major version and an equal or higher minor one;
    one for an `a` target only on exactly that device. So `shared_bytes` is the least of all devices it serves."""

    name: str
    shared_bytes: int  # dynamic shared memory that one block may use
    registers_per_block: int = 65536
    max_registers_per_thread: int = 255
    tma: bool = False  # TMA brings keys and values to portable kernels; elsewhere these spilled, or weren't timed
    evicts_first: bool = False  # keys that are read once leave the L2 cache first; elsewhere that wasn't timed
    many_rows: bool = False  # decode calls with many rows have kernels of their own; elsewhere these weren't timed
    dependent_launch: bool = False  # kernels may begin before the one ahead is over; elsewhere that wasn't timed

    @property
    def major(self) -> int:
        return self.capability // 10

    @property
    def capability(self) -> int:
        """80, 86, 90, 100, 120."""
        return int(self.name.removeprefix("sm_").rstrip("a"))

    @property
    def converts_e4m3(self) -> bool:
        """Whether an instruction makes e4m3 fp16 (sm_89)."""
        return self.capability >= 89

    @property
    def vector_atomics(self) -> bool:
        """Whether one atomic addition in global memory takes four floats (`red.v4.f32`)."""
        return self.capability >= 90

    @property
    def exact(self) -> bool:
        """An architecture-specific target, such as sm_90a."""
        return self.name.endswith("a")


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sm_80", 99 * KIB),  # also runs on sm_86 and sm_89, which have 99 KiB
        Target("sm_90", 227 * KIB, tma=True, evicts_first=True, many_rows=True, dependent_launch=True),
        Target("sm_90a", 227 * KIB, tma=True, evicts_first=True, many_rows=True, dependent_launch=True),
        Target("sm_100", 227 * KIB),
        Target("sm_120", 99 * KIB),
    )
}


def target_of(gpu: str) -> str:
    """The best target of a GPU that is known by its name or its compute capability, as sm_90a of an H100, and sm_80 of
    sm_89 or 8.9; an empty string for other words, and for GPUs that no target serves."""
    from ..analysis.cost.roofline import DEVICES  # calls need none of it

    device, number = DEVICES.get(gpu.lower()), capability_of(gpu)
    capability = device.capability if device is not None else number or 0
    serving = [
        target
        for target in TARGETS.values()
        if target.major == capability // 10
        and (target.capability == capability if target.exact else target.capability <= capability)
    ]
    return max(serving, key=lambda target: target.exact).name if serving else ""


def capability_of(name: str) -> int | None:
    """89 for `sm_89`, `sm89`, `sm_89a`, `compute_89` and `8.9`; None for what names no compute capability."""
    found = re.fullmatch(r"(?:(?:sm|compute)_?)?(\d{1,2})\.?(\d)[af]?", name.lower())
    return int(found[1] + found[2]) if found else None


def target_help(name: str) -> str:
    """What to write for a target that isn't one. A GPU that no target serves is no misspelling of another."""
    if best := target_of(name):
        return f"write `{best}`, the target of such GPUs"
    return "" if capability_of(name) is not None else did_you_mean(name, TARGETS)
