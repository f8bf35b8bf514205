"""Which of the targets that a kernel was built for runs on a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from ...schedule.target import TARGETS, Target


def runs_on(target: Target, capability: int) -> bool:
    """Whether a cubin for the target runs on a GPU of this compute capability (80, 89, 90, ...).

    It does within its major version from its minor version on; one for an `a` target on exactly that GPU.
    """
    if target.exact:
        return target.capability == capability
    return target.major == capability // 10 and target.capability <= capability


def best_target(names: Iterable[str], capability: int) -> str | None:
    """The target among `names` that suits the GPU best: an exact one, else the nearest below; None if none runs."""
    running = [TARGETS[name] for name in names if name in TARGETS and runs_on(TARGETS[name], capability)]
    return max(running, key=lambda target: (target.exact, target.capability)).name if running else None


def target_for(capability: int) -> str:
    """The target to build for, so that kernels run on such a GPU."""
    return best_target(TARGETS, capability) or f"sm_{capability}"
