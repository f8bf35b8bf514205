"""The temporary device memory of one call: one allocation of the caller's framework, shared out by offsets."""

from __future__ import annotations

ALIGNMENT = 256  # bytes, as the frameworks' allocators have it


class Workspace:
    """Hands out offsets; `size` is what the call then allocates, in bytes."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, size: int) -> int:
        offset = self.size
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return offset
