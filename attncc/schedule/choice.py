"""How a kernel runs: a field for each knob of schedules, with its record, and what follows from the tile.

A new knob is one more field here: `check`, plans, packages, `tune`, editors and error texts take it from there.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from .families import KINDS

Value = int | str

LOOPS = ("q_outer", "kv_outer")
MAX_SPLITS = 256  # of the keys of a row: the combine kernel has room for so many weights

_KNOB = "knob"  # of the metadata of fields
OPTIONAL = "optional"  # the same, of a plan's: left out of JSON where they have their default


@dataclass(frozen=True, slots=True)
class Knob:
    """What a knob may be: some words, and ints from the least to the greatest.

    `default`: what runs where a schedule is silent, unless that follows from the tiles or the pass.
    """

    doc: str
    words: tuple[str, ...] = ()
    numbers: tuple[int, int] | None = None
    default: Value | None = None

    def allows(self, value: Value) -> bool:
        if isinstance(value, str):
            return value in self.words
        return self.numbers is not None and self.numbers[0] <= value <= self.numbers[1]

    @property
    def values(self) -> str:
        """`auto`, or an int from 1 to 256."""
        words = [f"`{word}`" for word in self.words]
        numbers = [f"an int from {self.numbers[0]} to {self.numbers[1]}"] if self.numbers else []
        return " or ".join([*words, *numbers])


def _knob(
    doc: str, words: tuple[str, ...] = (), numbers: tuple[int, int] | None = None, default: Value | None = None
) -> Any:
    record = Knob(doc, words, numbers, default)
    return field(default=MISSING if default is None else default, metadata={_KNOB: record})


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A value for each knob, and what follows from the tile. It says no more than `KernelPlan` of what runs."""

    family: str = _knob(
        "the kernels: portable ones, wide ones for head dims above 256, or hopper and hopper_wide: TMA and wgmma", KINDS
    )
    loop: str = _knob("the outer loop: q_outer is FlashAttention-2, kv_outer FlashAttention-1", LOOPS)
    block_q: int = _knob("rows of a tile", numbers=(16, 512))
    block_kv: int = _knob("keys of a tile", numbers=(16, 512))
    stages: int = _knob("K/V tiles in flight", numbers=(1, 8))
    warps: int = _knob("warps of a thread block", numbers=(1, 16))
    # None: decided at each launch
    split_kv: int | None = _knob("thread blocks that share the keys of a row", ("auto",), (1, MAX_SPLITS))
    skip: str = _knob(
        "whether tiles are skipped by what is proven of the mask, and where single tiles are tested",
        ("auto", "always", "never", "lists", "in_kernel"),
        default="auto",
    )
    # No knob sets these.
    overlap: bool = True  # hopper: Q K^T of a tile runs beside P V of the one before
    low_register: bool = False  # backward: saves registers at the cost of time (few_registers.cuh)
    # decode: keys of a tile that a warp works on at once; 0: as many as one query asks for
    keys_at_once: int = field(default=0, metadata={OPTIONAL: True})


KNOBS: dict[str, Knob] = {item.name: item.metadata[_KNOB] for item in fields(Choice) if _KNOB in item.metadata}
TILE_KNOBS = ("block_q", "block_kv", "warps")
SIZE_KNOBS = (*TILE_KNOBS, "stages")
