"""What a kernel of wide heads keeps in shared memory. Rows are whole panels of 128 bytes: warps find their columns."""

from __future__ import annotations

from math import prod

from ...schedule.plan import FRAGMENT, Build
from ...schedule.target import TARGETS
from ..settings import Tile
from ..shared import Parts, shared_bytes

PANEL_COLUMNS = 64  # of 16 bits
MOST_LATENT_STAGES = 3
_FLOAT_BYTES = 4
# Of the work, its tiles and its run, which all threads know (decode/merge.cu.j2), besides what is counted here.
_KEPT_BYTES = 1024


def panels(head_dim: int) -> int:
    """Columns of a row in shared memory."""
    return -(-head_dim // PANEL_COLUMNS) * PANEL_COLUMNS


def key_groups(tile: Tile) -> int:
    """Of warps that have the same rows and other keys: as many as there are, but with 16 keys at least. Warps beyond
    have columns of O alone."""
    return max(min(tile.warps * FRAGMENT // tile.block_q, tile.block_kv // FRAGMENT), 1)


def latent_stages(tile: Tile, build: Build) -> int:
    """How many tiles of K are in flight where V is its first columns: as many as fit in place of K and V, or beyond, as
    far as the target has memory. 0: V is always loaded for itself, as where it is as wide as K, which no model has."""
    if build.value_head_dim >= build.head_dim:
        return 0
    besides = shared_bytes(_q(tile, build) | _rows(tile, build))
    room = TARGETS[build.target].shared_bytes - _KEPT_BYTES - besides
    stages = min(room // prod(_k(tile, build, 1)["k"].values()), MOST_LATENT_STAGES)
    return stages if stages > 1 else 0


def shared_parts(tile: Tile, build: Build) -> Parts:
    """By name. Between Q and the rest stand tiles of K and V, or of K alone where that takes more."""
    apart = _k(tile, build, tile.stages) | _v(tile, build)
    latents = _k(tile, build, latent_stages(tile, build))
    ring = apart if shared_bytes(apart) >= shared_bytes(latents) else latents
    return _q(tile, build) | ring | _rows(tile, build)


def ring_bytes(tile: Tile, build: Build) -> int:
    """Of tiles of K and V."""
    parts = shared_parts(tile, build)
    return shared_bytes({name: parts[name] for name in ("k", "v") if name in parts})


def fits(tile: Tile, build: Build) -> bool:
    """Whether the target has so much, with what all threads know."""
    return shared_bytes(shared_parts(tile, build)) + _KEPT_BYTES <= TARGETS[build.target].shared_bytes


def _q(tile: Tile, build: Build) -> Parts:
    return {"q": {"block_q": tile.block_q, "head dim": panels(build.head_dim), "bytes": build.element_bytes}}


def _k(tile: Tile, build: Build, stages: int) -> Parts:
    keys = {"stages": stages, "block_kv": tile.block_kv}
    return {"k": {**keys, "head dim": panels(build.head_dim), "bytes": build.element_bytes}}


def _v(tile: Tile, build: Build) -> Parts:
    keys = {"stages": tile.stages, "block_kv": tile.block_kv}
    return {"v": {**keys, "head dim": panels(build.value_head_dim), "bytes": build.element_bytes}}


def _rows(tile: Tile, build: Build) -> Parts:
    """P, and what warps tell each other of rows: maxima and sums of each group, and what O is multiplied by."""
    return {
        "prob": {"block_q": tile.block_q, "block_kv": tile.block_kv, "bytes": build.element_bytes},
        "row values": {"block_q": tile.block_q, "values": 2 * key_groups(tile) + 1, "bytes": _FLOAT_BYTES},
    }
