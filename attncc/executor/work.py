"""One sequence of a call, as the loop orders walk it: its tiles, the softmax state of its rows, what its steps move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.cost.cost import Traffic, Workload
from ..analysis.mask.grid import TileGrid
from ..analysis.rules import TileKind
from ..evaluate import Environment
from ..kernels.registry import facts_of
from ..philox import LEVELS, keep_mask
from ..problem import Sequence
from ..problem.arrays import at_positions
from ..problem.facts import PROB_UNITS
from ..problem.kept import Kept
from ..schedule.plan import KernelPlan
from ..statements import queries_before, scored, sink_logits

Array = NDArray[Any]
Heads = NDArray[np.int64] | slice

LOG2_E = float(np.log2(np.e))

# Multiplications up to which OpenBLAS, NumPy's own BLAS, works in the calling thread. Its threads take longer to meet
# than a tile takes to multiply: twice as long on idle cores, a hundred times as long on busy ones.
_ONE_THREAD = 2**18


def product(a: Array, b: Array) -> Array:
    """a @ b of stacks of matrices, in pieces of rows that one thread multiplies."""
    rows = max(_ONE_THREAD // max(b.shape[-2] * b.shape[-1], 1), 1)
    if a.shape[-2] <= rows:
        return np.asarray(a @ b)
    return np.concatenate([a[..., first : first + rows, :] @ b for first in range(0, a.shape[-2], rows)], axis=-2)


@dataclass
class Meter:
    """Counts rows moved between HBM and on-chip memory, by array, and tiles by kind."""

    reads: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    tiles: Counter[TileKind] = field(default_factory=Counter)

    def read(self, rows: int, names: Iterable[str]) -> None:
        self.reads.update(dict.fromkeys(names, rows))

    def write(self, rows: int, names: Iterable[str]) -> None:
        self.writes.update(dict.fromkeys(names, rows))

    def traffic(self, work: Workload) -> Traffic:
        return Traffic(work.moved(self.reads), work.moved(self.writes))


@dataclass
class RowState:
    """The running softmax of some rows: O unnormalised [heads, q_len, value head dim], m and l [heads, q_len].

    m is in the exp2 domain: score * log2(e). Without softmax m and l stay as they begin.
    """

    out: Array
    row_max: Array
    row_sum: Array


@dataclass(frozen=True)
class SequenceWork:
    """One sequence: operands [heads, length, head dim] in the precision of the computation."""

    plan: KernelPlan
    sequence: Sequence
    environment: Environment
    grid: TileGrid
    q: Array
    k: Array
    v: Array
    prob_dtype: np.dtype[Any]
    seed: int
    threshold: int  # of dropout; LEVELS: none
    meter: Meter
    kept: Kept

    @cached_property
    def num_heads(self) -> int:
        return len(self.q)

    @cached_property
    def heads_together(self) -> int:
        """Query heads for which a tile of K and V is loaded once."""
        return max(self.num_heads // len(self.k), 1) if facts_of(self.plan).packs_heads else 1

    @cached_property
    def kv_heads(self) -> Array:
        """The key head of each query head."""
        heads: Array = self.environment.symbols["kv_h"].ravel()
        return heads

    def begin(self, split: int = 0) -> RowState:
        """The state before any tile. A sink is a first key with value 0, seen by split 0."""
        shape = self.q.shape[:2]
        dtype = self.q.dtype
        out = np.zeros((*shape, self.v.shape[-1]), dtype)
        sink = sink_logits(self.plan.variant, self.environment) if split == 0 else None
        if sink is None:
            return RowState(out, np.full(shape, -np.inf, dtype), np.zeros(shape, dtype))
        row_max = np.broadcast_to(sink.reshape(sink.shape[:1] + (1,) * bool(sink.ndim)) * LOG2_E, shape).astype(dtype)
        return RowState(out, row_max, np.where(np.isneginf(row_max), 0, 1).astype(dtype))

    def loads_of_keys(self, q_tile: int, kv_tile: int) -> int:
        """How often a tile of K and V is loaded: for each query head, or group of them, that looks at it."""
        live = self.grid.kinds[:, q_tile, kv_tile] != TileKind.EMPTY
        if live.size < self.num_heads:  # all heads have the same
            return int(live.any()) * self.num_heads // self.heads_together
        return int(np.count_nonzero(live.reshape(-1, self.heads_together).any(axis=1)))

    def live_heads(self, q_tile: int, kv_tile: int) -> Iterator[tuple[TileKind, Heads, int]]:
        """The heads for which a tile is PARTIAL, and those for which it is FULL, with their number."""
        kinds = self.grid.kinds[:, q_tile, kv_tile]
        for kind in (TileKind.PARTIAL, TileKind.FULL):
            heads = np.flatnonzero(kinds == kind)
            if heads.size == kinds.size:
                yield kind, slice(None), self.num_heads
            elif heads.size:
                yield kind, heads, heads.size

    def attend(self, state: RowState, q_tile: int, kv_tile: int, kind: TileKind, heads: Heads) -> None:
        """One step of the online softmax: folds a tile into the state of its rows."""
        rows, columns = self.grid.q_rows(q_tile), self.grid.kv_rows(kv_tile)
        environment = self.positions(rows, columns, heads)
        score = self.final_scores(environment, self.raw_scores(rows, columns, heads), kind)
        prob = self._weights(state, rows, heads, score)
        if self.threshold < LEVELS:
            prob = np.where(self.kept_by_dropout(environment, rows, columns), prob, 0)
        unit = PROB_UNITS.get(self.prob_dtype.name, 1)
        prob = (prob * unit).astype(self.prob_dtype).astype(self.v.dtype) / unit
        state.out[heads, rows] += product(prob, self.v[self.kv_heads[heads], columns])
        self.meter.tiles[kind] += prob.shape[0]

    def positions(self, rows: slice, columns: slice, heads: Heads) -> Environment:
        """What expressions read at the pairs of a tile."""
        symbols = self.environment.symbols
        own = self.environment.with_symbols(h=symbols["h"][heads], kv_h=symbols["kv_h"][heads])
        return at_positions(own, np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop))

    def raw_scores(self, rows: slice, columns: slice, heads: Heads) -> Array:
        """scale * q.k of a tile [heads, rows, keys]."""
        k = self.k[self.kv_heads[heads], columns]
        return np.asarray(product(self.q[heads, rows], k.swapaxes(-1, -2)) * self.environment.symbols["scale"])

    def final_scores(self, environment: Environment, score: Array, kind: TileKind) -> Array:
        """What the score lines make of the raw scores of a tile; -inf where not kept."""
        score = np.broadcast_to(scored(self.plan.variant, environment, score), score.shape)
        kept = None if kind is TileKind.FULL else self.kept.of(environment)
        return score if kept is None else np.where(kept, score, -np.inf).astype(score.dtype, copy=False)

    def _weights(self, state: RowState, rows: slice, heads: Heads, score: Array) -> Array:
        """P of a tile, unnormalised; rescales the state of its rows to the new row maximum."""
        match self.plan.variant.normalize:
            case "sigmoid":
                return np.asarray(1 / (1 + np.exp(-score)))
            case "none":
                return np.where(np.isneginf(score), 0, score)
        score = score * LOG2_E
        row_max = np.maximum(state.row_max[heads, rows], score.max(axis=-1))
        # A row that has seen nothing kept has the maximum -inf: 0 in its place makes all its weights 0, not NaN.
        base = np.where(np.isneginf(row_max), 0, row_max)
        prob: Array = np.exp2(score - base[..., None])
        rescale = np.exp2(state.row_max[heads, rows] - base)
        state.row_max[heads, rows] = row_max
        state.row_sum[heads, rows] = state.row_sum[heads, rows] * rescale + prob.sum(axis=-1)
        state.out[heads, rows] *= rescale[..., None]
        return prob

    def kept_by_dropout(self, environment: Environment, rows: slice, columns: slice) -> Array:
        batch_head = self.sequence.b * self.num_heads + environment.symbols["h"].ravel()
        first = queries_before(self.plan.variant, environment)
        q_idx, kv_idx = np.arange(rows.start, rows.stop) + first, np.arange(columns.start, columns.stop)
        return keep_mask(self.seed, self.threshold, batch_head, q_idx, kv_idx)

    def finish(self, state: RowState) -> tuple[Array, Array]:
        """out and lse (natural logarithm) of the rows of a state: O divided by l, and by dropout's keep rate."""
        kept = state.out * (LEVELS / self.threshold)
        if self.plan.variant.normalize != "softmax":
            return kept, state.row_max
        row_sum = np.where(state.row_sum == 0, 1, state.row_sum)[..., None]
        with np.errstate(divide="ignore"):
            return kept / row_sum, (state.row_max + np.log2(state.row_sum)) / LOG2_E
