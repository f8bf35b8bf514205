"""What no portable kernel can be made for."""

from __future__ import annotations

from ...schedule.plan import NARROW, Build


def lacks(build: Build) -> str | None:
    """None if there is a kernel."""
    if build.is_wide:
        return f"head dims above {NARROW}: a warp holds whole rows of what it computes"
    return "e4m3: its products take operands of 16 or 32 bits" if build.dtype == "e4m3" else None
