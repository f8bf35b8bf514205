"""Which kernels of the family portable have TMA bring keys and values, as boxes of their tensors."""

from __future__ import annotations

from .plan import PANEL_COLUMNS, KernelPlan
from .target import TARGETS


def loads_boxes(plan: KernelPlan) -> bool:
    """The forward pass in 16 bits, for targets that say so. Boxes are whole panels, and tiles follow one another."""
    if plan.family != "portable" or plan.loop != "q_outer" or plan.pass_name != "forward":
        return False
    in_turn = plan.warps_see_less or not plan.variant.keeps
    panels = plan.head_dim % PANEL_COLUMNS == plan.value_head_dim % PANEL_COLUMNS == 0
    fits = in_turn and panels and plan.dtype in {"fp16", "bf16"} and plan.stages > 1
    return fits and TARGETS[plan.target].boxes
