"""What no kernel with TMA and wgmma can be made for."""

from __future__ import annotations

from ...schedule.plan import NARROW, Build


def lacks(build: Build) -> str | None:
    """None if there is a kernel. A plan in fp64, which the CPU executor alone runs, may have any family."""
    if build.target != "sm_90a":
        return f"the target {build.target}: TMA and wgmma are instructions of sm_90a alone"
    if build.is_wide:
        return f"head dims above {NARROW}: a warpgroup holds whole rows of what it computes"
    if build.dtype == "fp32":
        return "fp32: the tensor cores of wgmma take 16-bit operands, or e4m3"
    if build.kv_dtype is not None:
        return f"caches of {build.kv_dtype} beside q of {build.dtype}: TMA brings tiles as wgmma reads them"
    return None
