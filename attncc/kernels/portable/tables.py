"""The tiles that a kernel gets where its schedule is silent: data from compile experiments, no spills in any row.

A row of a table serves every head dim up to its own. The first row that fits the head dims and the target's shared
memory is taken, so a large-memory row stands before the small one for the same head dims.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schedule.plan import KEY_PASSES, TILES_2D_PASSES, Build
from ...schedule.target import KIB, TARGETS
from ..instruction_cost import Pressure
from ..settings import FixedTile


@dataclass(frozen=True, slots=True)
class Row:
    """The tile for padded head dims up to these, on targets that lend one block this much shared memory."""

    head_dim: int
    value_head_dim: int
    shared_bytes: int
    tile: FixedTile


LARGE = 227 * KIB
SMALL = 99 * KIB

# Two m16 tiles a warp where the accumulators allow it (each K and V fragment then serves both), so that the kernel is
# bound by the tensor cores and not by shared memory; two blocks on each multiprocessor hide each other's softmax.
_FORWARD_16_BIT = (
    Row(80, 80, SMALL, FixedTile(128, 64, 4, 2)),
    Row(112, 112, SMALL, FixedTile(128, 48, 4, 2)),
    Row(128, 128, LARGE, FixedTile(128, 48, 4, 2)),
    Row(128, 128, SMALL, FixedTile(128, 48, 4, 1)),
    Row(192, 128, SMALL, FixedTile(128, 48, 4, 1)),
    Row(256, 256, SMALL, FixedTile(64, 64, 4, 1)),
)
# Attention and nothing else but masks: what score lines need makes the wider tile spill.
_WIDE_16_BIT = (Row(128, 128, LARGE, FixedTile(128, 64, 4, 2)), *_FORWARD_16_BIT)
# Variants that compute much for each pair: one m16 tile a warp, which leaves them registers and three blocks on each
# multiprocessor to hide what they wait for.
_BUSY_16_BIT = (
    Row(64, 64, LARGE, FixedTile(64, 64, 4, 2)),
    Row(112, 112, SMALL, FixedTile(64, 32, 4, 2)),
    Row(128, 128, LARGE, FixedTile(64, 32, 4, 2)),
    Row(128, 128, SMALL, FixedTile(64, 32, 4, 1)),
    Row(256, 256, SMALL, FixedTile(64, 32, 4, 2)),
)
_FORWARD_32_BIT = (
    Row(128, 128, SMALL, FixedTile(64, 32, 4, 1)),
    Row(256, 256, LARGE, FixedTile(64, 32, 4, 1)),
    Row(256, 256, SMALL, FixedTile(32, 32, 2, 1)),
)
# Few rows and many keys: the memory must be kept busy. All warps load, and share the keys of a tile as far as they
# don't need to share its rows. Two blocks on each multiprocessor, or one of wide heads, have about 128 KB on their way.
_DECODE_16_BIT = (
    Row(64, 64, LARGE, FixedTile(64, 128, 4, 3)),
    Row(64, 64, SMALL, FixedTile(64, 64, 4, 3)),
    Row(128, 128, LARGE, FixedTile(64, 64, 4, 3)),
    Row(128, 128, SMALL, FixedTile(64, 64, 4, 2)),
    Row(256, 256, LARGE, FixedTile(64, 64, 4, 3)),
    Row(256, 256, SMALL, FixedTile(64, 32, 4, 2)),
)
_DECODE_32_BIT = (
    Row(64, 64, SMALL, FixedTile(64, 64, 4, 2)),
    Row(128, 128, LARGE, FixedTile(64, 64, 4, 2)),
    Row(128, 128, SMALL, FixedTile(64, 32, 4, 2)),
    Row(256, 256, LARGE, FixedTile(64, 32, 4, 2)),
    Row(256, 256, SMALL, FixedTile(32, 32, 2, 1)),
)
# Over caches of 8 bits: as many bytes on their way. A warp widens what it multiplies, 32 keys at once with fewer
# instructions than twice 16. Of pages, scales are there too: two blocks of 128 keys a tile would be too large.
_DECODE_CACHE = (
    Row(64, 64, LARGE, FixedTile(64, 128, 4, 5)),
    Row(64, 64, SMALL, FixedTile(64, 128, 4, 3)),
    Row(128, 128, LARGE, FixedTile(64, 128, 4, 3)),
    Row(128, 128, SMALL, FixedTile(64, 128, 4, 2)),
    Row(256, 256, LARGE, FixedTile(64, 64, 4, 5)),
    Row(256, 256, SMALL, FixedTile(64, 64, 4, 2)),
)
_DECODE_CACHE_PAGES = (*_DECODE_CACHE[:2], Row(128, 128, LARGE, FixedTile(64, 64, 4, 5)), *_DECODE_CACHE[3:])
# A block owns keys: its warps hold dK and dV of 16 keys each (dK or dV alone beyond 160 registers), and S and dP.
_BACKWARD_16_BIT = (
    Row(64, 64, SMALL, FixedTile(64, 128, 8, 2)),
    Row(112, 112, LARGE, FixedTile(64, 128, 8, 2)),
    Row(128, 128, LARGE, FixedTile(32, 128, 8, 2)),
    Row(128, 128, SMALL, FixedTile(32, 64, 4, 1)),
    Row(192, 192, SMALL, FixedTile(32, 64, 4, 1)),
    Row(256, 256, LARGE, FixedTile(32, 64, 4, 1)),
    Row(256, 256, SMALL, FixedTile(32, 32, 2, 1)),
)
_BUSY_BACKWARD_16_BIT = (
    Row(64, 64, SMALL, FixedTile(32, 64, 4, 2)),
    Row(128, 128, SMALL, FixedTile(16, 64, 4, 2)),
    Row(192, 192, SMALL, FixedTile(16, 64, 4, 1)),
    Row(256, 256, SMALL, FixedTile(16, 32, 2, 1)),
)
_BACKWARD_32_BIT = (
    Row(64, 64, SMALL, FixedTile(32, 64, 4, 1)),
    Row(128, 128, SMALL, FixedTile(16, 32, 2, 1)),
    Row(256, 256, SMALL, FixedTile(16, 16, 1, 1)),
)
# A block owns rows: its warps hold dQ, S and dP.
_DQ_16_BIT = (
    Row(64, 64, SMALL, FixedTile(128, 64, 4, 2)),
    Row(128, 128, SMALL, FixedTile(64, 64, 4, 2)),
    Row(256, 256, SMALL, FixedTile(64, 32, 4, 1)),
)
_BUSY_DQ_16_BIT = (
    Row(64, 64, SMALL, FixedTile(64, 64, 4, 2)),
    Row(128, 128, SMALL, FixedTile(64, 32, 4, 2)),
    Row(256, 256, SMALL, FixedTile(64, 32, 4, 1)),
)
_DQ_32_BIT = (
    Row(64, 64, SMALL, FixedTile(64, 32, 4, 1)),
    Row(128, 128, SMALL, FixedTile(32, 32, 2, 1)),
    Row(256, 256, SMALL, FixedTile(16, 32, 1, 1)),
)

_TABLES = {
    ("forward", 2): _FORWARD_16_BIT,
    ("forward", 4): _FORWARD_32_BIT,
    ("decode", 2): _DECODE_16_BIT,
    ("decode", 4): _DECODE_32_BIT,
    ("backward", 2): _BACKWARD_16_BIT,
    ("backward", 4): _BACKWARD_32_BIT,
    ("backward_dq", 2): _DQ_16_BIT,
    ("backward_dq", 4): _DQ_32_BIT,
}


# For variants that compute much for each pair.
_BUSY_TABLES = {
    ("forward", 2): _BUSY_16_BIT,
    ("backward", 2): _BUSY_BACKWARD_16_BIT,
    ("backward_dq", 2): _BUSY_DQ_16_BIT,
}
# Where a variant has tiles of its own.
_OWN_TABLES: dict[Pressure, dict[tuple[str, int], tuple[Row, ...]]] = {
    Pressure.NOTHING: {("forward", 2): _WIDE_16_BIT},
    Pressure.LITTLE: {},
    Pressure.MUCH: _BUSY_TABLES,
}


_PASS_IN_1D = {in_2d: name for name, in_2d in TILES_2D_PASSES.items()}


def default_tile(build: Build, loop: str, pressure: Pressure = Pressure.LITTLE) -> FixedTile:
    """The tile of a build with a loop order.

    Of the forward pass with the loop `kv_outer` it follows FlashAttention's Algorithm 1 as far as registers allow: at
    most 64 x 64. `pressure` is what registers must be left for (`instruction_cost.portable_pressure`). LookupError
    where no tile fits: a head dim above 256.
    """
    element_bytes, shared_bytes = max(build.element_bytes, 2), TARGETS[build.target].shared_bytes
    head_dim, value_head_dim = build.padded_head_dims
    if loop == "kv_outer" and build.pass_name not in KEY_PASSES:
        return _kv_outer(element_bytes, head_dim, value_head_dim, shared_bytes)
    key, of_cache = (_PASS_IN_1D.get(build.pass_name, build.pass_name), element_bytes), build.kv_dtype is not None
    if of_cache and build.pass_name == "decode":
        rows: tuple[Row, ...] = _DECODE_CACHE_PAGES if build.paged else _DECODE_CACHE
    else:  # what is widened takes registers, too
        rows = _OWN_TABLES[max(pressure, Pressure.LITTLE) if of_cache else pressure].get(key, _TABLES[key])
    for row in rows:
        fits = head_dim <= row.head_dim and value_head_dim <= row.value_head_dim
        if fits and row.shared_bytes <= shared_bytes:
            return row.tile
    raise LookupError(f"no tiles for head dims {head_dim} and {value_head_dim}")


def _kv_outer(element_bytes: int, head_dim: int, value_head_dim: int, shared_bytes: int) -> FixedTile:
    """B_c = ceil(M / 4d), B_r = min(B_c, d) (Dao et al., "FlashAttention", NeurIPS 2022, Algorithm 1, line 1).

    M counts elements of on-chip memory. Both are rounded down to what a block of four warps holds in registers.
    """
    widest = max(head_dim, value_head_dim)
    columns = -(-shared_bytes // (4 * element_bytes * widest))
    block_kv = min(max(columns // 32 * 32, 32), 64 if widest <= 128 and element_bytes == 2 else 32)
    rows = min(columns, widest)
    block_q = 64 if rows >= 64 else 32 if rows >= 32 else 16
    return FixedTile(block_q, block_kv, block_q // 16, 1)
