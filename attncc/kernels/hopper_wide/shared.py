"""What a kernel of wide heads on Hopper keeps in shared memory: panels of 64 columns, as TMA writes and wgmma reads
them. Rows of V fall into two halves, one for each warpgroup."""

from __future__ import annotations

from math import prod

from ...schedule.plan import Build
from ...schedule.target import TARGETS
from ..hopper.panels import PANEL_COLUMNS
from ..settings import Tile
from ..shared import Parts, shared_bytes

MOST_LATENT_STAGES = 2  # as many as warpgroups: each has its own, at places that the compiler knows
MULTIPLYING_WARPS, WARPS = 8, 12  # of a warpgroup one warp loads, and three do nothing but give registers
_FLOAT_BYTES, _BARRIER_BYTES, _LANES = 4, 8, 32
_BARRIERS = 6  # of a stage, besides a full one of each panel of K: full ones of V's halves and info; empty ones
# Of the work, its tiles and its run, which all threads know (decode/merge.cu.j2), besides what is counted here.
_KEPT_BYTES = 1024


def key_panels(build: Build) -> int:
    """Panels of a row of Q, and of K."""
    return -(-build.head_dim // PANEL_COLUMNS)


def half_panels(build: Build) -> int:
    """Panels of half a row of V, of which a warpgroup has the columns of O. Of an odd number the second half has one
    of zeros more."""
    return -(-build.value_head_dim // (2 * PANEL_COLUMNS))


def first_panels(build: Build) -> int:
    """Panels of a row of K, as many as V has at most."""
    return min(key_panels(build), 2 * half_panels(build))


def latent_panels(build: Build) -> int:
    """Panels of a row of K whose first columns are V."""
    return max(key_panels(build), 2 * half_panels(build))


def latent_stages(tile: Tile, build: Build) -> int:
    """How many tiles of K are in flight where V is its first columns, which calls tell by where k and v are: as many
    as fit in place of K and V, or beyond, as far as the target has memory. 0: such calls load V for itself."""
    besides = shared_bytes(_q(tile, build) | _exchanged(tile, build, MOST_LATENT_STAGES))
    room = TARGETS[build.target].shared_bytes - _KEPT_BYTES - besides
    stages = min(room // prod(_k(tile, build, 1, latent_panels(build))["k"].values()), MOST_LATENT_STAGES)
    return stages if stages > 1 else 0


def most_stages(tile: Tile, build: Build) -> int:
    """Stages of barriers: one for each warpgroup at least."""
    return max(tile.stages, latent_stages(tile, build), 2)


def ring(tile: Tile, build: Build) -> Parts:
    """Tiles of K and V, or of K alone where that takes more."""
    apart = _k(tile, build, tile.stages, key_panels(build)) | _v(tile, build)
    latents = _k(tile, build, latent_stages(tile, build), latent_panels(build))
    return apart if shared_bytes(apart) >= shared_bytes(latents) else latents


def merging_bytes(tile: Tile, build: Build) -> int:
    """Of Q and the ring, where parts are merged once they are there no more."""
    return shared_bytes(_q(tile, build) | ring(tile, build))


def shared_parts(tile: Tile, build: Build) -> Parts:
    return _q(tile, build) | ring(tile, build) | _exchanged(tile, build, most_stages(tile, build))


def fits(tile: Tile, build: Build) -> bool:
    """Whether the target has so much, with what all threads know."""
    return shared_bytes(shared_parts(tile, build)) + _KEPT_BYTES <= TARGETS[build.target].shared_bytes


def _q(tile: Tile, build: Build) -> Parts:
    return {"q": {"block_q": tile.block_q, "head dim": key_panels(build) * PANEL_COLUMNS, "bytes": build.element_bytes}}


def _k(tile: Tile, build: Build, stages: int, panels: int) -> Parts:
    keys = {"stages": stages, "block_kv": tile.block_kv}
    return {"k": {**keys, "head dim": panels * PANEL_COLUMNS, "bytes": build.element_bytes}}


def _v(tile: Tile, build: Build) -> Parts:
    keys = {"stages": tile.stages, "block_kv": tile.block_kv}
    return {"v": {**keys, "head dim": 2 * half_panels(build) * PANEL_COLUMNS, "bytes": build.element_bytes}}


def _exchanged(tile: Tile, build: Build, stages: int) -> Parts:
    """P, and what warpgroups tell each other of rows: m and what O is multiplied by of each, l of each lane's share of
    two rows, a word of each warp. Barriers, and a word for each stage, with room up to the next 16 bytes."""
    floats = 2 * tile.block_q + MULTIPLYING_WARPS // 2 * (2 * _LANES + 1)
    words = stages * ((_BARRIERS + key_panels(build)) * _BARRIER_BYTES + _FLOAT_BYTES)
    return {
        "prob": {"block_q": tile.block_q, "block_kv": tile.block_kv, "bytes": build.element_bytes},
        "row values": {"values": floats, "bytes": _FLOAT_BYTES},
        "barriers": {"bytes": -(-words // 16) * 16},
    }
