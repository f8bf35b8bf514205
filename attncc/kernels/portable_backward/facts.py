"""What a portable backward kernel is beyond its tiles."""

from __future__ import annotations

from ..backward_facts import BackwardFacts
from ..portable.shared import STATISTICS_BYTES, shared_parts
from ..shared import Parts

GRADIENT_REGISTERS = 160  # of a thread, for dK and dV together


class PortableBackward(BackwardFacts):
    """Of a plan of the pass `backward` or `backward_dq`."""

    @property
    def template(self) -> str:
        q_outer = self.plan.loop == "q_outer"
        return "portable_backward/backward_q_outer.cu.j2" if q_outer else "portable_backward/backward_kv_outer.cu.j2"

    def accumulators(self) -> dict[str, int]:
        """S and its gradient, and the gradients that the block owns."""
        plan, rows = self.plan, self.plan.warp_rows
        score = rows * (plan.block_q if plan.owns_keys else plan.block_kv) // 32
        keys, values = rows * plan.padded_head_dim // 32, rows * plan.padded_value_head_dim // 32
        if not plan.owns_keys:
            gradients = {"dq": keys}
        else:
            gradients = {"dk": keys, "dv": values} if self.gradient_parts == 1 else {"dk or dv": max(keys, values)}
        return {"score": score, "gradient of score": score, **gradients}

    def shared_parts(self) -> Parts:
        plan = self.plan
        return shared_parts(plan.pass_name, plan, plan.padded_head_dim, plan.padded_value_head_dim, plan.element_bytes)

    @property
    def gradient_parts(self) -> int:
        """2 where one thread block makes dK and another dV, since no warp has registers for both."""
        plan = self.plan
        registers = plan.warp_rows * (plan.padded_head_dim + plan.padded_value_head_dim) // 32
        return 1 + (registers > GRADIENT_REGISTERS)

    @property
    def statistics_bytes(self) -> int:
        return STATISTICS_BYTES[self.plan.element_bytes]

    @property
    def statistics(self) -> str:
        return "statistics_low_bits" if self.plan.dtype == "fp32" else "statistics_floats"
