"""The backward suite's cases: a covering design, as of the forward suite, and over how dQ is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import attncc
from attncc.schedule.choices import Build
from attncc.schedule.schedule import Schedule, make_ladder
from tests.gpu.cases import CORE, FACTORS, SPECS, Case
from tests.gpu.cover import cover

LENGTHS = ((1, 1), (1, 1000), (97, 97), (113, 203), (200, 100), (239, 1), (799, 3), (1023, 1024), (1024, 1023))

_FACTORS: dict[str, tuple[Any, ...]] = {
    **{name: values for name, values in FACTORS.items() if name not in ("splits", "loop")},
    "deterministic": (False, True),
}


@dataclass(frozen=True)
class BackwardCase:
    """`forward` is the call that the gradients are of; its family is that of the backward kernels."""

    forward: Case
    deterministic: bool

    def __str__(self) -> str:
        return f"{self.forward}-{'deterministic' if self.deterministic else 'sum'}"

    def source(self, device: str) -> str:
        """The spec with a schedule of ours for the backward pass too."""
        target, spec = self.forward.target(device), self.forward.spec
        text = replace(self.forward, family="portable").source(target)
        return text + f"schedule back for {spec} backward on {target} {{ family = {self.forward.family} }}\n"


def backward_cases(lengths: tuple[tuple[int, int], ...] = LENGTHS) -> tuple[BackwardCase, ...]:
    """Core specs with every value of every factor, the others with every value of those that have few."""
    factors: dict[str, tuple[Any, ...]] = {"lengths": lengths, **_FACTORS}

    def wanted(pair: dict[str, Any]) -> bool:
        if "spec" not in pair or pair["spec"] in CORE:
            return True
        (other,) = pair.keys() - {"spec"}
        values = factors[other]
        place = SPECS.index(pair["spec"]) + values.index(pair[other])
        return len(values) <= 4 or place % len(values) in (0, len(values) // 2)

    rows = cover(factors, wanted=wanted)
    return tuple(
        BackwardCase(Case(**{k: x for k, x in row.items() if k != "deterministic"}, splits=1, loop="q_outer"),
                     row["deterministic"])
        for row in rows
    )  # fmt: skip


def of_hopper(portable: tuple[BackwardCase, ...]) -> tuple[BackwardCase, ...]:
    """The same cases with the kernels of the family hopper, where it has them."""
    cases = (replace(item, forward=replace(item.forward, family="hopper")) for item in portable)
    return tuple(item for item in cases if _has_kernel(item))


def _has_kernel(case: BackwardCase) -> bool:
    """Of these head dims, dtype and inputs."""
    variant = attncc.parse(case.source("sm_90")).variant
    schedule = Schedule("back", variant.name, "backward", "sm_90a", (("family", ("hopper",)),))
    build = Build("backward", "sm_90a", case.forward.dtype, *case.forward.head_dims)
    try:
        return next(make_ladder(variant, build, schedule).plans(), None) is not None
    except attncc.AttnccError:
        return False
