"""What a forward kernel of the family hopper is, beyond its tiles: registers, shared memory, who takes turns.

Warpgroups of 64 rows of Q multiply; one more loads, takes work tiles, and where it is needed transposes V.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf

from ... import ir
from ...problem import Problem
from ...schedule.plan import SPLIT, OwnKernel
from ..crossings import Chip
from ..facts import ForwardFacts
from ..hopper.panels import PANEL_BYTES, STEP_BYTES, WARPGROUP_ROWS, WARPGROUP_WARPS
from ..live_tiles import reach
from ..pages import fits_boxes
from ..parameters import Parameter, ints
from ..products import Product
from ..shared import Parts
from .splits import SPLIT_ROWS, is_run, times

# Registers of a thread, by how many warpgroups multiply. One more loads: it gives what it doesn't need to the others,
# in steps of 8, and needs more where loop bounds are read from inputs, or V is transposed and tiles have info,
# and most where it classifies tiles. It then keeps all that those that multiply can spare beside their accumulators and
# _OTHER, or _LOW_PRESSURE_OTHER where they compute little. _LAUNCHED sums one thread of each warpgroup.
_LAUNCHED_REGISTERS = {1: 480, 2: 504, 3: 512, 4: 480}
_PRODUCER_REGISTERS = {1: 56, 2: 32, 3: 32, 4: 32}
_TRANSPOSING_REGISTERS = {1: 56, 2: 56, 3: 56, 4: 64}
_READING_REGISTERS = {1: 136, 2: 56, 3: 56, 4: 64}
_CLASSIFYING_REGISTERS = {1: 136, 2: 104, 3: 80, 4: 64}
_OTHER_REGISTERS, _LOW_PRESSURE_OTHER_REGISTERS = 96, 72
_MOST_REGISTERS = 240
# With which a producer that tests nothing does where accumulators take nearly all: with fewer, others get no more.
_LEAST_REGISTERS = {1: 24, 2: 24, 3: 32, 4: 32}
# How many times faster the kernel with splits must seem to be. It has to be compiled and loaded, and calls that the
# model took to be 1.1 to 1.16 times faster were 0.99 to 1.04 times so (docs/notebook/2026-11-tune.md).
_SURE = 1.1


class HopperForward(ForwardFacts):
    """Of a plan of the pass `forward` or `patches`."""

    other_registers = 24

    def fits_pages(self, problem: Problem) -> bool:
        return fits_boxes(self.plan.block_kv, problem)

    # ------------------------------------------------------------ calls of few blocks of queries

    def own_kernels(self, problem: Problem, chip: Chip) -> tuple[OwnKernel, ...]:
        alone, split = self._times(problem, chip)
        return (SPLIT,) if _SURE * split < alone else ()

    def least_time(self, problem: Problem, chip: Chip) -> float:
        return min(self._times(problem, chip))

    def _times(self, problem: Problem, chip: Chip) -> tuple[float, float]:
        """Of a call by this kernel, and by the one that splits keys."""
        plan = self.plan
        if plan.may_split or plan.lengths is not None or not is_run(plan):
            return reach(plan, problem), inf
        return times(plan, problem, chip)

    @property
    def calls(self) -> str:
        if self.plan.split:
            return f"those of few queries over many keys, and whose blocks of {SPLIT_ROWS} rows fill the GPU better"
        return super().calls

    @property
    def packs_heads(self) -> bool:
        """Packed GQA. Where the mask is the same for all heads, so that they have the same tiles, and a row's maxima
        don't rise with its head's slope."""
        variant = self.plan.variant
        if not self.plan.split or variant.dropout is not None or self.tile_lists:
            return False
        alike = "h" not in ir.reads(variant, *(keep.condition for keep in variant.keeps))
        # Calls of built kernels without score lines needn't load what analyses these.
        return alike and not (variant.scores and self.maxima_may_grow)

    def row_heads(self, problem: Problem) -> int:
        """As many heads of a group as make the fewest blocks: a warpgroup's rows are whole queries of these."""
        if not self.packs_heads:
            return 1
        most = min(problem.group, WARPGROUP_ROWS)
        return min(
            (each for each in range(most, 0, -1) if problem.group % each == 0), key=partial(self._blocks, problem)
        )

    def _blocks(self, problem: Problem, row_heads: int) -> int:
        """Of a key head and sequence, with the rows of so many query heads in each."""
        return problem.group // row_heads * -(-problem.rows // self._block_queries(row_heads))

    def _block_queries(self, row_heads: int) -> int:
        return self.warpgroups * (WARPGROUP_ROWS // row_heads)

    def block_rows(self, problem: Problem) -> tuple[int, int]:
        """A block begins with a query where heads stand together."""
        return (self._block_queries(self.row_heads(problem)), 1) if self.packs_heads else super().block_rows(problem)

    def q_blocks(self, problem: Problem) -> int:
        if not self.packs_heads:
            return super().q_blocks(problem)
        if problem.packed:  # as the kernel finds them: queries have as many rows as leave each sequence enough blocks
            return problem.q_blocks(self.plan.block_q, self.rows_each(problem))
        return -(-problem.q_len // self._block_queries(self.row_heads(problem)))

    def rows_each(self, problem: Problem) -> int:
        """Rows of a query, with its share of those that are none."""
        return -(-WARPGROUP_ROWS // (WARPGROUP_ROWS // self.row_heads(problem)))

    def heads_in_rows(self, problem: Problem) -> dict[str, int]:
        """`QuerySlots` of group_queries.cuh, and for the planner."""
        if not self.packs_heads:
            return {}
        heads = self.row_heads(problem)
        inverse = -(-(2**16) // heads)
        return {"row_heads": heads, "row_heads_inverse": inverse, "rows_each": self.rows_each(problem)}

    @property
    def query_rows(self) -> str:
        return "group_queries" if self.packs_heads else super().query_rows

    @property
    def slot_query(self) -> str:
        return "QuerySlots(params).query" if self.packs_heads else super().slot_query

    @property
    def grid_heads(self) -> str:
        """How many heads the grid counts, and rows of each query, as the kernel says it."""
        return "params.num_heads / params.row_heads, params.rows_each" if self.packs_heads else "params.num_heads, 1"

    @property
    def plan_head(self) -> str:
        """The first query head of a planned block."""
        return "plan.work.head * params.row_heads" if self.packs_heads else "plan.work.head"

    @property
    def query_bytes(self) -> str:
        """What loads bring of a warpgroup's rows of Q."""
        return "query_bytes<QTile>(params)" if self.packs_heads else "QTile::BYTES"

    @property
    def fetch_queries(self) -> str:
        """The function that brings them into the L2 cache."""
        return "fetch_queries_ahead" if self.packs_heads else "fetch_ordered_ahead"

    @property
    def load_queries(self) -> str:
        """The function that loads them."""
        return "load_queries" if self.packs_heads else "tma_load_panels"

    def _parameters(self) -> Iterator[Parameter]:
        yield from super()._parameters()
        if self.packs_heads:
            yield from ints("row_heads", "row_heads_inverse", "rows_each")

    # ------------------------------------------------------------ the kernel

    @property
    def template(self) -> str:
        return "hopper_forward/forward_hopper.cu.j2"

    @property
    def threads(self) -> int:
        """Of those that multiply, and of the warpgroup that loads."""
        return 32 * (self.plan.warps + WARPGROUP_WARPS)

    @property
    def warpgroups(self) -> int:
        """Those that multiply."""
        return self.plan.warps // WARPGROUP_WARPS

    @property
    def mapped(self) -> tuple[str, ...]:
        return ("q", "k", "v")

    @property
    def persistent(self) -> bool:
        return True

    @property
    def register_limit(self) -> tuple[int, str]:
        most = f"what {self.warpgroups} warpgroups get when the one that loads keeps {self.producer_registers}"
        return self.consumer_registers, most

    @property
    def transposes_values(self) -> bool:
        """Whether V is transposed between TMA and P V, which sums over what is contiguous in 8-bit tiles."""
        return self.plan.dtype == "e4m3"

    @property
    def out_columns(self) -> str:
        return "ColumnsInEights" if self.transposes_values else super().out_columns

    @property
    def store_rows(self) -> str:
        return "store_rows_in_eights" if self.transposes_values else super().store_rows

    @property
    def row_groups(self) -> int:
        """Into how many groups a block's rows fall, for each of which tiles have lists and info: one for each
        warpgroup, or one for all. One where nothing is masked, and where large tiles are tested, which are seldom EMPTY
        for some rows alone; for heavy variants, whose code is long enough; and where O of 8 bits has many columns and
        takes the registers."""
        from ..instruction_cost import register_pressure

        small = self.plan.block_kv <= WARPGROUP_ROWS or not self.plan.tests_tiles
        per_warpgroup = bool(self.plan.variant.keeps) and small and register_pressure(self.plan.variant) == 0
        return self.warpgroups if per_warpgroup and not self._is_wide_8_bit else 1

    @property
    def tile_parts(self) -> tuple[int, int]:
        return self.row_groups, 1

    @property
    def halves_output(self) -> bool:
        """Whether a loop stores the rows of the output, half of many columns at a time: such kernels would
        compile for a second. With fewer keys a tile's code is shorter, and other tiles would be needed for the loop."""
        columns = self.plan.stored_value_head_dim
        return self.plan.block_kv >= 64 and columns > 128 and columns % 32 == 0

    @property
    def uses_clusters(self) -> bool:
        """Whether two thread blocks that look at the same keys may load them for each other: what four
        warpgroups share, or two tiles of 128 keys, leaves none time to wait for the others."""
        slack = (
            not self.plan.paged
            and self.plan.padded_head_dim > 96
            and self.plan.block_kv < 128
            and not self.plan.may_split
        )
        unmasked = slack and not self.plan.variant.keeps and self.plan.variant.dropout is None
        # Calls of built kernels needn't load what analyses score lines.
        if not unmasked or not self.plan.variant.scores:
            return unmasked
        from ..instruction_cost import is_plain

        return is_plain(self.plan.variant)

    @property
    def has_near_form(self) -> bool:
        """Whether score lines whose cheap form is a polynomial have a shorter one too, for smaller scores. That is code
        once more for a whole tile: only where it was timed."""
        from ..instruction_cost import form_terms

        timed = self.plan.dtype != "e4m3" and 96 < self.plan.padded_head_dim <= 128
        return timed and form_terms(self.plan.variant) > 1 and not self.maxima_may_grow

    @property
    def maximum(self) -> str:
        """How probabilities are kept within their type. The maxima of earlier tiles stay (`stale`), and a tile's
        sum tells whether they are still valid. But e4m3 ends at 448: with much to do above 128 columns, exponents are
        bounded first."""
        bounded = self.plan.dtype == "e4m3" and self.plan.padded_value_head_dim > 128 and not self.is_low_pressure
        return "bounded" if bounded else "stale"

    @property
    def rounds_early(self) -> bool:
        """Whether P is rounded beside the products of the tile before, which takes registers as P does. Of large tiles
        that leaves none for a mask."""
        room = _MOST_REGISTERS - sum(self.accumulators().values()) - self.accumulators().get("prob", 0)
        return self._is_wide_8_bit and room >= (self.other_registers if self.plan.variant.keeps else 16)

    @property
    def _is_wide_8_bit(self) -> bool:
        return self.plan.dtype == "e4m3" and self.plan.padded_value_head_dim > 128 and self.is_low_pressure

    @property
    def rounds_midway(self) -> bool:
        """Whether P V of the tile before is waited for midway through the exponentials, so that P is rounded
        beside the rest of them: straight into the operands, before the sums are judged. By then the next V is there,
        for which there must be a place. A mask leaves no registers for it."""
        narrow = self.plan.dtype == "e4m3" and self.plan.padded_value_head_dim <= 128
        return narrow and self.counts_tiles and self.plan.overlap and self.plan.stages > 1

    @property
    def maxima_may_grow(self) -> bool:
        """Whether score lines may raise the scores from tile to tile by more than stale maxima leave room for: these
        rise by as much then. Those of e4m3 are raised in any case, where need be."""
        from ..instruction_cost import slopes

        return self.normalizer == "stale_max_softmax" and self.plan.dtype != "e4m3" and slopes(self.plan.variant)

    @property
    def counts_tiles(self) -> bool:
        """Whether consumers know a block's tiles without tile info: where all keys are kept, the first tile alone
        may have fewer, and the last begins with the first key. Score lines leave no register for it."""
        return not self.plan.variant.keeps and not self.plan.may_split and self.is_low_pressure

    @property
    def is_low_pressure(self) -> bool:
        """Whether the variant computes next to nothing for each pair."""
        variant = self.plan.variant
        if not (variant.keeps or variant.scores) and variant.dropout is None:
            return True  # calls of built kernels needn't load what analyses variants
        from ..instruction_cost import register_pressure

        return register_pressure(variant) == 0 and not variant.scores

    @property
    def shares_distances(self) -> bool:
        return self.plan.grid_2d is None and not self.packs_heads

    @property
    def reads_key_lines(self) -> bool:
        return self.plan.grid_2d is None and self.plan.rules.columns is None and not self.packs_heads

    @property
    def normalizer(self) -> str:
        stale = self.plan.variant.normalize == "softmax" and self.maximum == "stale"
        return "stale_max_softmax" if stale else super().normalizer

    @property
    def products(self) -> dict[str, Product]:
        """S = Q K^T takes both operands from shared memory, and some columns of Q from registers (CUTLASS: SS, RS);
        O += P V takes P from registers and sums over the rows of V."""
        plan, rs_steps = self.plan, self.rs_query_steps
        steps, value_steps = (
            -(-count * plan.element_bytes // STEP_BYTES) for count in (plan.padded_head_dim, plan.block_kv)
        )
        turned, columns = not self.transposes_values, plan.padded_value_head_dim
        scores = Product("multiply_queries_keys", plan.block_kv, steps - rs_steps)
        scores_rs = Product("multiply_queries_keys_rs", plan.block_kv, rs_steps, a_in_registers=True)
        output = Product("multiply_probs_values", columns, value_steps, a_in_registers=True, transposed_b=turned)
        named = {"scores": scores, "scores_rs": scores_rs, "output": output}
        return {name: product for name, product in named.items() if product.steps > 0}

    def accumulators(self) -> dict[str, int]:
        """Registers of each thread that multiplies: S, O and, where products overlap, P of the tile before, in the
        dtype."""
        plan = self.plan
        parts = {"score": plan.block_kv // 2, "out": plan.padded_value_head_dim // 2}
        return parts | ({"prob": plan.block_kv * plan.element_bytes // 8} if plan.overlap else {})

    @property
    def producer_registers(self) -> int:
        """Of each thread of the warpgroup that loads."""
        from ..instruction_cost import register_pressure

        plan, warpgroups = self.plan, self.warpgroups
        if not plan.tests_tiles and not plan.rules.bounds_read:
            return _LEAST_REGISTERS[warpgroups] if self._is_crowded else self._usual_producer_registers
        least = (_CLASSIFYING_REGISTERS if self.uses_tile_kind else _READING_REGISTERS)[warpgroups]
        launched = _LAUNCHED_REGISTERS[warpgroups]
        other = _LOW_PRESSURE_OTHER_REGISTERS if register_pressure(plan.variant) == 0 else _OTHER_REGISTERS
        spare = launched - warpgroups * (sum(self.accumulators().values()) + other)
        return max(least, min(spare, launched // (warpgroups + 1)) // 8 * 8)  # it can only give

    @property
    def _usual_producer_registers(self) -> int:
        transposes = self.transposes_values and not self.counts_tiles
        return (_TRANSPOSING_REGISTERS if transposes else _PRODUCER_REGISTERS)[self.warpgroups]

    @property
    def _is_crowded(self) -> bool:
        """Whether accumulators leave a producer that tests nothing no more registers than it must have."""
        tests = self.plan.tests_tiles or self.plan.rules.bounds_read
        early = self.accumulators().get("prob", 0) if self.rounds_early else 0
        needed = sum(self.accumulators().values()) + early + self.other_registers
        return not tests and needed > self._share_beside(self._usual_producer_registers)

    def _share_beside(self, producer: int) -> int:
        return min((_LAUNCHED_REGISTERS[self.warpgroups] - producer) // self.warpgroups // 8 * 8, _MOST_REGISTERS)

    @property
    def consumer_registers(self) -> int:
        """Of each thread that multiplies."""
        return self._share_beside(self.producer_registers)

    @property
    def rs_query_steps(self) -> int:
        """How many steps of 16 columns of Q each warp keeps in registers, so that products read fewer bytes of shared
        memory: half of them where head dims are small and no second set of scores takes registers."""
        plan = self.plan
        return 0 if plan.overlap or plan.padded_head_dim > 64 else plan.padded_head_dim * plan.element_bytes // 64

    @property
    def ping_pong(self) -> bool:
        """Whether two warpgroups start their products by turns, so that one computes while the other multiplies
        (ping-pong scheduling: Shah et al., "FlashAttention-3", 2024, section 3.1). Both must have the same tiles, or
        one would wait for a turn that the other has no tile for."""
        from ..instruction_cost import gains_by_ping_pong

        plan = self.plan
        same_tiles = (plan.block_q, plan.block_kv) == (128, 128) and self.row_groups == 1
        return same_tiles and plan.dtype != "e4m3" and gains_by_ping_pong(plan.variant)

    @property
    def plans_ahead(self) -> bool:
        """Whether a warp of its own takes and plans work tiles, and another loads Q. One does all where V is
        transposed, which leaves no warps, and for one group of rows, of which there is little to plan. But without a
        mask, if products overlap, keys of a block needn't wait for its Q. And a producer with the fewest registers has
        none for it: another warp takes, plans and loads Q there, and two may transpose V."""
        apart = self.row_groups > 1 or (self.plan.overlap and not self.plan.variant.keeps)
        return self._is_crowded or (apart and not self.transposes_values)

    @property
    def loading_warps(self) -> int:
        """How many warps plan and load where V has to be transposed: others do that, unless a launch before does."""
        return 2 if self.plans_ahead else 1

    @property
    def transposing_warps(self) -> int:
        return WARPGROUP_WARPS - self.loading_warps

    @property
    def keeps_max_under_masks(self) -> bool:
        """Whether tiles with a mask may keep stale maxima too: it takes registers, of which e4m3 has few."""
        return self.is_low_pressure and self.plan.dtype != "e4m3"

    @property
    def is_unmasked(self) -> bool:
        """Whether there is nothing but softmax of products: no mask, no score lines, no dropout. Then all tiles of a
        block but its first are whole, and there are registers left. (e4m3 has no room for guessed maxima.)"""
        plan = self.plan
        softmax = self.normalizer == "stale_max_softmax" and plan.variant.dropout is None
        return self.counts_tiles and softmax and plan.dtype != "e4m3"

    @property
    def passes_by(self) -> bool:
        """Whether a warpgroup that has no rows in a block computes none of its tiles, where consumers count these. By
        turns, the other one would wait for it."""
        return self.counts_tiles and not self.ping_pong

    @property
    def skips_masks(self) -> bool:
        """Whether a block's first tile takes no mask if it is whole, where warpgroups share tile info. That brought 2 %
        of the time of 1,024 keys at head dim 256 in 8 bits, nothing at 128, and spills at 64."""
        return self._is_wide_8_bit

    @property
    def finishes_early(self) -> bool:
        """Whether a row's sums are finished beside its last P V, which takes registers."""
        return self.counts_tiles or (self._is_wide_8_bit and self.row_groups == 1)

    def is_short(self, rows: int) -> bool:
        return 0 < rows <= self.plan.block_q - WARPGROUP_ROWS and self.passes_by

    @property
    def guessed_max_sum(self) -> str:
        """The least sum of a tile, as a literal, that guessed maxima may leave: fp16 loses digits below 2^-14."""
        return {"fp16": "1"}.get(self.plan.dtype, "0x1p-40f")

    @property
    def stale_max_limit(self) -> str:
        """The largest sum of a tile, as a literal, that stale maxima may leave: fp16 ends at 2^16, e4m3 at 448."""
        return {"fp16": "0x1p15f", "e4m3": "448"}.get(self.plan.dtype, "0x1p40f")

    @property
    def large_rise(self) -> str:
        """By what exponent, as a literal, maxima must rise to be raised: half of what stale ones leave room for."""
        return {"fp16": "7.5f"}.get(self.plan.dtype, "20.0f")

    @property
    def raised_max_sum(self) -> str:
        """The least sum of a row, as a literal, that raised maxima may leave: fp16 is off by 2^-25 below 2^-14."""
        return {"fp16": "0x1p-8f"}.get(self.plan.dtype, "0x1p-40f")

    def shared_parts(self) -> Parts:
        """The factors of the size of each part of shared memory. TMA writes whole panels."""
        plan = self.plan
        tile, stages = {"stages": plan.stages, "block_kv": plan.block_kv}, {"stages": plan.stages}
        element = {"bytes": plan.element_bytes}
        head_dim, value_head_dim = (
            -(-size * plan.element_bytes // PANEL_BYTES) * PANEL_BYTES // plan.element_bytes
            for size in (plan.head_dim, plan.value_head_dim)
        )
        transposed = {**stages, "head dim": plan.padded_value_head_dim, "keys": plan.block_kv}
        return {
            "q": {"block_q": plan.block_q, "head dim": head_dim, **element},
            "k": {**tile, "head dim": head_dim, **element},
            "v": {**tile, "head dim": value_head_dim, **element},
            **({"v transposed": transposed} if self.transposes_values else {}),
            "barriers": {"bytes": self._pipeline_bytes()},
        }

    def _pipeline_bytes(self) -> int:
        """As pipeline.cuh has it. Barriers of 8 bytes: four for each stage, two for the rows of each warpgroup, two for
        the plan. The plan and two works for each warpgroup, of 48 bytes. For each group of rows a range of 16, and
        tile info of 4 for each stage. Where V is transposed, for each stage two barriers and tile info more."""
        plan = self.plan
        barriers = 8 * (4 * plan.stages + 2 * self.warpgroups + 2)
        slots = 48 * (1 + 2 * self.warpgroups) + 16 * self.row_groups
        found = -(-barriers // 16) * 16 + slots + 4 * plan.stages * self.row_groups
        return -(-found // 8) * 8 + 20 * plan.stages if self.transposes_values else found
