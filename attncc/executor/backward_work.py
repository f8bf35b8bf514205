"""One sequence of a backward call: tiles, what flows back into its rows, and the sums of its gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.rules import TileKind
from ..analysis.score.gradient import gradient
from ..analysis.score.learnable import LearnableSums
from ..evaluate import Environment, evaluate
from ..kernels.registry import backward_facts
from ..philox import LEVELS
from ..statements import sink_logits
from .work import LOG2_E, Heads, SequenceWork, product

Array = NDArray[Any]


@dataclass(frozen=True)
class FlowingBack:
    """Of the rows of a sequence: dout [heads, q_len, value head dim]; lse (exp2 domain) and delta, rowsum(dO * O) less
    dlse, [heads, q_len], which are 0 without softmax."""

    dout: Array
    lse: Array
    delta: Array


@dataclass(frozen=True)
class Sums:
    """Gradients in the precision of the computation, before they are scaled: dq as q; dk and dv for each query head."""

    dq: Array
    dk: Array
    dv: Array
    learnable: LearnableSums


@dataclass(frozen=True)
class BackwardWork:
    """A sequence as one kernel of the backward pass walks it: its own tiles, and what it adds to the sums."""

    tiles: SequenceWork
    rows: FlowingBack
    sums: Sums

    def own_keys(self, *, adds_dq: bool) -> None:
        """dK, dV and learnable inputs, kv_outer: keys stay on chip while rows that see them pass by.

        With `adds_dq` dQ too, which is added up in HBM.
        """
        tiles, grid, meter = self.tiles, self.tiles.grid, self.tiles.meter
        parts = backward_facts(tiles.plan).gradient_parts if tiles.plan.is_backward else 1
        every_key = len(tiles.k) * tiles.sequence.kv_len
        meter.read(every_key * parts, ("k",))
        meter.read(every_key, ("v",))
        for kv_tile in range(grid.kv_sizes.size):
            for q_tile in range(grid.q_sizes.size):
                for kind, heads, count in tiles.live_heads(q_tile, kv_tile):
                    rows = int(grid.q_sizes[q_tile]) * count
                    meter.read(rows * parts, ("q", "dout", "statistics"))
                    self._attend(q_tile, kv_tile, kind, heads, keys=True, rows=adds_dq)
                    meter.write(rows, ("partial_dq",) if adds_dq else ())
        meter.write(every_key, ("dk", "dv"))

    def own_rows(self) -> None:
        """dQ alone, q_outer: rows stay on chip while the keys that they see pass by."""
        tiles, grid, meter = self.tiles, self.tiles.grid, self.tiles.meter
        for q_tile in range(grid.q_sizes.size):
            meter.read(int(grid.q_sizes[q_tile]) * tiles.num_heads, ("q", "dout", "statistics"))
            for kv_tile in range(grid.kv_sizes.size):
                for kind, heads, count in tiles.live_heads(q_tile, kv_tile):
                    meter.read(int(grid.kv_sizes[kv_tile]) * count, ("k", "v"))
                    self._attend(q_tile, kv_tile, kind, heads, keys=False, rows=True)
        meter.write(tiles.num_heads * tiles.sequence.q_len, ("dq",))

    def count_sum_of_dq(self, *, zeros: bool) -> None:
        """The zeros that the sum of dQ begins with, if it does, and its rounding at the end."""
        meter, rows = self.tiles.meter, self.tiles.num_heads * self.tiles.sequence.q_len
        meter.write(rows, ("partial_dq", "dq") if zeros else ("dq",))
        meter.read(rows, ("partial_dq",))

    def count_statistics(self) -> None:
        """What the kernel before the others does: lse and delta of each row, side by side."""
        meter, rows = self.tiles.meter, self.tiles.num_heads * self.tiles.sequence.q_len
        if self.tiles.plan.variant.normalize == "softmax":
            meter.read(rows, ("dout", "out", "lse"))
            meter.write(rows, ("statistics",))

    def _attend(self, q_tile: int, kv_tile: int, kind: TileKind, heads: Heads, *, keys: bool, rows: bool) -> None:
        """Adds what the pairs of a tile contribute: to the gradients of its keys, of its rows, or of both."""
        tiles, sums = self.tiles, self.sums
        q_rows, kv_rows = tiles.grid.q_rows(q_tile), tiles.grid.kv_rows(kv_tile)
        raw = tiles.raw_scores(q_rows, kv_rows, heads)
        environment = tiles.positions(q_rows, kv_rows, heads).with_symbols(score=raw)
        prob, by_score = self._probabilities(tiles.final_scores(environment, raw, kind), q_rows, heads)
        kept = self._kept(environment, q_rows, kv_rows)
        dout = self.rows.dout[heads, q_rows]
        dprob = product(dout, tiles.v[tiles.kv_heads[heads], kv_rows].swapaxes(-1, -2)) * kept * self._kept_scale
        dscore = np.where(by_score == 0, 0, by_score * (dprob - self.rows.delta[heads, q_rows, None]))
        by_raw = self._by_raw(environment, dscore)
        if keys:
            sums.dv[heads, kv_rows] += product(self._rounded(prob * kept).swapaxes(-1, -2), dout)
            sums.dk[heads, kv_rows] += product(by_raw.swapaxes(-1, -2), tiles.q[heads, q_rows])
            sums.learnable.add_pairs(tiles.sequence, environment, dscore)
            tiles.meter.tiles[kind] += len(raw)
        if rows:
            sums.dq[heads, q_rows] += product(by_raw, tiles.k[tiles.kv_heads[heads], kv_rows])

    def _probabilities(self, score: Array, rows: slice, heads: Heads) -> tuple[Array, Array]:
        """P of a tile, and what dP - delta is multiplied by for the gradient of the final score; 0 where masked."""
        match self.tiles.plan.variant.normalize:
            case "sigmoid":
                prob = np.asarray(1 / (1 + np.exp(-score)))
                return prob, prob * (1 - prob)
            case "none":
                kept = ~np.isneginf(score)
                return np.where(kept, score, 0), kept.astype(score.dtype)
        prob = np.where(np.isneginf(score), 0, np.exp2(score * LOG2_E - self.rows.lse[heads, rows, None]))
        return prob, prob

    @property
    def _kept_scale(self) -> float:
        """What makes up for the pairs that dropout drops."""
        return LEVELS / self.tiles.threshold

    def _kept(self, environment: Environment, rows: slice, columns: slice) -> Array | float:
        """1 for each pair that dropout keeps, 0 for the others."""
        if self.tiles.threshold >= LEVELS:
            return 1.0
        return self.tiles.kept_by_dropout(environment, rows, columns).astype(self.sums.dq.dtype)

    def _by_raw(self, environment: Environment, dscore: Array) -> Array:
        """dS by the raw scores, as the matrix products take it."""
        slope = evaluate(gradient(self.tiles.plan.variant).score, environment)
        return self._rounded(np.where(dscore == 0, 0, dscore * slope))

    def _rounded(self, array: Array) -> Array:
        return array.astype(self.tiles.prob_dtype).astype(self.sums.dq.dtype)

    # ------------------------------------------------------------ the end

    def finish(self) -> tuple[Array, Array, Array]:
        """dq, dk and dv of the sequence, the last two summed over the heads of each group; adds a sink's gradient."""
        environment, sums, groups = self.tiles.environment, self.sums, len(self.tiles.k)
        sink = sink_logits(self.tiles.plan.variant, environment)
        if sink is not None:
            weight = np.where(np.isneginf(sink), 0, np.exp2(sink * LOG2_E - self.rows.lse[..., None]))
            dlogit = -(weight * self.rows.delta[..., None]).sum(axis=1, keepdims=True)
            sums.learnable.add_sink(self.tiles.sequence, environment, dlogit)
        dk, dv = (x.reshape(groups, len(x) // groups, *x.shape[1:]).sum(axis=1) for x in (sums.dk, sums.dv))
        scale = environment.symbols["scale"]
        return sums.dq * scale, dk * scale, dv * self._kept_scale
