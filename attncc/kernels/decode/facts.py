"""What a decode kernel is beyond its tiles: few rows, of several heads, and many keys (Flash-Decoding), which
persistent thread blocks share out among them in equal runs (LeanAttention)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from ... import ir
from ...problem import Problem
from ...schedule.choice import MAX_SPLITS, Choice
from ...schedule.plan import FRAGMENT, LEAST_ROWS, Build, OwnKernel
from ...schedule.target import TARGETS
from ..crossings import NEVER, Chip, Crossings
from ..live_tiles import reach
from ..parameters import (
    ELEMENT_TYPES,
    Parameter,
    call_fields,
    ints,
    operand_pointers,
    page_parameters,
    pointers,
    strides,
    variant_fields,
)
from ..portable_forward.facts import PortableForward
from ..quantized import scale_parameters
from ..shared import Parts
from ..shared_prefix import PREFIX_FIELDS

MOST_BLOCKS = 512  # of a launch: each has a counter
_MOST_PIECES = 8  # of an item's rows, merged by a thread block each: MOST of `MergePieces` (merge_pieces.cuh)
# Keys of a tile: one block has as many bytes in flight as two whose tiles have 64. Timed on an H200 at head dim 128;
# other head dims have no such kernels (docs/notebook/2026-11-decode.md, "wgmma for many rows").
ONE_BLOCK_KEYS = 128
_LEAST_RUN = 2  # tiles: LEAST of `HeadRuns` (head_runs.cuh)
# Tiles, in the time that a run takes to begin with another head: 2.7 us where a tile of 64 keys took 0.7, on one H200
# at head dim 128 (docs/notebook/2026-11-serving.md): of other head dims and GPUs a guess, which changes times, not
# results. AGAIN of `HeadRuns` (head_runs.cuh) is the same number.
_AGAIN = 4
# A run may be longer by this part of it (a fourth) if it then reads the same keys as runs of other blocks of rows:
# the L2 cache holds them. One such case was timed: runs 18 % longer took 0.69 of the time (100 queries of 32 heads
# over 8, over 32,768 keys, head dim 128, one H200; docs/notebook/2026-11-decode.md). No other part was tried: for
# other calls and GPUs it is a guess, which changes times, not results. SHARED of `HeadRuns` (head_runs.cuh) is the
# same number.
_SHARED = 4
# Blocks of rows whose tiles differ by at most this part (an eighth) are cut as if they had as many: a run has that much
# less to do then at most. Other parts weren't timed. ABOUT of items.cu.j2 is the same number.
_ABOUT = 8
_MOST_UNITS = 2**30  # of `few_units`, an int of the kernel: a crossing point may be NEVER
_FLOAT_BYTES, _ALIGNMENT = 4, 128
_PART_FLOATS = 2  # of a row and part: m and l, while parts are merged
_ROW_PADDING = 8  # floats, of a row of O in shared memory: as in `MergeRoom` (merge_rows.cuh)


def is_timed(build: Build) -> bool:
    """Whether what was timed tells of such a build with an own kernel, or of copies by `evict_first`."""
    if build.prefixed or build.element_bytes != 2 or not TARGETS[build.target].many_rows:
        return False
    narrow = max(build.padded_head_dims) <= 128
    if build.one_block:
        return build.padded_head_dims == (128, 128) and not build.paged and build.kv_dtype is None
    if build.kv_dtype is not None:
        return narrow and build.kv_dtype == "e4m3"
    return narrow or build.padded_head_dims == (256, 256)


def keys_of_one_query(tile: Choice) -> int:
    """Of a tile, those that a warp works on at once where each has other keys."""
    return 2 * FRAGMENT if tile.block_kv % (2 * FRAGMENT * tile.warps) == 0 else FRAGMENT


def keys_of_many_rows(tile: Choice, least_rows: int) -> list[int]:
    """More of them, the most first: so many rows are several warps', so fewer warps share a tile's keys. With more keys
    at once, a warp's maxima and its O move less often."""
    sharing = max(tile.warps // -(-least_rows // FRAGMENT), 1)
    return [keys for keys in (64, 32) if keys_of_one_query(tile) < keys <= tile.block_kv // sharing]


class Runs(NamedTuple):
    """`HeadRuns` of head_runs.cuh: `parts` of each of `pieces`, which have `each` units, or of all of them as of one
    piece. Parts have `size` units, the first `longer` ones a unit more; the last what is left."""

    size: int
    longer: int
    each: int
    parts: int
    pieces: int

    def begins(self) -> list[int]:
        """The first unit of each, and the end of the last."""
        own = [min(part * self.size + min(part, self.longer), self.each) for part in range(self.parts)]
        starts = (piece * self.each for piece in range(self.pieces))
        return [start + first for start in starts for first in own] + [self.pieces * self.each]


class LaidOut(NamedTuple):
    """Items whose units stand one after the other, by number, and how many units each has: as many as tiles, or more,
    which are shorter then. Thread blocks have `runs` of these."""

    items: Sequence[int]
    units: Sequence[int]
    runs: Runs


class Decode(PortableForward):
    """Of a plan of the pass `decode`."""

    @property
    def template(self) -> str:
        return "decode/decode.cu.j2"

    def serves(self, problem: Problem) -> bool:
        """Where one tile holds all rows."""
        return problem.rows * self.row_heads(problem) <= self.plan.block_q

    def own_kernels(self, problem: Problem, chip: Chip) -> tuple[OwnKernel, ...]:
        """Where no schedule is for these lengths: that settles the kernel."""
        if self.plan.lengths is not None:
            return ()
        rows = problem.rows * self.row_heads(problem)
        crossings = zip(LEAST_ROWS, (chip.crossings.many_rows, chip.crossings.more_rows), strict=True)
        many = sorted((least for least, faster in crossings if rows >= max(least, faster)), reverse=True)
        others = tuple(map(OwnKernel, many))
        if not self._takes_one_block(problem, chip):
            return others
        return (OwnKernel(min(many, default=0), one_block=True), *others)

    def _takes_one_block(self, problem: Problem, chip: Chip) -> bool:
        """Whether one thread block a multiprocessor, with tiles of more keys, is faster than two.

        All heads must have equally many tiles: ragged batches lost up to a fifth, since a block alone waits where it
        goes on to another head. It pays in two cases. Each multiprocessor has a head, so nothing is merged; or many
        rows are merged, in half as many parts.
        """
        items, crossings = self.items(problem), chip.crossings
        moved = problem.has_offset and bool(self._tile_rules)  # positions of queries are on the device
        if problem.varies or moved or self.tiles_differ or self.q_blocks(problem) > 1 or items > chip.multiprocessors:
            return False
        each = crossings.one_block_share * chip.multiprocessors <= items
        one_each = each and reach(self.plan, problem) >= crossings.one_block_keys
        return one_each or problem.rows * self.row_heads(problem) >= crossings.one_block_rows

    @property
    def calls(self) -> str:
        if self.plan.prefixed:
            return "those with shared_prefix: over each sequence's own keys, and merges both"
        if self.plan.one_block:
            rows = f", of {self.plan.least_rows} rows and more" if self.plan.least_rows else ""
            return f"dense decode calls with a key head for each multiprocessor, or many rows of fewer heads{rows}"
        if self.plan.least_rows:
            return (
                f"decode calls with {self.plan.least_rows} rows and more (queries times the query heads of a key head)"
            )
        usual = Crossings()
        return (
            f"up to {self.plan.block_q} rows (queries times the query heads of a key head), and those over many keys "
            f"for which the forward kernel would have few thread blocks: on an H200 {usual.split_keys} keys or more "
            f"({usual.uneven_split_keys} where a mask lets blocks of rows see few and many), and fewer than a block of "
            f"{self.plan.block_q} rows for {usual.row_block_cost} multiprocessors"
        )

    # ------------------------------------------------------------ the kernel

    def row_heads(self, problem: Problem) -> int:
        return problem.group

    @property
    def packs_heads(self) -> bool:
        return True

    @property
    def persistent(self) -> bool:
        return True

    @property
    def query_rows(self) -> str:
        return "group_rows"

    @property
    def row_warps(self) -> str:
        """How many warps hold the rows of a tile, as the kernel says it."""
        return "rows.row_warps<WARP_ROWS>()"

    @property
    def spills_to_smem(self) -> bool:
        return False

    @property
    def warp_keys(self) -> int:
        """A tile's keys are shared by warps that have the same rows."""
        return self.plan.keys_at_once or keys_of_one_query(self.plan)

    @property
    def most_resident(self) -> int:
        """Two, whose tiles fill shared memory: the other registers are for Q."""
        return 2

    @property
    def registers_besides(self) -> int:
        """What a thread block knows of its run is there too."""
        return 120

    @property
    def splits(self) -> int:
        """Of each item, whatever else is in the batch; 0: equal runs of tiles for all thread blocks."""
        return self.plan.split_kv or 0

    @property
    def _tile_rules(self) -> tuple[ir.Expr, ...]:
        """The rules that say which tiles are computed: loop bounds and tile tests. None where all are."""
        plan = self.plan
        tests = (plan.rules.any_kept, plan.rules.all_kept) if plan.tests_tiles else ()
        return (*plan.rules.bounds, *tests) if plan.variant.keeps and plan.skip != "never" else ()

    @property
    def heads_differ(self) -> bool:
        """Whether the mask may keep other tiles for each head of a group."""
        return any("h" in ir.reads(self.plan.variant, rule) for rule in self._tile_rules)

    @property
    def tiles_differ(self) -> bool:
        """Whether heads of sequences of one length may have more or fewer tiles than others: by inputs, or by which
        sequence or head it is."""
        read = {name for rule in self._tile_rules for name in ir.reads(self.plan.variant, rule)}
        by_inputs = any(isinstance(node, ir.Load | ir.Search) for node in ir.walk(*self._tile_rules))
        return by_inputs or not read.isdisjoint(("b", "h", "kv_h"))

    @property
    def knows_tiles(self) -> bool:
        """Whether each lane can tell how many tiles the rows of a sequence have. A search takes a whole warp: there,
        and where heads differ, of a group or key heads, runs are equal shares of all keys."""
        bounds = self.plan.rules.kv_begin, self.plan.rules.kv_end
        if self.heads_differ or "kv_h" in ir.reads(self.plan.variant, *bounds):
            return False
        return not any(isinstance(node, ir.Search) for node in ir.walk(*bounds))

    @property
    def cuts_heads(self) -> bool:
        """Whether heads that are alike, and their blocks of rows, are cut each by itself (head_runs.cuh)."""
        return True

    @property
    def evens_blocks(self) -> bool:
        """Whether blocks of rows of a head may have more or fewer tiles. Those that have about as many are taken to
        have as many."""
        return self.cuts_heads and not self.splits and self.knows_tiles and bool(self.plan.variant.keeps)

    def units(self, tiles: Sequence[int]) -> list[int]:
        """What thread blocks share out of the blocks of rows of a head, which have so many tiles: `HeadUnits` of
        items.cu.j2."""
        most = max(tiles[0], tiles[-1]) if tiles else 0
        even = self.evens_blocks and len(tiles) > 1 and abs(tiles[0] - tiles[-1]) <= most // _ABOUT
        return [most] * len(tiles) if even else list(tiles)

    @property
    def has_max(self) -> bool:
        """Whether rows have maxima and sums."""
        return self.plan.variant.normalize == "softmax"

    @property
    def reads_scales(self) -> bool:
        """Whether a block reads scales of its cache before it asks for keys."""
        return self.plan.kv_dtype is not None

    @property
    def reads_once(self) -> bool:
        """Where that was timed. Not of 8-bit caches in pages: such launches ended with an illegal instruction, and why
        isn't known."""
        plan, wide = self.plan, max(self.plan.build.padded_head_dims) > 128
        able = TARGETS[plan.target].evicts_first and is_timed(plan.build) and not wide
        return able and not (plan.paged and plan.kv_dtype)

    # ------------------------------------------------------------ shared memory

    def shared_parts(self) -> Parts:
        """Where tiles leave too little of it for what is merged in their place, there is some more."""
        parts = super().shared_parts()
        rest = self._merged_bytes() - sum(prod(factors.values()) for factors in parts.values())
        return parts if rest <= 0 else {**parts, "results": {"bytes": -(-rest // _ALIGNMENT) * _ALIGNMENT}}

    def _merged_bytes(self) -> int:
        """Of the rows of all warps; of a row of one part, with what is known of its other parts (merge_rows.cuh)."""
        plan = self.plan
        out = plan.stored_value_head_dim + _ROW_PADDING
        parts = MOST_BLOCKS + MAX_SPLITS * plan.prefixed
        return max(plan.block_q * (out + _PART_FLOATS), parts * _PART_FLOATS + out) * _FLOAT_BYTES

    @property
    def result_bytes(self) -> int:
        return sum(prod(factors.values()) for factors in self.shared_parts().values())

    # ------------------------------------------------------------ the launch

    def items(self, problem: Problem) -> int:
        """Blocks of rows of all key heads; of packed batches a bound."""
        return self.heads(problem) * self.q_blocks(problem)

    def slot_rows(self, problem: Problem) -> int:
        """Rows of a partial result."""
        most = problem.total_q if problem.packed else problem.q_len
        return min(self.plan.block_q, most * problem.group)

    def slots(self, problem: Problem, blocks: int) -> int:
        """Partial results that there may be: two of each thread block, or all splits."""
        parts = self.splits > 1 or self.plan.prefixed
        return 2 * blocks if self.splits == 0 else self.items(problem) * self.splits * parts

    def shared_out(self, problem: Problem, chip: Chip) -> dict[str, int | float]:
        """How rows are shared out: `GroupSlots` (group_rows.cuh), `Runs` (stream_k.cuh)."""
        group, rows = problem.group, self.slot_rows(problem)
        piece_rows = max(-(-rows // _MOST_PIECES), 1)
        merged = chip.crossings.merged_rows
        most_parts = NEVER if self.splits else max(self.items(problem), 1) * merged / piece_rows
        inverse = min(-(-(2**32) // group), 2**32 - 1)
        few = 0 if self.splits else int(min(chip.multiprocessors * self._short_run(rows, chip.crossings), _MOST_UNITS))
        runs = {"most_parts": most_parts, "few_units": few, "fewer_runs": chip.multiprocessors}
        if self.cuts_heads:
            runs["row_blocks"] = self._row_blocks(problem)
        return {"slot_rows": rows, "group": group, "group_inverse": inverse, **runs}

    def _row_blocks(self, problem: Problem) -> int:
        """Blocks of rows of all heads, where sequences have as many; of packed batches heads."""
        return problem.batch * problem.num_kv_heads * (1 if problem.packed else max(self.q_blocks(problem), 1))

    def _short_run(self, rows: int, crossings: Crossings) -> float:
        """Tiles of a multiprocessor up to which one thread block is as fast as two. With many rows two are faster
        as soon as each has the tiles that are on their way at once; that was timed for tiles of 64 keys."""
        if self.plan.least_rows and self.plan.block_kv <= 64:
            return 2 * _LEAST_RUN
        return crossings.short_run + rows // crossings.short_run_rows

    def runs(
        self, problem: Problem, tiles: int, pieces: int, chip: Chip, blocks: int, *, share_keys: bool, alike: bool
    ) -> Runs:
        """How a grid of `blocks` shares out so many tiles of so many pieces: heads of all sequences, or blocks of their
        rows, which `share_keys`. `alike`: all pieces have as many."""
        shared = self.shared_out(problem, chip)
        short = tiles < shared["few_units"]
        some = min(blocks, int(shared["fewer_runs"])) if short else blocks
        count = max(min(some, tiles, int((tiles * shared["most_parts"]) ** 0.5)), 1)
        size, longer = divmod(tiles, count)
        if self.cuts_heads and alike and tiles % pieces == 0:
            each, again = tiles // pieces, _AGAIN // (1 if short else 2)
            may_have = size + again + (size // _SHARED if share_keys else 0)
            if pieces > count:
                whole = -(-pieces // count) * each
                if whole <= may_have:
                    return Runs(whole, 0, tiles, -(-tiles // whole), 1)
            else:
                longest = max(-(-each // (count // pieces)), min(each, _LEAST_RUN) if short else 1)
                if longest <= may_have:
                    return Runs(longest, 0, each, -(-each // longest), pieces)
        return Runs(size, longer, tiles, count, 1)

    def laid_out(
        self, problem: Problem, units: Sequence[int], chip: Chip, blocks: int, *, alike: bool
    ) -> Iterator[LaidOut]:
        """How a grid of `blocks` shares out all items, which have so many units, sequence by sequence. `alike`: all
        heads have as many."""
        heads, row_blocks = max(problem.batch * problem.num_kv_heads, 1), max(self._row_blocks(problem), 1)
        of_head = row_blocks // heads
        even = all(len(set(units[first : first + of_head])) == 1 for first in range(0, len(units), of_head))
        share_keys = even and of_head > 1
        pieces = row_blocks if share_keys else heads
        runs = self.runs(problem, sum(units), pieces, chip, blocks, share_keys=share_keys, alike=alike)
        yield LaidOut(range(len(units)), units, runs)

    def parts(self, problem: Problem, tiles: int, chip: Chip, resident: int) -> int:
        """How many thread blocks share an item of a dense call, about."""
        items = max(self.items(problem), 1)
        laid = list(self.laid_out(problem, [max(tiles, 1)] * items, chip, resident, alike=True))
        return max(-(-sum(own.runs.parts * own.runs.pieces for own in laid) // items), 1)

    def _parameters(self) -> Iterator[Parameter]:
        plan = self.plan
        yield from operand_pointers(plan)
        yield from pointers(ELEMENT_TYPES[plan.out_dtype], "out")
        yield from pointers("float", "lse", "partial_out", "row_max", "row_sum")
        yield from pointers("unsigned", "arrivals")
        yield from call_fields(plan.variant)
        for name in ("q", "k", "v", "out"):
            yield from strides(name)
        yield from ints("batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "slot_rows", "group")
        yield from ints("few_units", "fewer_runs", *(["row_blocks"] if self.cuts_heads else []))
        if plan.paged:
            yield from (*page_parameters(), *ints("box_rows"))
        if plan.kv_dtype is not None:
            yield from scale_parameters()
        if plan.prefixed:
            yield from ints(*PREFIX_FIELDS)
        yield Parameter("group_inverse", "unsigned")
        yield Parameter("most_parts", "float")
        yield from variant_fields(plan)
