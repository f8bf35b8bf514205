"""What TMA and wgmma share: panels of shared memory, and warpgroups."""

from __future__ import annotations

# A warpgroup is four warps, 64 rows of Q.
WARPGROUP_WARPS, WARPGROUP_ROWS = 4, 64
PANEL_COLUMNS = 64  # of 16 bits, of the tiles that TMA writes and wgmma reads
PANEL_BYTES = 2 * PANEL_COLUMNS
STEP_BYTES = 32  # of a row of A that one instruction sums over
STEP = STEP_BYTES // 2  # elements of 16 bits
