"""The forward suite's cases: a covering design over everything that a forward kernel's result may depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from attncc.problem import Problem
from attncc.resources import folder
from tests.gpu.cover import cover

SPECS = tuple(sorted(path.stem for path in folder("specs").glob("*.attn") if path.stem != "masks"))

# These meet every length, head dim and number of splits; the others three of each, all different from neighbour to
# neighbour, and every value of the factors that have no more than four.
CORE = {
    "full", "causal", "sliding_window", "prefix_lm", "alibi", "softcap", "documents", "dilated_window",
    "dropout_attention", "decode", "flash_attention_1", "alibi_documents",
}  # fmt: skip

LENGTHS = (
    (1, 1), (1, 1000), (97, 97), (113, 203), (200, 100), (239, 1), (799, 3), (1023, 1024), (1024, 1023), (4096, 4096),
)  # fmt: skip
SMALL_LENGTHS = ((1, 1), (1, 300), (97, 97), (113, 203), (130, 40))

FACTORS: dict[str, tuple[Any, ...]] = {
    "spec": SPECS,
    "head_dims": (
        (16, 16), (40, 40), (64, 64), (72, 72), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256),
    ),
    "splits": (1, 2, 3, 7, 16),
    "group": (1, 3, 4, 8),
    "dtype": ("fp16", "bf16", "fp32"),
    "memory": ("contiguous", "strided", "broadcast"),
    "loop": ("q_outer", "kv_outer"),
    "layout": ("bhsd", "bshd"),
    "packed": (False, True),
}  # fmt: skip


def allowed(row: dict[str, Any]) -> bool:
    """Algorithm 1 carries its state through HBM and has no splits."""
    return not (row.get("loop") == "kv_outer" and row.get("splits", 1) != 1)


@dataclass(frozen=True)
class Case:
    spec: str
    lengths: tuple[int, int]
    head_dims: tuple[int, int]
    splits: int
    group: int
    dtype: str
    memory: str
    loop: str
    layout: str
    packed: bool
    family: str = "portable"

    def __str__(self) -> str:
        q_len, kv_len = self.lengths
        key, value = self.head_dims
        where = f"{self.layout}-{self.memory}{'-packed' * self.packed}{'-hopper' * (self.family == 'hopper')}"
        return (
            f"{self.spec}-{self.dtype}-d{key}x{value}-g{self.group}-{q_len}x{kv_len}-{self.loop}-s{self.splits}-{where}"
        )

    def target(self, device: str) -> str:
        """What is compiled for a device whose portable kernels have this target."""
        return "sm_90a" if self.family == "hopper" else device

    @property
    def decodes(self) -> bool:
        """Whether the decode pass serves the call: any of its tiles holds the rows. It is of the family portable."""
        return self.family == "portable" and self.lengths[0] * self.group <= 16

    def text(self) -> str:
        """The spec without its schedules, and windows that end within the shorter lengths."""
        text = (folder("specs") / f"{self.spec}.attn").read_text().partition("\nschedule ")[0]
        return text.replace("width: int = 1024", "width: int = 150").replace("width: int = 256", "width: int = 40")

    def source(self, target: str) -> str:
        """The same with schedules of ours.

        Where the decode pass serves the call, it has the same splits.
        """
        settings = f"family = {self.family} loop = {self.loop} split_kv = {self.splits}"
        text = f"{self.text()}\nschedule tested for {self.spec} on {target} {{ {settings} }}\n"
        if self.decodes:
            text += f"schedule short for {self.spec} decode on {target} {{ split_kv = {self.splits} }}\n"
        return text

    @property
    def problem(self) -> Problem:
        """Two sequences and two key heads, one of each if long. Packed: three sequences, one without queries."""
        q_len, kv_len = self.lengths
        kv_heads = 1 if q_len > 4000 else 2
        heads = kv_heads, kv_heads * self.group
        if not self.packed:
            return Problem(kv_heads, heads[1], heads[0], q_len, kv_len, *self.head_dims, self.layout)
        q_starts = tuple(np.cumsum([0, q_len, 0, -(-q_len // 3)]).tolist())
        kv_starts = tuple(np.cumsum([0, kv_len, kv_len // 4, -(-kv_len // 2)]).tolist())
        return Problem(
            3, heads[1], heads[0], q_starts[-1], kv_starts[-1], *self.head_dims, self.layout, True, q_starts, kv_starts
        )


@cache
def cases(lengths: tuple[tuple[int, int], ...]) -> tuple[Case, ...]:
    """A covering design over these lengths and all other factors."""
    factors: dict[str, tuple[Any, ...]] = {"lengths": lengths, **FACTORS}

    def wanted(pair: dict[str, Any]) -> bool:
        if "spec" not in pair or pair["spec"] in CORE:
            return True
        (other,) = pair.keys() - {"spec"}
        values = factors[other]
        place = SPECS.index(pair["spec"]) + values.index(pair[other])
        return len(values) <= 4 or place % len(values) in (0, len(values) // 3, 2 * len(values) // 3)

    return tuple(Case(**row) for row in cover(factors, allowed, wanted))


def of_hopper(portable: tuple[Case, ...]) -> tuple[Case, ...]:
    """The same cases on the family hopper, where it has kernels for them."""
    return tuple(replace(case, family="hopper") for case in portable if case.dtype != "fp32" and case.loop == "q_outer")
