"""The GPUs that attncc compiles for, and their limits."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target. A cubin runs on devices of the same major version and an equal or higher minor one;
    one for an `a` target only on exactly that device. So `shared_bytes` is the least of all devices it serves."""

    name: str
    shared_bytes: int  # dynamic shared memory that one block may use
    registers_per_block: int = 65536
    max_registers_per_thread: int = 255
    boxes: bool = False  # TMA brings keys and values to portable kernels; elsewhere these spilled, or weren't timed

    @property
    def major(self) -> int:
        return self.capability // 10

    @property
    def capability(self) -> int:
        """80, 86, 90, 100, 120."""
        return int(self.name.removeprefix("sm_").rstrip("a"))

    @property
    def adder(self) -> str:
        """The leaf file that adds in global memory: several floats at once from sm_90 on."""
        return "add_vector" if self.capability >= 90 else "add_scalar"

    @property
    def exact(self) -> bool:
        """An architecture-specific target, such as sm_90a."""
        return self.name.endswith("a")


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("sm_80", 99 * KIB),  # also runs on sm_86 and sm_89, which have 99 KiB
        Target("sm_90", 227 * KIB, boxes=True),
        Target("sm_90a", 227 * KIB, boxes=True),
        Target("sm_100", 227 * KIB),
        Target("sm_120", 99 * KIB),
    )
}


def target_of(gpu: str) -> str:
    """The best target of a GPU that is known by its name, as sm_90a of an H100; an empty string for other words."""
    from ..analysis.roofline import DEVICES  # calls need none of it

    device = DEVICES.get(gpu.lower())
    serving = [target for target in TARGETS.values() if device and target.major == device.capability // 10]
    return max(serving, key=lambda target: target.exact).name if serving else ""
