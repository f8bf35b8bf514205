"""What a forward kernel of the family hopper is, beyond its tiles: registers, shared memory, who takes turns.

Warpgroups of 64 rows of Q multiply; one more loads, claims blocks of queries, and where it is needed transposes V.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Load, walk
from .plan import PANEL_BYTES, KernelPlan
from .shared import Parts
from .weight import gains_by_turns, room

# Registers of a thread, by how many warpgroups multiply. One more loads: it gives what it doesn't need to the others,
# in steps of 8, and needs more where loop bounds are read from inputs, or V is transposed and tiles have notes,
# and most where it classifies tiles. It then keeps all that those that multiply can spare beside their accumulators and
# _OTHER, or _LIGHT_OTHER where they compute little. _LAUNCHED sums one thread of each warpgroup.
_LAUNCHED_REGISTERS = {1: 480, 2: 504, 3: 512, 4: 480}
_PRODUCER_REGISTERS = {1: 56, 2: 40, 3: 32, 4: 32}
_TRANSPOSING_REGISTERS = {1: 56, 2: 56, 3: 56, 4: 64}
_READING_REGISTERS = {1: 136, 2: 56, 3: 56, 4: 64}
_CLASSIFYING_REGISTERS = {1: 136, 2: 104, 3: 80, 4: 64}
_OTHER_REGISTERS, _LIGHT_OTHER_REGISTERS = 96, 72
_MOST_REGISTERS = 240


@dataclass(frozen=True)
class HopperForward:
    """Facts of one plan of the family hopper, of the pass `forward` or `patches`."""

    plan: KernelPlan

    def accumulators(self) -> dict[str, int]:
        """Registers of each thread that multiplies: S, O and, where products overlap, P of the tile before, in the
        dtype."""
        plan = self.plan
        parts = {"score": plan.block_kv // 2, "out": plan.padded_value_head_dim // 2}
        return parts | ({"prob": plan.block_kv * plan.element_bytes // 8} if plan.overlap else {})

    @property
    def producer_registers(self) -> int:
        """Of each thread of the warpgroup that loads."""
        plan, warpgroups = self.plan, self.plan.warpgroups
        bounds = (plan.rules.kv_begin, plan.rules.full_begin, plan.rules.full_end, plan.rules.kv_end)
        if not plan.tests_tiles and not any(isinstance(node, Load) for node in walk(*bounds)):
            transposes = plan.transposes_values and not plan.counts_tiles
            return (_TRANSPOSING_REGISTERS if transposes else _PRODUCER_REGISTERS)[warpgroups]
        least = (_CLASSIFYING_REGISTERS if plan.uses_tile_kind else _READING_REGISTERS)[warpgroups]
        launched = _LAUNCHED_REGISTERS[warpgroups]
        other = _LIGHT_OTHER_REGISTERS if room(plan.variant) == 0 else _OTHER_REGISTERS
        spare = launched - warpgroups * (sum(self.accumulators().values()) + other)
        return max(least, min(spare, launched // (warpgroups + 1)) // 8 * 8)  # it can only give

    @property
    def consumer_registers(self) -> int:
        """Of each thread that multiplies."""
        warpgroups = self.plan.warpgroups
        rest = _LAUNCHED_REGISTERS[warpgroups] - self.producer_registers
        return min(rest // warpgroups // 8 * 8, _MOST_REGISTERS)

    @property
    def held_query_steps(self) -> int:
        """How many steps of 16 columns of Q each warp keeps in registers, so that products read fewer bytes of shared
        memory: half of them where head dims are small and no second set of scores takes registers."""
        plan = self.plan
        return 0 if plan.overlap or plan.padded_head_dim > 64 else plan.padded_head_dim // 32

    @property
    def takes_turns(self) -> bool:
        """Whether two warpgroups start their products by turns, so that one computes while the other multiplies
        (ping-pong scheduling: Shah et al., "FlashAttention-3", 2024, section 3.1). Both must have the same tiles, or
        one would wait for a turn that the other has no tile for."""
        plan = self.plan
        alike = (plan.block_q, plan.block_kv) == (128, 128) and plan.row_groups == 1
        return alike and plan.dtype != "e4m3" and gains_by_turns(plan.variant)

    @property
    def plans_ahead(self) -> bool:
        """Whether a warp of its own claims and plans blocks of queries, and another loads Q. One does all where V is
        transposed, which leaves no warps, and for one group of rows, of which there is little to plan."""
        return self.plan.row_groups > 1 and not self.plan.transposes_values

    @property
    def trusts_masked(self) -> bool:
        """Whether tiles with a mask may trust old references too: it takes registers, of which e4m3 has few."""
        return self.plan.is_light and self.plan.dtype != "e4m3"

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing but softmax of products: no mask, no score lines, no dropout. Then all tiles of a
        block but its first are whole, and there are registers left. (e4m3 has no room for guessed references.)"""
        plan = self.plan
        softmax = plan.normalizer == "trust_softmax" and plan.variant.dropout is None
        return plan.counts_tiles and softmax and plan.dtype != "e4m3"

    @property
    def guessed_sum(self) -> str:
        """The least sum of a tile, as a literal, that guessed references may leave: fp16 loses digits below 2^-14."""
        return {"fp16": "1"}.get(self.plan.dtype, "0x1p-40f")

    @property
    def trusted_sum(self) -> str:
        """The largest sum of a tile, as a literal, that old references may leave: fp16 ends at 2^16, e4m3 at 448."""
        return {"fp16": "0x1p15f", "e4m3": "448"}.get(self.plan.dtype, "0x1p40f")

    def shared_parts(self) -> Parts:
        """The factors of the size of each part of shared memory. TMA writes whole panels."""
        plan = self.plan
        tile, stages = {"stages": plan.stages, "block_kv": plan.block_kv}, {"stages": plan.stages}
        element = {"bytes": plan.element_bytes}
        head_dim, value_head_dim = (
            -(-size * plan.element_bytes // PANEL_BYTES) * PANEL_BYTES // plan.element_bytes
            for size in (plan.head_dim, plan.value_head_dim)
        )
        transposed = {**stages, "head dim": plan.padded_value_head_dim, "keys": plan.block_kv}
        return {
            "q": {"block_q": plan.block_q, "head dim": head_dim, **element},
            "k": {**tile, "head dim": head_dim, **element},
            "v": {**tile, "head dim": value_head_dim, **element},
            **({"v transposed": transposed} if plan.transposes_values else {}),
            "barriers": {"bytes": self._pipeline_bytes()},
        }

    def _pipeline_bytes(self) -> int:
        """As pipeline.cuh has it. Barriers of 8 bytes: four for each stage, two for the rows of each warpgroup, two for
        the plan. The plan and two works for each warpgroup, of 48 bytes. For each group of rows a range of 16, and a
        note of 4 for each stage. Where V is transposed, for each stage two barriers and a note more."""
        plan = self.plan
        barriers = 8 * (4 * plan.stages + 2 * plan.warpgroups + 2)
        slots = 48 * (1 + 2 * plan.warpgroups) + 16 * plan.row_groups
        found = -(-barriers // 16) * 16 + slots + 4 * plan.stages * plan.row_groups
        return -(-found // 8) * 8 + 20 * plan.stages if plan.transposes_values else found
