"""What the tile proof says of chunks: the work that each pair of chunks is, and which rows of K and V a chunk needs.

Pairs of chunks are asked first. Only those that are PARTIAL are cut into tiles, so a mask of 512 k tokens costs the
proof of some 10^5 boxes, where all its tiles are 10^7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis.mask.grid import kinds_of, rule_tables
from ..analysis.mask.tiles import analyse
from ..analysis.rules import TileKind
from ..evaluate import Environment
from ..ir import OFFSET_SYMBOL, Variant, reads
from ..problem import Problem, Sequence, Signature
from ..problem.arrays import environment, facts, sequence_inputs
from ..problem.call_arguments import Call
from ..problem.facts import ArrayFacts
from ..problem.inputs import check_inputs, merged
from ..problem.masks import bind_mask
from ..statements import MASK_FLOAT
from .lengths import Lengths

Ints = NDArray[np.int64]

TILE_Q = 128  # rows of a tile, as kernels have them
BLOCK = 64  # rows of K and V that are sent or not
MOST_BOXES = 1 << 22  # that are asked at once; tiles are as large as it takes


@dataclass(frozen=True)
class Needs:
    """Of one mask. `work`: pairs of query and key that kernels compute, float [q chunk, kv chunk], summed over heads
    and the batch. `needed`: bool [q chunk, kv block], whether any row of the chunk looks at any key of the block.
    `rows`: of each block; blocks of a chunk stand together, `blocks` of them."""

    work: NDArray[np.float64]
    needed: NDArray[np.bool_]
    rows: Ints
    blocks: int

    @cached_property
    def bits(self) -> NDArray[np.uint8]:
        """`needed`, eight blocks in a byte."""
        return np.packbits(self.needed, axis=1)

    @property
    def spans(self) -> Ints:
        """The rows of K and V from the first to before the last that each chunk of q needs, [q chunk, 2]: those of its
        own place where it needs none."""
        chunks, each = len(self.work), int(self.rows[: self.blocks].sum())
        used, ends = self.needed, np.cumsum(self.rows)
        first, last = used.argmax(axis=1), used.shape[1] - 1 - used[:, ::-1].argmax(axis=1)
        found = np.stack([ends[first] - self.rows[first], ends[last]], axis=1)
        own = np.arange(chunks)[:, None] * each + [0, each]
        none = np.flatnonzero(~np.any(used, axis=1))
        found[none] = own[none]
        return found


@dataclass(frozen=True)
class _Pieces:
    """Chunks cut at the ends of sequences. `first` and `last` are rows of the sequence, `start` is where it starts."""

    chunk: Ints
    sequence: Ints
    first: Ints
    last: Ints
    start: Ints

    @classmethod
    def of(cls, starts: tuple[int, ...], chunk: int) -> _Pieces:
        cuts = np.union1d(np.arange(0, starts[-1] + 1, chunk), starts)
        begin, end = cuts[:-1], cuts[1:]
        sequence = np.searchsorted(starts, begin, side="right") - 1
        start = np.asarray(starts, np.int64)[sequence]
        return cls(begin // chunk, sequence, begin - start, end - 1 - start, start)

    def taken(self, which: Ints) -> _Pieces:
        return _Pieces(*(getattr(self, name)[which] for name in ("chunk", "sequence", "first", "last", "start")))

    def tiles(self, chunk: int, tile: int) -> tuple[Ints, Ints]:
        """First and last row of each tile of each piece, [pieces, tiles]; last < first: there is none.

        Tiles are counted from the chunk's first row, so those of several pieces of one chunk are the same.
        """
        begin = self.chunk * chunk - self.start
        corner = begin[:, None] + np.arange(0, chunk, tile)
        end = np.minimum(corner + tile, begin[:, None] + chunk) - 1
        return np.maximum(corner, self.first[:, None]), np.minimum(end, self.last[:, None])


@dataclass(frozen=True)
class _Part:
    """What one evaluation of the rules tells: an environment, and the pieces that it speaks of. It counts `times`."""

    environment: Environment
    problem: Problem
    q: _Pieces
    kv: _Pieces
    times: float


def needs(
    variant: Variant,
    lengths: Lengths,
    chunks: int,
    sizes: Mapping[str, int | None],
    inputs: Mapping[str, Any],
) -> Needs:
    """`sizes` holds `batch`, `num_heads`, `num_kv_heads`, `head_dim`, None where unknown. Inputs are whole, as a call
    of one process has them; those that keep lines don't read may be left out. AttnccError A6xx."""
    q_chunk, kv_chunk = lengths.q_rows // chunks, lengths.kv_rows // chunks
    block = min(BLOCK, kv_chunk)
    blocks = -(-kv_chunk // block)
    rows = np.tile(np.minimum(np.arange(blocks) * block + block, kv_chunk) - np.arange(blocks) * block, chunks)
    found = Needs(np.zeros((chunks, chunks)), np.zeros((chunks, chunks * blocks), bool), rows, blocks)
    used = {name: value for name, value in inputs.items() if name in _read(variant)}
    pieces = _Pieces.of(lengths.q_starts, q_chunk), _Pieces.of(lengths.kv_starts, kv_chunk)
    for part in _parts(variant, lengths, pieces, sizes, used):
        _add(found, _Proof(variant, part, used, (q_chunk, kv_chunk), (TILE_Q, block)))
    return found


def _parts(
    variant: Variant,
    lengths: Lengths,
    pieces: tuple[_Pieces, _Pieces],
    sizes: Mapping[str, int | None],
    inputs: Mapping[str, Any],
) -> Iterator[_Part]:
    heads = sizes["num_heads"] or 1
    if not lengths.packed:
        bound = bind_mask(variant, lengths.q_rows, lengths.kv_rows, inputs, sizes)
        times = (sizes["batch"] or bound.problem.batch) / bound.batch * heads / bound.heads
        for each in bound.environments():
            yield _Part(each, bound.problem, *pieces, times=times)
        return
    problem, names = _packed(lengths, sizes), _read(variant)
    nothing = ArrayFacts((), (), "float64")
    call = Call(nothing, nothing, nothing, tuple((name, facts(name, value)) for name, value in inputs.items()))
    check_inputs(Signature(variant), call, problem, names)
    whole = _Packed(variant, problem, {name: np.asarray(value) for name, value in inputs.items()}, pieces)
    sequences = list(problem.sequences())
    own = any(merged(variant.input(name), problem) for name in inputs)
    for some in [[item] for item in sequences] if own else [sequences]:
        yield whole.part(some, 1 if names & {"h", "kv_h"} else heads)


def _read(variant: Variant) -> frozenset[str]:
    return reads(variant, *(keep.condition for keep in variant.keeps))


def _packed(lengths: Lengths, sizes: Mapping[str, int | None]) -> Problem:
    heads, head_dim = sizes["num_heads"] or 1, sizes["head_dim"] or 1
    rows = lengths.q_rows, lengths.kv_rows
    whole = Problem(len(lengths.q), heads, sizes["num_kv_heads"] or heads, *rows, head_dim, head_dim, packed=True)
    return whole.with_starts(lengths.q_starts, lengths.kv_starts)


@dataclass(frozen=True)
class _Packed:
    variant: Variant
    problem: Problem
    inputs: Mapping[str, Any]
    pieces: tuple[_Pieces, _Pieces]

    def part(self, sequences: list[Sequence], times: float) -> _Part:
        """Of one sequence, or of all at once where no input is cut at sequences: symbols are those of each q piece."""
        problem, wanted = self.problem, [item.b for item in sequences]
        q, kv = (piece.taken(np.flatnonzero(np.isin(piece.sequence, wanted))) for piece in self.pieces)
        alone = len(sequences) == 1
        inputs = sequence_inputs(self.variant, problem, sequences[0], self.inputs) if alone else dict(self.inputs)
        bare = environment(self.variant, problem, sequences[0], inputs, MASK_FLOAT)
        if times > 1:
            bare = bare.with_symbols(**{name: bare.symbols[name][:1] for name in ("h", "kv_h")})
        of_sequence = np.zeros((problem.batch, len(Sequence._fields)), np.int64)
        for item in sequences:
            of_sequence[item.b] = item
        b, q_start, q_len, kv_start, kv_len, offset = of_sequence[q.sequence].T[..., None]
        symbols = {"b": b, "q_len": q_len, "kv_len": kv_len, "q_start": q_start, "kv_start": kv_start}
        return _Part(bare.with_symbols(**symbols, **{OFFSET_SYMBOL: offset}), problem, q, kv, times)


_BY_PIECE = ("b", "q_len", "kv_len", "q_start", "kv_start", OFFSET_SYMBOL)


class _Proof:
    """The rules of one mask on one part: of boxes as large as chunks, and of tiles."""

    def __init__(
        self, variant: Variant, part: _Part, inputs: Mapping[str, Any], chunk: tuple[int, int], tile: tuple[int, int]
    ) -> None:
        self.part, self.chunk, self.tile = part, chunk, tile
        self._variant, self._inputs = variant, inputs

    def _kinds(self, boxes: tuple[Ints, Ints, Ints, Ints], largest: tuple[int, int], which: Any) -> NDArray[np.uint8]:
        """Of boxes whose sides broadcast, [heads or 1, …]."""
        q_first, q_last, kv_first, kv_last = boxes
        shape = np.broadcast_shapes(q_first.shape, kv_first.shape)
        if not self._variant.keeps:
            return np.full((1, *shape), TileKind.FULL, np.uint8)
        part, more = self.part, (1,) * (len(shape) - 2)
        rules = analyse(self._variant, *largest)
        tables = rule_tables(rules, self._variant, part.problem, self._inputs)
        own = Environment(
            part.environment.symbols, {**part.environment.inputs, **tables}, part.environment.lets, MASK_FLOAT
        )
        names = [name for name in _BY_PIECE if np.ndim(own.symbols[name])]
        own = own.with_symbols(**{name: own.symbols[name][which].reshape(-1, 1, *more) for name in names})
        heads = {name: own.symbols[name].reshape(-1, 1, 1, *more) for name in ("h", "kv_h")}
        tiles = own.with_symbols(**heads, q_first=q_first, q_last=q_last, kv_first=kv_first, kv_last=kv_last)
        kinds = kinds_of(rules, tiles)
        return np.broadcast_to(kinds, (kinds.shape[0] if kinds.ndim > len(shape) else 1, *shape))

    def of_chunks(self) -> NDArray[np.uint8]:
        """[heads or 1, q pieces, kv pieces]; EMPTY for those of different sequences."""
        q, kv = self.part.q, self.part.kv
        boxes = q.first[:, None], q.last[:, None], kv.first, kv.last
        same = q.sequence[:, None] == kv.sequence
        return np.where(same, self._kinds(boxes, self.chunk, slice(None)), np.uint8(TileKind.EMPTY))

    def of_tiles(self, q_piece: Ints, kv_piece: Ints, tile: tuple[int, int]) -> tuple[NDArray[np.uint8], Ints]:
        """Of the tiles of some pairs of pieces: kinds [heads or 1, pairs, q tiles, kv tiles], and pairs in each."""
        q_first, q_last = self.part.q.taken(q_piece).tiles(self.chunk[0], tile[0])
        kv_first, kv_last = self.part.kv.taken(kv_piece).tiles(self.chunk[1], tile[1])
        boxes = q_first[:, :, None], q_last[:, :, None], kv_first[:, None, :], kv_last[:, None, :]
        size = np.maximum(boxes[1] - boxes[0] + 1, 0) * np.maximum(boxes[3] - boxes[2] + 1, 0)
        kinds = self._kinds(boxes, tile, q_piece)
        return np.where(size > 0, kinds, np.uint8(TileKind.EMPTY)), size


def _add(found: Needs, proof: _Proof) -> None:
    """Adds one part: whole pairs of pieces first, then the tiles of those that are PARTIAL."""
    q, kv, times = proof.part.q, proof.part.kv, proof.part.times
    kinds = proof.of_chunks()
    full = (kinds == TileKind.FULL).all(axis=0)
    i, j = np.nonzero(full)
    sizes = (q.last - q.first + 1)[i] * (kv.last - kv.first + 1)[j]
    np.add.at(found.work, (q.chunk[i], kv.chunk[j]), sizes * (times * len(kinds)))
    first, last = kv.tiles(proof.chunk[1], proof.tile[1])
    _need(found, q.chunk[i], kv.chunk[j], (first <= last)[j])
    i, j = np.nonzero(~full & (kinds != TileKind.EMPTY).any(axis=0))
    if i.size:
        _add_tiles(found, proof, i, j)


def _add_tiles(found: Needs, proof: _Proof, i: Ints, j: Ints) -> None:
    q, kv, times = proof.part.q, proof.part.kv, proof.part.times
    tile = _affordable(proof, i.size)
    heads = max(np.size(proof.part.environment.symbols["h"]), 1)
    step = max(MOST_BOXES // (heads * -(-proof.chunk[0] // tile[0]) * -(-proof.chunk[1] // tile[1])), 1)
    for start in range(0, i.size, step):
        some_i, some_j = i[start : start + step], j[start : start + step]
        kinds, size = proof.of_tiles(some_i, some_j, tile)
        live = kinds != TileKind.EMPTY
        work = (live.sum(axis=0) * size).sum(axis=(1, 2)) * times
        np.add.at(found.work, (q.chunk[some_i], kv.chunk[some_j]), work)
        columns = np.repeat(live.any(axis=(0, 2)), tile[1] // proof.tile[1], axis=1)[:, : found.blocks]
        first, last = kv.taken(some_j).tiles(proof.chunk[1], proof.tile[1])
        _need(found, q.chunk[some_i], kv.chunk[some_j], columns & (first <= last))


def _affordable(proof: _Proof, pairs: int) -> tuple[int, int]:
    """Tiles as kernels have them, or larger ones where a mask cuts nearly every pair of chunks."""
    tile_q, tile_kv = proof.tile
    tile_q = min(tile_q, proof.chunk[0])
    while pairs * -(-proof.chunk[0] // tile_q) * -(-proof.chunk[1] // tile_kv) > 2 * MOST_BOXES:
        if tile_q < proof.chunk[0]:
            tile_q *= 2
        elif tile_kv < proof.chunk[1]:
            tile_kv *= 2
        else:
            break
    return tile_q, tile_kv


def _need(found: Needs, q_chunk: Ints, kv_chunk: Ints, columns: NDArray[np.bool_]) -> None:
    """Marks the blocks [pairs, blocks of a chunk] that pairs of chunks need."""
    by_chunk = found.needed.reshape(*found.work.shape, found.blocks)
    if np.bincount(q_chunk * len(found.work) + kv_chunk, minlength=1).max() <= 1:
        by_chunk[q_chunk, kv_chunk] |= columns
        return
    pair, block = np.nonzero(columns)  # a chunk that holds several sequences
    by_chunk[q_chunk[pair], kv_chunk[pair], block] = True
