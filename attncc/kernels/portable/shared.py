"""What a portable kernel keeps in shared memory. Tiles are swizzled, not padded."""

from __future__ import annotations

from ...schedule.plan import KEY_PASSES, KV_BYTES, Build
from ..settings import Tile
from ..shared import Parts

_SCALE_BYTES = 8  # 4, and what it takes to have the scales of 16 rows in 128 bytes
_PANEL = 32  # the least columns of 8 bits that are swizzled
STATISTICS_BYTES = {2: 8, 4: 16, 8: 16}  # of a row, by an element's; in fp32 with what lse lost by rounding


def forward_parts(tile: Tile, build: Build) -> Parts:
    """Of a kernel of a forward pass. Tiles of 8 bits have whole panels of 32 columns; pages have scales, too."""
    head_dim, value_head_dim = build.padded_head_dims
    if build.kv_dtype is None:
        return shared_parts(build.pass_name, tile, head_dim, value_head_dim, build.element_bytes)
    looped = {"stages": tile.stages, "block_kv": tile.block_kv}
    parts: Parts = {
        "q": {"block_q": tile.block_q, "head dim": head_dim, "bytes": build.element_bytes},
        "k": {**looped, "columns": _in_panels(head_dim), "bytes": KV_BYTES},
        "v": {**looped, "columns": _in_panels(value_head_dim), "bytes": KV_BYTES},
    }
    return parts | ({"scales": {**looped, "k and v": 2, "bytes": _SCALE_BYTES}} if build.paged else {})


def _in_panels(columns: int) -> int:
    """Of a row of 8 bits."""
    return -(-columns // _PANEL) * _PANEL


def shared_parts(pass_name: str, tile: Tile, head_dim: int, value_head_dim: int, element_bytes: int) -> Parts:
    """Of a kernel of the portable family, for padded head dims. In fp32 the backward pass doesn't add up dQ."""
    element = {"bytes": element_bytes}
    rows, keys = {"block_q": tile.block_q}, {"block_kv": tile.block_kv}
    looped = {"stages": tile.stages}
    if pass_name in KEY_PASSES:
        return {
            "k": {**keys, "head dim": head_dim, **element},
            "v": {**keys, "head dim": value_head_dim, **element},
            "q": {**looped, **rows, "head dim": head_dim, **element},
            "dout": {**looped, **rows, "head dim": value_head_dim, **element},
            "lse and delta": {**looped, **rows, "bytes": STATISTICS_BYTES[element_bytes]},
        } | ({"gradient of score": {**keys, **rows, **element}} if element_bytes == 2 else {})
    parts = {
        "q": {**rows, "head dim": head_dim, **element},
        "k": {**looped, **keys, "head dim": head_dim, **element},
        "v": {**looped, **keys, "head dim": value_head_dim, **element},
    }
    return parts | ({"dout": {**rows, "head dim": value_head_dim, **element}} if pass_name == "backward_dq" else {})
