"""What a stale maximum costs `out`: mean errors of kernels' arithmetic in NumPy, over FlashAttention-2's.

    python -m benchmarks.stale_max [--keys 1024] [--dtype bf16] [--draws 12]

1,024 rows of normal inputs, head dim 128, tiles of 64 keys. Each line changes one thing, so that causes come apart. The
lines `running` and `stale` equal emulated kernels to four digits (docs/notebook/2026-11-gradients.md). No GPU is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROWS, HEAD_DIM, TILE = 1024, 128, 64
LOG2_E = 1.4426950408889634
DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}
Change = Callable[["Rows", Array, Array, Array], Array]  # of P after rounding: rows, exponents, P, its running maxima


@dataclass(frozen=True)
class Rows:
    """Rows of one draw: exponents of scores, tile by tile, V, and out in fp64."""

    tiles: Sequence[Array]
    v: Array
    exact: Array
    dtype: str
    random: np.random.Generator

    @classmethod
    def draw(cls, keys: int, dtype: str, seed: int) -> Rows:
        random = np.random.default_rng((seed, keys))
        q, k, v = (random.standard_normal((count, HEAD_DIM)).astype(DTYPES[dtype]) for count in (ROWS, keys, keys))
        score = q.astype(np.float64) @ k.astype(np.float64).T * HEAD_DIM**-0.5
        prob = np.exp(score - score.max(1, keepdims=True))
        exact = prob / prob.sum(1, keepdims=True) @ v.astype(np.float64)
        exponents = q.astype(np.float32) @ k.astype(np.float32).T * np.float32(HEAD_DIM**-0.5 * LOG2_E)
        tiles = [exponents[:, first : first + TILE] for first in range(0, keys, TILE)]
        return cls(tiles, v.astype(np.float32), exact, dtype, random)

    @property
    def running(self) -> Array:
        """The greatest exponent of each row up to each tile: [tiles, rows]."""
        return np.maximum.accumulate(np.stack([tile.max(1) for tile in self.tiles]))

    def rounded(self, x: Array) -> Array:
        return x.astype(DTYPES[self.dtype]).astype(np.float32)

    def error(
        self, maxima: Array, change: Change | None = None, *, rounded_sum: bool = False, wide: bool = False
    ) -> float:
        """The mean error of out, by online softmax with these maxima for the tiles. `rounded_sum`: l is the sum of P as
        it is multiplied; `wide`: O and l are summed in fp64."""
        kind = np.float64 if wide else np.float32
        out, row_sum, before = np.zeros((ROWS, HEAD_DIM), kind), np.zeros(ROWS, kind), maxima[0]
        for number, (tile, maximum) in enumerate(zip(self.tiles, maxima, strict=True)):
            rescale, before = np.exp2(before - maximum), maximum
            exact = np.exp2(tile - maximum[:, None])
            prob = self.rounded(exact)
            if change is not None:
                prob = change(self, tile, exact, self.running[number])
            values = self.v[number * TILE : number * TILE + TILE]
            out = out * rescale[:, None] + prob.astype(kind) @ values.astype(kind)
            row_sum = row_sum * rescale + (prob if rounded_sum else exact).sum(1)
        return float(np.abs(self.rounded((out / row_sum[:, None]).astype(np.float32)) - self.exact).mean())


def records_exact(rows: Rows, tile: Array, prob: Array, running: Array) -> Array:
    """A key that is its row's greatest so far isn't rounded."""
    return np.where(tile == running[:, None], prob, rows.rounded(prob))


def last_record_exact(rows: Rows, tile: Array, prob: Array, running: Array) -> Array:
    return np.where(tile == rows.running[-1][:, None], prob, rows.rounded(prob))


def records_at_random(rows: Rows, tile: Array, prob: Array, running: Array) -> Array:
    """Such a key is rounded as if it weren't 1, but anywhere between two powers of two."""
    scale = np.exp2(rows.random.random(prob.shape)).astype(np.float32)
    return np.where(tile == running[:, None], rows.rounded(prob * scale) / scale, rows.rounded(prob))


def unrounded(_rows: Rows, _tile: Array, prob: Array, _running: Array) -> Array:
    return prob


def stale(rows: Rows, limit: float, first: int = 1) -> Array:
    """Maxima that move where an exponent is above `limit`, and in each of the first tiles."""
    found = [rows.tiles[0].max(1)]
    for number, tile in enumerate(rows.tiles[1:], start=1):
        moves = tile.max(1) - found[-1] > (0 if number < first else limit)
        found.append(np.where(moves, tile.max(1), found[-1]))
    return np.stack(found)


def cases(rows: Rows) -> dict[str, float]:
    running, kept, count = rows.running, stale(rows, 8), len(rows.tiles)
    last = np.broadcast_to(running[-1], running.shape)
    return {
        "running maximum (FlashAttention-2)": rows.error(running),
        "stale, from the first tile": rows.error(kept),
        "stale, 0": rows.error(np.zeros_like(running)),
        "P not rounded": rows.error(running, unrounded),
        "stale, O and l in fp64": rows.error(kept, wide=True),
        "stale, l of the rounded P": rows.error(kept, rounded_sum=True),
        "stale, moved by whole powers of two": rows.error(kept + np.ceil(running - kept)),
        "stale, the last record not rounded": rows.error(kept, last_record_exact),
        "stale, no record rounded": rows.error(kept, records_exact),
        "running, records rounded at random": rows.error(running, records_at_random),
        "last maximum known": rows.error(last),
        "first maximum + 1/2": rows.error(kept + np.float32(0.5)),
        "first maximum + 5/4": rows.error(kept + np.float32(1.25)),
        "moves above 2^2": rows.error(stale(rows, 2)),
        "moves above 2": rows.error(stale(rows, 1)),
        "moves above sqrt 2": rows.error(stale(rows, 0.5)),
        "moves in the first 1/8 of the tiles": rows.error(stale(rows, 8, count // 8)),
        "moves in the first 1/4": rows.error(stale(rows, 8, count // 4)),
        "moves in the first 1/2": rows.error(stale(rows, 8, count // 2)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1024)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--draws", type=int, default=12)
    chosen = parser.parse_args()
    drawn = [cases(Rows.draw(chosen.keys, chosen.dtype, seed)) for seed in range(chosen.draws)]
    whole = {name: sum(each[name] for each in drawn) for name in drawn[0]}
    for name, error in whole.items():
        print(f"{name:38} {error / whole['running maximum (FlashAttention-2)']:.4f}")


if __name__ == "__main__":
    main()
