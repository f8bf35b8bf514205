"""What the library's specs must mean, written independently of them: a case draws a mask's data and says what is kept.

The data is the mathematical thing (the lengths of documents, the tree of drafts), from which a case makes both the
inputs of the spec and, by loops, sets or broadcasting, the dense mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import attncc
from attncc import resources
from attncc.api import ParsedVariant
from attncc.evaluate import Array

Random = np.random.Generator
Drawn = tuple[dict[str, Array], Array]  # inputs, and what is kept: it broadcasts to [batch, heads, q_len, kv_len]
Draw = Callable[..., Drawn]  # (random, q_len, kv_len, **consts)

SPECS = tuple(sorted(path.stem for path in resources.folder("specs").glob("*.attn") if path.stem != "masks"))


@dataclass(frozen=True, eq=False)
class Case:
    spec: str
    draw: Draw
    consts: tuple[dict[str, Any], ...]  # builds to try; the last one suits lengths of about a thousand

    def __str__(self) -> str:
        return self.spec

    def variant(self, consts: dict[str, Any]) -> ParsedVariant:
        return parsed(self.spec, tuple(consts.items()))


@cache
def parsed(spec: str, consts: tuple[tuple[str, Any], ...] = ()) -> ParsedVariant:
    return attncc.parse(resources.folder("specs") / f"{spec}.attn", defines=dict(consts))


class Family:
    """A decorator that registers what a spec keeps, under each of some consts."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def __call__(self, spec: str, *consts: dict[str, Any]) -> Callable[[Draw], Draw]:
        def register(draw: Draw) -> Draw:
            self.cases.append(Case(spec, draw, consts or ({},)))
            return draw

        return register


def distance(q_len: int, kv_len: int) -> Array:
    """Position of the query minus that of the key: the last query stands at the last key."""
    return np.arange(kv_len - q_len, kv_len)[:, None] - np.arange(kv_len)


def positions(q_len: int, kv_len: int) -> list[int]:
    """Where each query stands among the keys."""
    return list(range(kv_len - q_len, kv_len))


def last_rows(square: Array, q_len: int) -> Array:
    """The rows of the last q_len positions of [..., kv_len, kv_len]; queries before the first key keep nothing."""
    kv_len = square.shape[-1]
    missing = np.zeros((*square.shape[:-2], max(q_len - kv_len, 0), kv_len), square.dtype)
    return np.concatenate([missing, square[..., max(kv_len - q_len, 0) :, :]], axis=-2)


def int32(values: Any) -> Array:
    return np.asarray(values, np.int32)
