"""What a call of a kernel moves, launch by launch: between HBM and the L2 cache, and between that and multiprocessors.

`explain --measure` holds it against the counters of a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .analysis.cost import backward_cost, on_chip
from .analysis.cost.cost import RESULTS, STATE, Workload
from .analysis.cost.on_chip import ChipTraffic, KeyBlocks
from .analysis.cost.roofline import Device
from .analysis.mask.grid import Tally, tally
from .analysis.mask.parts import keys_from_first, loaded_pieces
from .analysis.rules import TileKind
from .evaluate import Array, Environment
from .executor.run import skips, workload
from .explain import capacity, expected_splits, sequences, tallies
from .kernels.helpers.transposition import pays
from .kernels.hopper.panels import PANEL_BYTES
from .kernels.registry import backward_facts, facts_of, forward_facts
from .problem import Problem
from .runtime.call.persistent import clusters, key_clusters
from .schedule.plan import KernelPlan

_SUM_BYTES = 4


@dataclass(frozen=True)
class Predicted:
    """Bytes of one launch, by array. `hbm_reads` and `hbm_writes` have each array once: as if the L2 cache were empty
    before, held all that is used again, and were written back after."""

    chip: ChipTraffic
    hbm_reads: Mapping[str, int] = field(default_factory=dict)
    hbm_writes: Mapping[str, int] = field(default_factory=dict)

    def totals(self) -> dict[str, int]:
        """By the names that `measure` gives to counters."""
        chip = self.chip
        parts = {
            "hbm_reads": self.hbm_reads,
            "hbm_writes": self.hbm_writes,
            "l2_reads": chip.l2_reads,
            "sm_reads": chip.sm_reads,
            "sm_writes": chip.writes,
            "reductions": chip.reductions,
        }
        return {name: sum(sizes.values()) for name, sizes in parts.items()}


@dataclass(frozen=True)
class IoModel:
    """A dense problem on a GPU. `deterministic`: of backward calls, whose sums then have an order. `lse`: of forward
    calls that return it."""

    problem: Problem
    inputs: Mapping[str, Array]
    device: Device
    deterministic: bool = False
    lse: bool = False

    def predict(self, plan: KernelPlan) -> dict[str, Predicted]:
        """The launches of a call that this plan serves, by the names of their kernels in CUDA. Launches that prepare
        inputs aren't predicted. AttnccError A6xx for inputs that don't suit."""
        return self._backward(plan) if plan.is_backward else self._forward(plan)

    # ------------------------------------------------------------ forward

    def _forward(self, plan: KernelPlan) -> dict[str, Predicted]:
        work, splits = self._work(plan), expected_splits(plan, self.problem, self.device)
        rows, keys = self._rows, self._keys
        results = dict.fromkeys(STATE, rows * splits) if splits > 1 else dict.fromkeys(self._results, rows)
        state = dict.fromkeys(STATE, rows) if plan.loop == "kv_outer" else {}
        own = Predicted(
            self._forward_chip(plan, work, splits),
            work.moved({"q": rows, "k": keys, "v": keys}),
            work.moved({**results, **state}),
        )
        found = {f"{plan.variant.name}_{plan.pass_name}": own}
        # The decode kernel merges what splits leave by itself.
        if splits > 1 and plan.pass_name != "decode":
            found["combine"] = _once(
                work.moved(dict.fromkeys(STATE, rows * splits)), work.moved(dict.fromkeys(self._results, rows))
            )
        return found

    def _forward_chip(self, plan: KernelPlan, work: Workload, splits: int) -> ChipTraffic:
        seen = self._tallies(plan)
        if plan.loop == "kv_outer":
            return on_chip.kv_outer(work, seen)
        facts = forward_facts(plan)
        ahead = facts.transposes_values and pays(plan, self.problem)
        alone = facts.transposes_values and not ahead
        paired = not alone and clusters(plan, self.problem, capacity(plan, self.device))
        together = facts.row_heads(self.problem)
        found = on_chip.q_outer(work, seen, splits, together, 1 + paired, results=self._results)
        rows = facts.heads(self.problem) * facts.q_blocks(self.problem) * plan.block_q * splits
        keys = sum(tally.live * tally.block_kv for tally in seen)
        found = found.in_boxes(_boxes(plan, {"q": rows, "k": keys // together, "v": keys // together}))
        if not ahead:
            return found
        values = {"v": keys * plan.padded_value_head_dim * plan.element_bytes}  # V comes in whole tiles
        halves = {"v": values["v"] // (1 + paired)}
        return replace(found, l2_reads={**found.l2_reads, **halves}, sm_reads={**found.sm_reads, **values})

    # ------------------------------------------------------------ backward

    def _backward(self, plan: KernelPlan) -> dict[str, Predicted]:
        work, facts, softmax = self._work(plan), backward_facts(plan), plan.variant.normalize == "softmax"
        rows, keys, name = self._rows, self._keys, f"{plan.variant.name}_{plan.pass_name}"
        sums, stores_first = self._dq_sum_bytes(plan), self._stores_first(plan)
        zeros = {} if stores_first else sums
        read = work.moved({"q": rows, "k": keys, "v": keys, "dout": rows, "statistics": rows})
        written = work.moved({"dk": keys, "dv": keys} if plan.owns_keys else {"dq": rows})
        found = {}
        if softmax:
            traffic = backward_cost.statistics_traffic(work)
            found["delta"] = _once(traffic.reads, {**traffic.writes, **zeros})
        if not plan.owns_keys:
            chip = ChipTraffic.of(backward_cost.rows_traffic(work, self._tallies(plan)))
            return {**found, name: Predicted(chip, read, written)}
        found[name] = Predicted(self._keys_chip(plan, work), {**read, **zeros}, {**written, **sums})
        if facts.adds_dq and self._adds_dq(plan):
            found["dq_sum"] = _once(sums, work.moved({"dq": rows}))
        return found

    def _keys_chip(self, plan: KernelPlan, work: Workload) -> ChipTraffic:
        facts = backward_facts(plan)
        paired = key_clusters(plan, self.problem, capacity(plan, self.device), ordered=self.deterministic)
        columns = plan.padded_head_dim if self._adds_dq(plan) else 0
        blocks = KeyBlocks(
            facts.gradient_parts,
            facts.row_alignment,
            columns,
            paired,
            plan.padded_head_dim // 2 if paired else 0,
            self._stores_first(plan),
        )
        seen = self._tallies(replace(plan, block_kv=2 * plan.block_kv) if paired else plan)
        rows = sum(tally.live * tally.block_q for tally in seen) * blocks.parts * (1 + paired)
        keys = sum(tally.used_tiles * tally.block_kv for tally in seen) // self.problem.group
        whole = _boxes(plan, {"q": rows, "dout": rows, "k": keys * blocks.parts, "v": keys})
        if whole and paired:
            whole["k"] += keys * blocks.other_columns * plan.element_bytes
        return on_chip.keys_own(work, seen, blocks).in_boxes(whole)

    def _adds_dq(self, plan: KernelPlan) -> bool:
        facts = backward_facts(plan)
        return facts.adds_dq and (facts.orders_dq or not self.deterministic)

    def _stores_first(self, plan: KernelPlan) -> bool:
        return backward_facts(plan).stores_dq_first and not self.deterministic

    def _dq_sum_bytes(self, plan: KernelPlan) -> dict[str, int]:
        if not plan.owns_keys or not self._adds_dq(plan):
            return {}
        rows = backward_facts(plan).kept_rows(self.problem) * self.problem.num_heads * self.problem.batch
        return {"partial_dq": rows * plan.padded_head_dim * _SUM_BYTES}

    # ------------------------------------------------------------ counts

    @property
    def _results(self) -> tuple[str, ...]:
        return RESULTS if self.lse else ("out",)

    @property
    def _rows(self) -> int:
        return self.problem.num_heads * self.problem.batch * self.problem.q_len

    @property
    def _keys(self) -> int:
        return self.problem.num_kv_heads * self.problem.batch * self.problem.kv_len

    def _work(self, plan: KernelPlan) -> Workload:
        """With rows as they lie in memory: of other head dims a call copies them, filled up."""
        stored = replace(self.problem, head_dim=plan.stored_head_dim, value_head_dim=plan.stored_value_head_dim)
        return workload(plan, stored)

    def _tallies(self, plan: KernelPlan) -> list[Tally]:
        """The tiles that are loaded, of each sequence."""
        problem = self.problem
        distinct = tallies(plan, problem, self.inputs)
        if plan.grid_2d is None and skips(plan):
            seen = sequences(plan.variant, plan.rules, problem, self.inputs)
            distinct = [self._loaded(plan, found, of) for found, (of, _) in zip(distinct, seen, strict=True)]
        return distinct * (problem.batch // len(distinct))

    def _loaded(self, plan: KernelPlan, whole: Tally, environment: Environment) -> Tally:
        """A tally of whole tiles of the grid as what the kernel loads."""
        facts, heads, blocks = facts_of(plan), self.problem.num_heads, (plan.block_q, plan.block_kv)
        if facts.tile_parts != (1, 1):
            loaded = loaded_pieces(plan.rules, environment, blocks, facts.tile_parts, single_tiles=plan.tests_tiles)
            return tally(loaded, heads)
        if plan.is_backward or plan.loop == "kv_outer" or forward_facts(plan).aligns_tiles:
            return whole
        tiles, keys = keys_from_first(plan.rules, environment, heads, blocks)
        return replace(whole, kinds={TileKind.PARTIAL: tiles, TileKind.FULL: 0}, live_keys=keys)


def _boxes(plan: KernelPlan, rows: Mapping[str, int]) -> dict[str, int]:
    """Bytes of so many rows of the operands that come by tensor maps: in panels of PANEL_BYTES."""
    dims = {"q": plan.stored_head_dim, "k": plan.stored_head_dim}
    dims |= dict.fromkeys(("v", "dout"), plan.stored_value_head_dim)
    panels = {name: -(-dim * plan.element_bytes // PANEL_BYTES) for name, dim in dims.items()}
    return {name: rows[name] * panels[name] * PANEL_BYTES for name in facts_of(plan).mapped}


def _once(reads: Mapping[str, int], writes: Mapping[str, int]) -> Predicted:
    """A kernel that goes over its arrays once."""
    return Predicted(ChipTraffic(reads, reads, writes), reads, writes)
