"""What a kernel takes of a multiprocessor, and whether its target grants it."""

from __future__ import annotations

from .plan import DTYPE_BYTES, KernelPlan


def shared_memory(plan: KernelPlan) -> dict[str, int]:
    """Bytes of dynamic shared memory by part. Tiles are swizzled, not padded."""
    element = DTYPE_BYTES[plan.dtype]
    return {
        "q": plan.block_q * plan.padded_head_dim * element,
        "k": plan.stages * plan.block_kv * plan.padded_head_dim * element,
        "v": plan.stages * plan.block_kv * plan.padded_value_head_dim * element,
    }
