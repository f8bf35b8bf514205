"""The backward suite's cases: a covering design, as of the forward suite, and over how dQ is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import attncc
from attncc.kernels.candidates import make_candidates
from attncc.schedule.plan import Build
from attncc.schedule.schedule import Schedule
from tests.gpu.cases import CORE, FACTORS, SPECS, Case
from tests.gpu.cover import cover

LENGTHS = ((1, 1), (1, 1000), (97, 97), (113, 203), (200, 100), (239, 1), (799, 3), (1023, 1024), (1024, 1023))

# Lengths, spec, head dims, dtype, and whether sums have one order: long ones; and dropout in dQ's tiles of 16 keys.
LONG = (
    ((4096, 4096), "causal", (128, 128), "bf16", False),
    ((4096, 4096), "alibi_documents", (64, 64), "fp16", True),
    ((513, 733), "dropout_attention", (256, 256), "fp32", False),
)
# Further cases of learnable inputs: the design above has each at two lengths and head dims, some of them without a
# Hopper kernel.
LEARNABLE = (
    "batch_bias", "graphormer_edge", "graphormer_spatial", "head_and_query_bias", "head_factor", "key_bias",
    "query_bias", "relative_bias", "selected_attention", "sink_attention",
)  # fmt: skip
_LEARNABLE_FACTORS: dict[str, tuple[Any, ...]] = {
    "spec": LEARNABLE,
    "lengths": ((200, 333), (513, 257), (1023, 1024)),
    "head_dims": ((64, 64), (128, 128)),
    "group": (1, 3, 4),
    "dtype": ("fp16", "bf16"),
    "memory": ("contiguous", "strided"),
    "layout": ("bhsd", "bshd"),
    "packed": (False, True),
    "deterministic": (False, True),
}

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

    @property
    def separates_dq(self) -> bool:
        """Whether portable kernels make dQ on its own."""
        return self.deterministic or self.forward.dtype == "fp32"

    @property
    def made_by(self) -> Case:
        """The forward call, by portable kernels: what all families of backward kernels are given."""
        return replace(self.forward, family="portable")

    def source(self, device: str) -> str:
        """The spec with a schedule of ours for the backward pass."""
        target, case = self.forward.target(device), self.forward
        return case.text() + f"\nschedule back for {case.spec} backward on {target} {{ family = {case.family} }}\n"


def backward_cases(lengths: tuple[tuple[int, int], ...] = LENGTHS) -> tuple[BackwardCase, ...]:
    """Core specs with every value of every factor, the others with those of up to three, and two of each other's."""
    factors: dict[str, tuple[Any, ...]] = {"lengths": lengths, **_FACTORS}

    def wanted(pair: dict[str, Any]) -> bool:
        if "spec" not in pair or pair["spec"] in CORE:
            return True
        (other,) = pair.keys() - {"spec"}
        values = factors[other]
        place = SPECS.index(pair["spec"]) + values.index(pair[other])
        return len(values) <= 3 or place % len(values) in (0, len(values) // 2)

    return tuple(map(_case, cover(factors, wanted=wanted)))


def learnable_cases() -> tuple[BackwardCase, ...]:
    """Each of these specs with both head dims, and with every value of what has two."""

    def wanted(pair: dict[str, Any]) -> bool:
        return "spec" not in pair or not {"lengths", "group"} & pair.keys()

    return tuple(map(_case, cover(_LEARNABLE_FACTORS, wanted=wanted)))


def long_cases() -> tuple[BackwardCase, ...]:
    """Few: the oracle keeps all their pairs in fp64."""
    others = {"group": 1, "memory": "contiguous", "layout": "bhsd", "packed": False}
    names = "lengths", "spec", "head_dims", "dtype", "deterministic"
    return tuple(_case({**dict(zip(names, item, strict=True)), **others}) for item in LONG)


def _case(row: dict[str, Any]) -> BackwardCase:
    forward = {name: value for name, value in row.items() if name != "deterministic"}
    return BackwardCase(Case(**forward, splits=1, loop="q_outer"), row["deterministic"])


def of_hopper(portable: Sequence[BackwardCase]) -> tuple[BackwardCase, ...]:
    """The same cases with the kernels of the family hopper, where it has them."""
    cases = (replace(item, forward=replace(item.forward, family="hopper")) for item in portable)
    return tuple(item for item in cases if _has_kernel(item))


def _has_kernel(case: BackwardCase) -> bool:
    """Of these head dims, dtype and inputs."""
    variant = attncc.parse(case.source("sm_90")).variant
    schedule = Schedule("back", variant.name, "backward", "sm_90a", (("family", ("hopper",)),))
    build = Build("backward", "sm_90a", case.forward.dtype, *case.forward.head_dims)
    try:
        return next(make_candidates(variant, build, schedule).plans(), None) is not None
    except attncc.AttnccError:
        return False
