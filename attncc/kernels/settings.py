"""From tiles and what a schedule sets to a value for each knob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..schedule.choice import KNOBS, Choice, Value
from ..schedule.plan import KEY_PASSES, Build


class Tile(Protocol):
    """A tile of block_q x block_kv, worked on by `warps` warps, with `stages` tiles of the inner loop in flight."""

    @property
    def block_q(self) -> int: ...

    @property
    def block_kv(self) -> int: ...

    @property
    def warps(self) -> int: ...

    @property
    def stages(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FixedTile:
    """One that a family has in a list."""

    block_q: int
    block_kv: int
    warps: int
    stages: int


def number(settings: Mapping[str, Value], name: str, default: int) -> int:
    """What is set of a knob, or else the default."""
    return int(settings.get(name, default))


def loop_of(pass_name: str) -> str:
    """The loop order of a pass where its schedule sets none; the backward passes have no other."""
    return "kv_outer" if pass_name in KEY_PASSES else "q_outer"


def loop_set(settings: Mapping[str, Value], build: Build) -> str:
    return str(settings.get("loop", loop_of(build.pass_name)))


def choice(
    settings: Mapping[str, Value],
    build: Build,
    family: str,
    tile: Tile,
    *,
    overlap: bool = True,
    low_register: bool = False,
) -> Choice:
    """Settings win. A tile has been made to agree with those of its sizes before."""
    loop = loop_set(settings, build)
    return Choice(
        family=family,
        loop=loop,
        block_q=tile.block_q,
        block_kv=tile.block_kv,
        warps=tile.warps,
        stages=number(settings, "stages", tile.stages),
        split_kv=_splits(settings.get("split_kv"), loop, build),
        overlap=overlap,
        low_register=low_register,
        **_plain(settings),
    )


def _plain(settings: Mapping[str, Value]) -> dict[str, Any]:
    """The knobs that nothing follows from."""
    return {name: settings.get(name, knob.default) for name, knob in KNOBS.items() if knob.default is not None}


def _splits(value: Value | None, loop: str, build: Build) -> int | None:
    """kv_outer never splits by itself, and only the decode pass splits unasked, and forward kernels made for it."""
    if isinstance(value, int):
        return value
    splits = loop == "q_outer" and (value == "auto" or build.pass_name == "decode" or build.split)
    return None if splits else 1
