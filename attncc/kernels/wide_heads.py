"""Facts of kernels whose warps share the columns of O, since no warp holds whole rows of it."""

from __future__ import annotations


class WideHeads:
    """Of head dims above 256."""

    @property
    def cuts_heads(self) -> bool:
        """Cuts of each head would take registers that their loop needs."""
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
