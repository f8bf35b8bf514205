"""What the IO model says of a plan before anything runs: FLOPs, bytes, waves. Candidates are tried in its order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..analysis.cost import backward_cost, cost
from ..analysis.cost.roofline import DEVICES, Device
from ..analysis.mask.grid import Tally
from ..executor.run import skips, workload
from ..explain import expected_splits, kept_pairs, tallies
from ..kernels.legality import shared_memory
from ..kernels.registry import backward_facts, facts_of
from ..problem import Problem
from ..runtime.cuda.nvrtc import Resources
from ..schedule.plan import KernelPlan
from ..schedule.target import KIB, TARGETS

# Bytes between the L2 cache and the multiprocessors, which a loop order moves, pass about so many times as fast as
# those of HBM. It orders candidates; nothing else depends on it.
L2_SPEED = 2.0

# Of a multiprocessor, by compute capability: shared memory in KiB, and threads.
_MULTIPROCESSORS = {80: (164, 2048), 90: (228, 2048), 100: (228, 2048)}
_SMALL = 100, 1536  # 8.6, 8.9, 12.0
_BLOCK_SHARED = 1 * KIB  # that the system takes of each block


@dataclass(frozen=True)
class Prediction:
    """Of one call of a plan. `resident`: thread blocks that the GPU holds at once; an upper bound before ptxas has told
    the registers. `seconds` orders plans; it isn't a bound."""

    flops: int  # of tiles that aren't skipped
    bytes_moved: int  # as `explain` counts them
    blocks: int
    resident: int
    warps: int  # on a multiprocessor
    seconds: float

    @property
    def waves(self) -> float:
        return self.blocks / max(self.resident, 1)

    @property
    def idle(self) -> float:
        """The share of the GPU that has nothing to do, if all blocks take equally long."""
        whole = -(-self.blocks // max(self.resident, 1))
        return 1 - self.waves / max(whole, 1)


@dataclass(frozen=True)
class Model:
    """A problem on a GPU. `known`: whether `device` is that GPU, or another one in its place."""

    problem: Problem
    inputs: Mapping[str, Any]
    device: Device
    known: bool = True

    def predict(self, plan: KernelPlan, resources: Resources | None = None) -> Prediction:
        """AttnccError A6xx for inputs that don't suit."""
        work, seen = workload(plan, self.problem), self._tallies(plan)
        flops, moved = self._flops(plan, work, seen), self._bytes(plan, work, seen)
        blocks, (resident, warps) = self._blocks(plan), _resident(plan, self.device, resources)
        found = Prediction(flops, moved, blocks, resident * self.device.multiprocessors, warps, 0.0)
        compute = flops / self.device.flops(plan.element_bytes) / max(1 - found.idle, 0.05)
        return replace(found, seconds=max(compute, moved / (L2_SPEED * self.device.bytes_per_second)))

    def resident(self, plan: KernelPlan, resources: Resources | None = None) -> int:
        """Thread blocks that the GPU holds at once."""
        return _resident(plan, self.device, resources)[0] * self.device.multiprocessors

    def roofline_seconds(self, plan: KernelPlan) -> float:
        """The least that the device needs for the call: for the pairs that the mask keeps, and for each array once."""
        work = workload(plan, self.problem)
        pairs = self._kept(plan)
        flops = backward_cost.backward_flops(work, pairs) if plan.is_backward else cost.useful_flops(work, pairs)
        compute = flops / self.device.flops(plan.element_bytes)
        return max(compute, self._compulsory(work, plan) / self.device.bytes_per_second)

    def _kept(self, plan: KernelPlan) -> int:
        key = plan.variant
        if key not in self._kept_by_variant:
            self._kept_by_variant[key] = kept_pairs(plan, self.problem, self.inputs)[0]
        return self._kept_by_variant[key]

    @cached_property
    def _kept_by_variant(self) -> dict[Any, int]:
        return {}

    def _tallies(self, plan: KernelPlan) -> list[Tally]:
        key = plan.variant, plan.rules, plan.block_q, plan.block_kv, plan.grid_2d, skips(plan), plan.tests_tiles
        if key not in self._tallies_by_tiles:
            self._tallies_by_tiles[key] = tallies(plan, self.problem, self.inputs)
        distinct = self._tallies_by_tiles[key]
        return distinct * (self.problem.batch // len(distinct))

    @cached_property
    def _tallies_by_tiles(self) -> dict[Any, list[Tally]]:
        """By what they depend on: candidates with other warps or stages meet the same tiles."""
        return {}

    def _flops(self, plan: KernelPlan, work: cost.Workload, seen: list[Tally]) -> int:
        if not plan.is_backward:
            return cost.executed_flops(work, seen)
        pairs = sum(tally.live * tally.block_q * tally.block_kv for tally in seen)
        return backward_cost.backward_flops(work, pairs, padded=True)

    def _bytes(self, plan: KernelPlan, work: cost.Workload, seen: list[Tally]) -> int:
        if plan.owns_keys:
            facts = backward_facts(plan)
            of_dq = {"adds_dq": facts.adds_dq, "zeros": not facts.stores_dq_first}
            traffic = backward_cost.keys_traffic(work, seen, facts.gradient_parts, **of_dq)
        elif plan.is_backward:
            traffic = backward_cost.rows_traffic(work, seen)
        elif plan.loop == "kv_outer":
            traffic = cost.kv_outer_traffic(work, seen)
        else:
            splits = expected_splits(plan, self.problem, self.device)
            traffic = cost.q_outer_traffic(work, seen, splits, facts_of(plan).row_heads(self.problem))
        return traffic.total

    def _blocks(self, plan: KernelPlan) -> int:
        facts = facts_of(plan)
        if plan.owns_keys:
            return facts.heads(self.problem) * facts.kv_blocks(self.problem)
        blocks = facts.heads(self.problem) * facts.q_blocks(self.problem)
        return blocks if plan.is_backward else blocks * expected_splits(plan, self.problem, self.device)

    @staticmethod
    def _compulsory(work: cost.Workload, plan: KernelPlan) -> int:
        problem = work.problem
        rows, keys = problem.num_heads * problem.total_q, problem.num_kv_heads * problem.batch * problem.kv_len
        arrays = {"q": rows, "k": keys, "v": keys, "out": rows, "lse": rows}
        if plan.is_backward:
            arrays |= {"dout": rows, "dq": rows, "dk": keys, "dv": keys}
        return sum(work.moved(arrays).values())


def _resident(plan: KernelPlan, device: Device, resources: Resources | None) -> tuple[int, int]:
    """Thread blocks and warps that a multiprocessor holds."""
    kib, threads = _MULTIPROCESSORS.get(device.capability, _SMALL)
    target, own = TARGETS[plan.target], facts_of(plan).threads
    found = [kib * KIB // (sum(shared_memory(plan).values()) + _BLOCK_SHARED), threads // own]
    if resources is not None:
        found.append(target.registers_per_block // (-(-resources.registers // 8) * 8 * own))
    blocks = max(min(found), 1)
    return blocks, blocks * own // 32


def device_like(name: str, capability: int, multiprocessors: int) -> tuple[Device, bool]:
    """The GPU of this name as the roofline knows it. Else one of its capability, whose ceilings are only good to order
    candidates, and False."""
    words = name.lower().replace(" ", "")
    known = next((item for item in DEVICES.values() if item.name in words), None)
    if known is not None:
        return replace(known, multiprocessors=multiprocessors), True
    near = min(DEVICES.values(), key=lambda item: abs(item.capability - capability))
    return replace(near, name=name, capability=capability, multiprocessors=multiprocessors), False
