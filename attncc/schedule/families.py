"""The kernel families, and which of them can do what.

`portable` (mma.sync, cp.async) runs everywhere; `hopper` (TMA, wgmma, warps that do nothing but load) on sm_90a alone.
"""

from __future__ import annotations

from .plan import KEY_PASSES


def default_family(target: str, dtype: str, loop: str, pass_name: str) -> str:
    """The family of a kernel whose schedule, written for `target`, sets none: hopper wherever it has a kernel."""
    able = hopper_lacks(target, dtype, loop, pass_name) is None
    return "hopper" if able or portable_lacks(dtype) else "portable"


_LACKED_PASSES = {
    "decode": "the decode pass: the rows of its tiles are of several heads, no box of memory that TMA could load",
    "backward_dq": "the backward_dq pass: it adds up dQ beside dK and dV",
}


def decodes(dtype: str) -> bool:
    """Whether the decode pass has kernels for a dtype: it is of the family portable."""
    return portable_lacks(dtype) is None


def portable_lacks(dtype: str) -> str | None:
    """What the family portable has no kernel for, of a kernel of this dtype; None if it has one."""
    return "e4m3: its products take operands of 16 or 32 bits" if dtype == "e4m3" else None


def hopper_lacks(target: str, dtype: str, loop: str, pass_name: str) -> str | None:
    """What the family hopper has no kernel for, of a kernel with these; None if it has one.

    A plan in fp64, which the CPU executor alone runs, may have any family.
    """
    if target != "sm_90a":
        return f"the target {target}: TMA and wgmma are instructions of sm_90a alone"
    if dtype == "fp32":
        return "fp32: the tensor cores of wgmma take 16-bit operands, or e4m3"
    if dtype == "e4m3" and pass_name.startswith("backward"):
        return "gradients of e4m3: 8 bits are too few for them"
    if pass_name in _LACKED_PASSES:
        return _LACKED_PASSES[pass_name]
    if pass_name not in KEY_PASSES and loop != "q_outer":
        return f"`loop = {loop}`: its warps hold O in registers while they go over the keys"
    return None
