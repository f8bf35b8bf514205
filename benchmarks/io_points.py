"""The calls whose bytes are predicted and measured: sweeps of full attention, and twenty specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from attncc.analysis.cost import cost
from attncc.analysis.cost.roofline import Device
from attncc.compiler import Specification, load_specification
from attncc.executor.run import workload
from attncc.io_model import IoModel
from attncc.kernels.crossings import Chip
from attncc.kernels.registry import targets_of
from attncc.kernels.serving import backward_plan_for, plan_for
from attncc.problem import Problem
from attncc.runtime.cuda.device import best_target
from attncc.runtime.store.store import Configuration
from attncc.schedule.choice import Value
from attncc.schedule.plan import Build, KernelPlan
from attncc.tune.candidates import NAME, TunedKernel, with_settings
from attncc.tune.work import Work

DTYPE, HEADS, BATCH = "bf16", 16, 1
SPECS_HEADS = 8  # K and V of all, 17 MB, fit one half of an H200's L2 cache: else HBM is read more often
STANDARD = "standard"  # Algorithm 0 of the FlashAttention paper: S and P go through HBM
ORDERS = ("q_outer", "kv_outer", STANDARD)
FIRST_STORES = "full", "causal", "sliding_window", "block_diagonal", "prefix_lm", "natten"  # at D64, where dQ is stored
BLOCKS_Q, LENGTHS, HEAD_DIMS = (64, 128, 192, 256), (1024, 2048, 4096, 8192), (32, 64, 128, 256)
SPECS = (
    "full", "causal", "causal_top_left", "inverse_causal", "sliding_window", "local_window", "global_sliding_window",
    "dilated_sliding_window", "block_diagonal", "prefix_lm", "documents", "alibi", "alibi_documents", "softcap",
    "relative_bias", "sink_attention", "sigmoid_attention", "dropout_attention", "block_diffusion", "natten",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One call, and where it stands in which plot. `block_q`: None for what attncc chooses."""

    sweep: str  # block_q | head_dim | length | specs | first_stores
    variant: str
    pass_name: str = "forward"
    order: str = "q_outer"
    length: int = 4096
    head_dim: int = 64
    block_q: int | None = None
    heads: int = HEADS

    @property
    def problem(self) -> Problem:
        return Problem(BATCH, self.heads, self.heads, self.length, self.length, self.head_dim, self.head_dim)

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "batch": BATCH, "dtype": DTYPE}


def points() -> Iterator[Point]:
    yield from (Point("block_q", "full", block_q=size) for size in BLOCKS_Q)
    for order in ORDERS:
        yield from (Point("length", "full", order=order, length=length) for length in LENGTHS)
        yield from (Point("head_dim", "full", order=order, head_dim=head_dim) for head_dim in HEAD_DIMS)
    for pass_name in ("forward", "backward"):
        yield from (Point("specs", spec, pass_name, head_dim=128, heads=SPECS_HEADS) for spec in SPECS)
    yield from (Point("first_stores", spec, "backward", heads=SPECS_HEADS) for spec in FIRST_STORES)


@dataclass(frozen=True)
class Call:
    """A point on a GPU of this kind. AttnccError A4xx where there is no such kernel."""

    point: Point
    device: Device

    @cached_property
    def kernel(self) -> TunedKernel:
        """Its specification has the schedule of the point."""
        point, specification = self.point, _specification(self.point.variant)
        target = best_target(targets_of(DTYPE), self.device.capability)
        assert target is not None, "each device of the table has a target"
        tuned = TunedKernel(specification, Build(point.pass_name, target, *self.configuration))
        settings: dict[str, Value] = {} if point.block_q is None else {"block_q": point.block_q}
        settings |= {"loop": "kv_outer"} if point.order == "kv_outer" else {}
        if not settings:
            return tuned
        changed = with_settings(tuned, settings)
        return replace(tuned, specification=tuned.with_schedule(replace(changed, name=NAME)))

    @property
    def configuration(self) -> Configuration:
        return Configuration(DTYPE, self.point.head_dim, self.point.head_dim)

    @cached_property
    def work(self) -> Work:
        return Work(self.kernel.variant, self.point.problem, DTYPE, self.point.pass_name, {})

    @cached_property
    def plan(self) -> KernelPlan:
        """Before anything is compiled: of the first that it may get."""
        configuration, target = self.configuration, self.kernel.build.target
        if self.point.pass_name == "forward":
            plans = self.kernel.specification.plans(configuration, target)
            return plan_for(plans, self.point.problem, Chip(self.device.multiprocessors))
        found = self.kernel.specification.backward_candidates(configuration, target)
        return backward_plan_for([item.first for item in found], self.point.problem)

    def predicted(self) -> dict[str, int]:
        """Bytes of all launches, by quantity."""
        if self.point.order == STANDARD:
            return standard(self.plan, self.point.problem)
        return total(list(self.launches(self.plan).values()))

    def launches(self, plan: KernelPlan) -> dict[str, dict[str, int]]:
        """The same of each launch, by the name of its kernel, where the call got this plan."""
        found = IoModel(self.point.problem, self.work.inputs, self.device).predict(plan)
        return {name: launch.totals() for name, launch in found.items()}


def total(launches: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """By quantity, over launches."""
    return {name: sum(item[name] for item in launches) for name in launches[0]}


def standard(plan: KernelPlan, problem: Problem) -> dict[str, int]:
    """Algorithm 0. What its two products read of the L2 cache depends on a library's tiles: not predicted."""
    traffic = cost.standard_traffic(workload(plan, problem))
    reads, writes = sum(traffic.reads.values()), sum(traffic.writes.values())
    return {"hbm_reads": reads, "hbm_writes": writes, "sm_writes": writes}


def _specification(name: str) -> Specification:
    found, _ = load_specification(name, None, {})
    return replace(found, schedules=()).without_unasked_decode()
