"""What a portable forward kernel is beyond its tiles: what warps know, who brings keys, shared memory."""

from __future__ import annotations

from ... import ir
from ...schedule.target import TARGETS
from ..facts import ForwardFacts
from ..hopper.panels import PANEL_COLUMNS
from ..portable.shared import forward_parts
from ..shared import Parts

CROWDING_REGISTERS = 192  # of a thread, for S and O: what else it needs in a loop takes all that is left


class PortableForward(ForwardFacts):
    """Of a plan of the pass `forward` or `patches`."""

    @property
    def template(self) -> str:
        q_outer = self.plan.loop == "q_outer"
        return "portable_forward/forward_q_outer.cu.j2" if q_outer else "portable_forward/forward_kv_outer.cu.j2"

    def accumulators(self) -> dict[str, int]:
        plan = self.plan
        rows = plan.warp_rows
        return {"score": rows * plan.block_kv // 32, "out": rows * plan.padded_value_head_dim // 32}

    def shared_parts(self) -> Parts:
        plan = self.plan
        return forward_parts(plan, plan.build)

    @property
    def mapped(self) -> tuple[str, ...]:
        return ("k", "v") if self.loads_by_tma else ()

    @property
    def keeps_work(self) -> bool:
        """Whether there are registers to keep, over the loop, what a block works on."""
        return False

    @property
    def spills_to_smem(self) -> bool:
        """Whether what a block knows of itself lies in shared memory, since accumulators leave no registers for it. A
        mask seldom asks for it; score lines do so in every tile."""
        plan = self.plan
        if plan.loop != "q_outer":
            return False
        crowded = (plan.block_kv + plan.padded_value_head_dim) * plan.warp_rows // 32 >= CROWDING_REGISTERS
        return crowded and bool(plan.variant.keeps) and not plan.variant.scores and plan.variant.dropout is None

    @property
    def loads_by_tma(self) -> bool:
        """Whether TMA brings keys and values, as boxes of their tensors: to kernels of 16 bits, for targets that say
        so. Boxes are whole panels, and tiles follow one another."""
        plan = self.plan
        if plan.loop != "q_outer" or plan.pass_name != "forward" or plan.paged or plan.kv_dtype:
            return False
        in_turn = self.warps_see_less or not plan.variant.keeps
        panels = plan.stored_head_dim % PANEL_COLUMNS == plan.stored_value_head_dim % PANEL_COLUMNS == 0
        fits = in_turn and panels and plan.dtype in {"fp16", "bf16"} and plan.stages > 1
        return fits and TARGETS[plan.target].tma

    @property
    def reads_once(self) -> bool:
        """Whether most keys are read by one thread block alone: they needn't stay in the L2 cache."""
        return False

    @property
    def searches(self) -> bool:
        """Whether warps search for their keys, in kernels that spill what they know of a block. Such kernels ask for
        all that a block needs ahead of their first barrier (`block_searches.cu.j2`)."""
        rules = self.plan.rules
        found = any(isinstance(node, ir.Search) for node in ir.walk(rules.kv_begin, rules.kv_end))
        return self.spills_to_smem and self.warps_see_less and found

    @property
    def warps_see_less(self) -> bool:
        """Whether warps know what their own rows keep of a tile. They pass by those of which only rows of others keep
        keys, and mask none that is whole for them: the bounds move with the rows. With one stage or tests of tiles,
        they have no registers for it."""
        plan = self.plan
        bounds = list(ir.walk(plan.rules.kv_begin, plan.rules.kv_end))
        moves = any(isinstance(node, ir.Symbol) and node.name in ("q_first", "q_last") for node in bounds)
        few = plan.stages == 1 or plan.tests_tiles
        return plan.pass_name == "forward" and plan.skip != "never" and moves and not few

    @property
    def tests_once(self) -> bool:
        return self.warps_see_less

    @property
    def aligns_tiles(self) -> bool:
        """Not of necessity: a block's first tile begins at its first key, and so needs fewer. But it is aligned where
        splits share tiles, and where single tiles are tested, whose answers are sharper for blocks that divide what
        masks speak of; dropout bits and remainders of keys ask for it too."""
        from ..instruction_cost import takes_remainders

        plan = self.plan
        aligned = plan.may_split or plan.tests_tiles or plan.variant.dropout is not None
        return aligned or takes_remainders(plan.variant)

    @property
    def query_rows(self) -> str:
        return f"spilled_rows{'_ahead' * self.loads_by_tma}" if self.spills_to_smem else super().query_rows
