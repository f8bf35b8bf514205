"""Predicted bytes beside measured ones, launch by launch, and why they differ as far as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..io_model import Predicted
from ..kernels.hopper.panels import PANEL_BYTES
from ..kernels.registry import backward_facts, facts_of
from ..problem import Problem
from ..schedule.plan import KernelPlan
from .counters import OPTIONAL, QUANTITIES, SECTOR
from .ncu import Launch

CLOSE = 0.02  # of 1: a ratio that needs no explanation
SUM_BYTES = 4  # of an element of O between the steps of kv_outer, and of the sum of dQ
_QUANTITIES = {quantity.name: quantity.what for quantity in (*QUANTITIES, *OPTIONAL)}


@dataclass(frozen=True)
class Row:
    """One quantity of a kernel, over its launches, in bytes. `predicted`: None where the model says nothing of it."""

    kernel: str
    name: str
    predicted: int | None
    measured: int

    @property
    def what(self) -> str:
        return _QUANTITIES[self.name]

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else None

    @property
    def is_close(self) -> bool:
        return self.ratio is not None and abs(self.ratio - 1) <= CLOSE

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "name": self.name,
            "predicted": self.predicted,
            "measured": self.measured,
            "ratio": self.ratio,
        }


def rows(predicted: Mapping[str, Predicted], launches: Sequence[Launch]) -> list[Row]:
    """In the order of the launches. No local memory is predicted: attncc chooses kernels without spills, or with few.
    Where nothing is predicted and nothing measured there is no row."""
    found = []
    for kernel in dict.fromkeys(launch.kernel for launch in launches):
        own = [launch.bytes for launch in launches if launch.kernel == kernel]
        known = predicted[kernel].totals() | {"local": 0} if kernel in predicted else {}
        for name in own[0]:
            row = Row(kernel, name, known.get(name), sum(item[name] for item in own))
            if row.measured or row.predicted:
                found.append(row)
    return found


@dataclass(frozen=True)
class Reasons:
    """Why rows differ. `l2_bytes`: of the cache; `inputs`: bytes of the variant's own."""

    plan: KernelPlan
    problem: Problem
    l2_bytes: int
    inputs: Mapping[str, int]

    def of(self, found: Sequence[Row]) -> Iterator[str]:
        """Of those that aren't close, one sentence for each thing that is known to make them so."""
        differing = {row.name for row in found if row.predicted is not None and not row.is_close}
        more = {row.name for row in found if row.predicted is not None and row.measured > row.predicted}
        if self.inputs and differing & {"hbm_reads", "l2_reads", "sm_reads"}:
            named = ", ".join(f"{name} {size:,}" for name, size in self.inputs.items())
            yield f"The variant's inputs (bytes: {named}), and tables of them, are read through L1 and not predicted."
        if "hbm_writes" in differing - more:
            yield (
                f"What a kernel wrote last still lies in the L2 cache ({self.l2_bytes:,} bytes) when it ends, and goes "
                "to HBM later."
            )
        if "hbm_reads" in differing & more and self._held > self.l2_bytes:
            yield "What is used again doesn't fit the L2 cache: some of it comes from HBM more than once."
        elif "hbm_reads" in differing & more and self._held * self._heads > self.l2_bytes // 2:
            yield (
                f"What all heads use again ({self._held * self._heads:,} bytes) is more than half of the L2 cache, and "
                "each half keeps what its own multiprocessors read: some of it comes from HBM more than once."
            )
        if "l2_reads" in differing - more:
            yield "Multiprocessors that ask for the same bytes at the same time are often answered by one read of L2."
        if "l2_reads" in differing & more and facts_of(self.plan).mapped and self._row_bytes % PANEL_BYTES:
            yield f"TMA brings rows of {self._row_bytes} bytes in boxes {PANEL_BYTES} bytes wide."
        if "local" in more:
            yield "Local memory: registers are spilled, or an array of the kernel isn't in registers."
        if differing & {"sm_writes", "hbm_writes"} and self._row_bytes % SECTOR:
            yield f"Rows of {self._row_bytes} bytes aren't whole sectors of {SECTOR} bytes."
        if self.plan.pass_name == "decode" and differing & {"l2_reads", "sm_reads", "sm_writes"}:
            yield "How keys are shared out among thread blocks is settled by the launch; q comes once for each part."
        elif self.plan.split_kv is None and not self.plan.is_backward and differing:
            yield "The number of splits is settled by the launch; the prediction takes what it would be in whole waves."
        if {row.kernel for row in found} - {row.kernel for row in found if row.predicted is not None}:
            yield "Kernels that prepare inputs, such as min_max_table, aren't predicted."

    @property
    def _held(self) -> int:
        """Bytes of what a head's thread blocks share: K and V; Q and O in fp32; Q, dO and the sum of dQ."""
        problem, plan = self.problem, self.plan
        if self._keeps_out:
            return problem.q_len * (plan.stored_head_dim * plan.element_bytes + plan.stored_value_head_dim * SUM_BYTES)
        read = (plan.stored_head_dim + plan.stored_value_head_dim) * plan.element_bytes
        if not plan.owns_keys:
            return problem.kv_len * read
        return problem.q_len * (read + plan.padded_head_dim * SUM_BYTES * backward_facts(plan).adds_dq)

    @property
    def _heads(self) -> int:
        """How many such sets there are."""
        problem = self.problem
        of_queries = self.plan.owns_keys or self._keeps_out
        return problem.batch * (problem.num_heads if of_queries else problem.num_kv_heads)

    @property
    def _keeps_out(self) -> bool:
        """Whether O passes by, as in FlashAttention-1."""
        return self.plan.loop == "kv_outer" and not self.plan.is_backward

    @property
    def _row_bytes(self) -> int:
        return self.plan.stored_value_head_dim * self.plan.element_bytes
