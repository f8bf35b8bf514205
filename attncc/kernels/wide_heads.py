"""Facts of kernels whose warps share the columns of O, since no warp holds whole rows of it."""

from __future__ import annotations


class WideHeads:
    """Of head dims above 256."""

    @property
    def cuts_heads(self) -> bool:
        """Their loop has no registers for what is known of that."""
        return False

    @property
    def shares_rows(self) -> bool:
        return True

    @property
    def warps_see_less(self) -> bool:
        return False

    @property
    def may_list_tiles(self) -> bool:
        return False
