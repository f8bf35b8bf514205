"""What the backward kernel of the family hopper is, beyond its tiles: registers, slices of dQ, when lse and delta join.

Two warpgroups own the keys of a block, half each, and hold their dK and dV; a third adds up dQ; a fourth loads.
A block of 64 keys can't be halved: both own it then, one its dV, the other its dK, for head dims of which no warpgroup
could hold both.

Masks and score lines take registers, mostly for what they read of inputs. A plan of `low_register` lets them see few
pairs at once, in a loop, and makes S^T, and all that follows, in two parts of a tile's rows. That takes 24 registers
less: the consumers keep 8 of them, the warpgroup that loads gets 32 from both, for a sixth more reads of shared memory.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ... import ir
from ...analysis.score.additive import only_adds
from ...schedule.target import TARGETS
from ..backward_facts import BackwardFacts
from ..hopper.panels import PANEL_COLUMNS, STEP, WARPGROUP_ROWS, WARPGROUP_WARPS
from ..products import Product
from ..shared import Parts

CONSUMERS = 2
CONSUMER_WARPS = 8
BLOCK_Q = 64  # rows of a tile: what one wgmma makes of dQ
OWN_ROWS = 64  # of S^T that one wgmma makes
KEY_STAGES = 2  # the keys of a block are on their way while the one before is worked on, where there is room
WEIGHT_BYTES = 1024  # of operands that pick lse or delta

# Registers of a thread of each warpgroup; four of them share these, in steps of 8.
_ALL_REGISTERS = 512
_DQ_CONSUMER_REGISTERS = 32  # besides its slice of dQ
_OTHER_REGISTERS = 40  # of a consumer, besides its accumulators, if there are as many
_PRODUCER_REGISTERS, _CLASSIFYING_REGISTERS = 48, 64  # enough for every mask
_LEAST_PRODUCER_REGISTERS = 32
_MOST_REGISTERS = 240


class HopperBackward(BackwardFacts):
    """Of a plan of the pass `backward` or `backward_patches`."""

    other_registers = 24

    @property
    def template(self) -> str:
        return "hopper_backward/backward_hopper.cu.j2"

    @property
    def calls(self) -> str:
        if self.plan.unclustered:
            others = "" if self.plan.variant.keeps else ", packed ones, those with an odd number of blocks of keys"
            return f"deterministic ones{others}, and dense ones of few rows"
        if self.uses_clusters:
            return "all others; dense ones of many rows, with an even number of blocks of keys, in clusters of two"
        return super().calls

    @property
    def threads(self) -> int:
        """Of the consumers, of the warpgroup that adds up dQ, and of the one that loads."""
        return 32 * (self.plan.warps + 2 * WARPGROUP_WARPS)

    @property
    def mapped(self) -> tuple[str, ...]:
        return ("q", "k", "v", "dout")

    @property
    def persistent(self) -> bool:
        return True

    @property
    def register_limit(self) -> tuple[int, str]:
        dq_consumer, producer = self.dq_consumer_registers, self.producer_registers
        return self.consumer_registers, f"what the dQ consumer ({dq_consumer}) and the producer ({producer}) leave"

    @property
    def orders_dq(self) -> bool:
        return self.adds_dq

    @property
    def scales_dq_sum(self) -> bool:
        return self.plan.variant.scale is None

    @property
    def row_alignment(self) -> int:
        return WARPGROUP_ROWS

    @property
    def row_format(self) -> str:
        grid_2d = self.plan.grid_2d
        return "hopper_" if grid_2d is None else f"hopper_w{grid_2d.width}x{grid_2d.q_columns}_"

    @property
    def statistics_format(self) -> str:
        return "hopper_"

    @property
    def statistics_bytes(self) -> int:
        return 16

    @property
    def statistics(self) -> str:
        return "statistics_split_bf16"

    @property
    def counts_finished(self) -> bool:
        return True

    @property
    def stores_dq_first(self) -> bool:
        return self.plans_ahead  # others took longer: docs/notebook/2026-11-backward.md, "The first stores dQ"

    @property
    def adds_pairs_twice(self) -> bool:
        return True

    @property
    def keeps_row_values(self) -> bool:
        return self.plan.grid_2d is None

    @property
    def reads_key_lines(self) -> bool:
        return self.masks_ahead and self.plan.grid_2d is None

    @property
    def uses_clusters(self) -> bool:
        """Whether two thread blocks whose keys are neighbours may load tiles of queries for each
        other, exchange dS, and make half of the columns of dQ each, a panel of K. They must have the same tiles, but
        for few: rows go on to the last, without a mask or as under a causal one."""
        plan = self.plan
        if plan.unclustered or plan.low_register or plan.grid_2d is not None:
            return False
        from ..instruction_cost import looks_up_pairs

        halves, rows = plan.padded_head_dim == plan.block_kv == 2 * PANEL_COLUMNS, plan.rules.q_bounds
        same_tiles = rows is not None and rows.q_end == ir.symbol("q_len") and not plan.tests_tiles
        light = not plan.variant.scores and plan.variant.dropout is None and not looks_up_pairs(plan.variant)
        return halves and same_tiles and light

    @property
    def products(self) -> dict[str, Product]:
        """S^T = K Q^T and dP^T = V dO^T are alike; dV += P^T dO and dK += dS^T Q take P and dS from registers;
        dQ = dS K takes both from shared memory and sums over the rows of K, those of one consumer at a time."""
        plan, keys = self.plan, self.plan.block_kv // self.key_shares
        rows, head_dim, value_head_dim = plan.block_q // self.parts, plan.padded_head_dim, plan.padded_value_head_dim
        gradient = partial(Product, a_in_registers=True, transposed_b=True, b_rows=plan.block_q)
        return {
            "scores": Product("multiply_keys_queries", rows, head_dim // STEP),
            "dprobs": Product("multiply_values_dout", rows, value_head_dim // STEP),
            "statistics": Product("multiply_statistics", rows, 1),
            "key_gradient": gradient("add_key_gradient", head_dim, rows // STEP),
            "value_gradient": gradient("add_value_gradient", value_head_dim, 1),
            "query_gradient": Product("multiply_query_gradient", self.dq_columns, keys // STEP, transposed_b=True),
        }

    @property
    def dq_consumer_registers(self) -> int:
        return _DQ_CONSUMER_REGISTERS + _eights(self.dq_columns // 2)

    @property
    def producer_registers(self) -> int:
        consumer = _eights(sum(self.accumulators().values()) + _OTHER_REGISTERS)
        rest = _ALL_REGISTERS - self.dq_consumer_registers - CONSUMERS * consumer
        most = _CLASSIFYING_REGISTERS if self.uses_tile_kind else _PRODUCER_REGISTERS
        return min(max(rest, _LEAST_PRODUCER_REGISTERS), most)

    @property
    def consumer_registers(self) -> int:
        rest = (_ALL_REGISTERS - self.dq_consumer_registers - self.producer_registers) // CONSUMERS
        return min(rest // 8 * 8, _MOST_REGISTERS)

    @property
    def dq_columns(self) -> int:
        """Of dQ that are made at once. Slices begin with a panel of K."""
        columns = self.plan.padded_head_dim
        return PANEL_COLUMNS if columns % PANEL_COLUMNS == 0 else columns

    @property
    def key_shares(self) -> int:
        """Of a block of keys: one for each consumer, or one for both."""
        return min(self.plan.block_kv // OWN_ROWS, CONSUMERS)

    @property
    def shares_keys(self) -> bool:
        """Whether both consumers have all keys of a block, and a gradient each."""
        return self.key_shares == 1

    @property
    def tile_parts(self) -> tuple[int, int]:
        return 1, self.key_shares

    @property
    def key_stages(self) -> int:
        return 1 if self.shares_keys or self.uses_clusters else KEY_STAGES

    @property
    def plans_ahead(self) -> bool:
        """Whether blocks of keys are claimed, and their keys and values loaded, while the one before is worked on, see
        docs/hopper.md: under masks, whose blocks have few tiles, if there is room for the values of two blocks. Not
        where pairs are looked up: ptxas finds no registers for that. Nor where sequences may have scales of their own:
        the consumers, who may be at work on two of them, share the weights of lse."""
        from ..instruction_cost import looks_up_pairs

        variant = self.plan.variant
        if self.key_stages == 1 or not self.masks_ahead or looks_up_pairs(variant) or variant.scale is not None:
            return False
        parts = self._shared_parts(ahead=True).values()
        return sum(prod(factors.values()) for factors in parts) <= TARGETS[self.plan.target].shared_bytes

    def accumulators(self) -> dict[str, int]:
        """Registers of a consumer's thread: S, then dP; P, then dS, with 16 bits; dK and dV."""
        keys = self.plan.block_kv // self.key_shares // 4  # of a warp
        dk, dv = keys * self.plan.padded_head_dim // 32, keys * self.plan.padded_value_head_dim // 32
        gradients = {"dk or dv": max(dk, dv)} if self.shares_keys else {"dk": dk, "dv": dv}
        return {"score": BLOCK_Q // self.parts // 2, "prob": BLOCK_Q // self.parts // 4, **gradients}

    def shared_parts(self) -> Parts:
        """The factors of the size of each part of shared memory. TMA writes panels of 64 columns."""
        return self._shared_parts(self.plans_ahead)

    def _shared_parts(self, ahead: bool) -> Parts:
        plan, element, pairs = self.plan, {"bytes": 2}, self.uses_clusters
        spills, own_keys = self.spills_dscore_factors, {"keys": OWN_ROWS}
        head_dim, value_head_dim = (
            -(-size // PANEL_COLUMNS) * PANEL_COLUMNS for size in (plan.padded_head_dim, plan.padded_value_head_dim)
        )
        rows, keys, looped = {"block_q": plan.block_q}, {"block_kv": plan.block_kv}, {"stages": plan.stages}
        values = {"stages of keys": self.key_stages, **keys} if ahead else keys
        return {
            "k": {"stages of keys": self.key_stages, **keys, "head dim": head_dim, **element},
            "v": {**values, "head dim": value_head_dim, **element},
            "q": {**looped, **rows, "head dim": head_dim, **element},
            "dout": {**looped, **rows, "head dim": value_head_dim, **element},
            "gradient of score": {"blocks": 1 + pairs, **looped, **rows, **keys, **element},
            **(
                {"half of the factors of dS": {"consumers": self.key_shares, **rows, **own_keys, **element}}
                if spills
                else {}
            ),
            **({"k of the other block": {**keys, "columns": PANEL_COLUMNS, **element}} if pairs else {}),
            "lse and delta": {**looped, **rows, "bytes": self.statistics_bytes},
            "weights of lse and delta": {"bytes": WEIGHT_BYTES // 2 if ahead else WEIGHT_BYTES},
            "barriers": {"bytes": self._pipeline_bytes(ahead)},
        }

    def _pipeline_bytes(self, ahead: bool) -> int:
        """As backward_pipeline.cuh has it: barriers, a record for each stage of keys, tile info twice for each of
        queries, what the consumers' keys look at, and the question. Ahead also the request, and what fills up multiples
        of 1024."""
        stages, keys = self.plan.stages, self.key_stages
        of_queries = 6 + self.shares_keys + self.uses_clusters
        barriers = 2 * keys + (2 * keys + 1 if ahead else 2) + of_queries * stages
        ranges = self.key_shares * (keys if ahead else 1)
        size = 16 * -(-barriers // 2) + 48 * keys + 2 * 16 * stages + 16 * (ranges + 1)
        if ahead:
            return -(-(size + 16 + WEIGHT_BYTES // 2) // 1024) * 1024 - WEIGHT_BYTES // 2
        return size + (2 * 8 + 16) * self.uses_clusters

    @property
    def parts(self) -> int:
        """In how many parts of its rows a consumer makes the scores of a tile, and what becomes of them."""
        return 1 + self.plan.low_register

    @property
    def score_step(self) -> int:
        """Of a consumer's columns of S^T, 8 rows each, how many become exponents at once: all, unless that is long."""
        from ..instruction_cost import score_step

        return 1 if self.plan.low_register else score_step(self.plan.variant, 1, BLOCK_Q // 8)

    # ------------------------------------------------------------ statistics, see statistics_split_bf16.cuh

    @property
    def softmax(self) -> bool:
        return self.plan.variant.normalize == "softmax"

    @property
    def factors(self) -> bool:
        """Whether dS of the raw score is not that of the final one."""
        return not only_adds(self.plan.variant)

    @property
    def lse_first(self) -> bool:
        """Whether lse can be subtracted of the raw scores, as the product begins."""
        return self.softmax and not self.factors

    @property
    def lse_last(self) -> bool:
        return self.softmax and self.factors

    @property
    def lse_weight(self) -> str:
        """What -lse is multiplied by in the unit of what it is added to: raw products, or exponents."""
        return "1 / scale" if self.lse_first else "LOG2_E"

    @property
    def delta_first(self) -> bool:
        """Whether delta can be subtracted of dP as the product begins: dropout comes between the two."""
        return self.softmax and self.plan.variant.dropout is None

    @property
    def delta_last(self) -> bool:
        return self.softmax and self.plan.variant.dropout is not None

    @property
    def spills_to_smem(self) -> bool:
        """Whether dS is a multiple of dP - delta by another number than P. Registers have no room for P beside it: one
        of both is spilled to shared memory until dP is there."""
        learns = self.learns and self.keys_of_consumer > OWN_ROWS
        return self.factors or self.plan.variant.dropout is not None or not self.softmax or learns

    @property
    def spills_dscore_factors(self) -> bool:
        """Whether it is that number, in fp32: one consumer tells the other, or has 128 keys and no registers for it."""
        return self.shares_keys or (self.spills_to_smem and self.keys_of_consumer > OWN_ROWS)

    @property
    def keys_of_consumer(self) -> int:
        return self.plan.block_kv // self.key_shares

    @property
    def drains(self) -> bool:
        """Whether a consumer waits for all products of a tile before it begins the next: what looks up pairs, or sums
        up gradients of inputs, takes the registers that these would read meanwhile."""
        from ..instruction_cost import looks_up_pairs

        if self.shares_keys:
            return False
        return looks_up_pairs(self.plan.variant) or (self.learns and self.spills_dscore_factors)

    @property
    def asks_always(self) -> bool:
        """Whether the variant is asked about the pairs of tiles of which all is kept, too."""
        return bool(self.plan.variant.scores) or self.plan.variant.dropout is not None

    @property
    def masks_ahead(self) -> bool:
        """Whether what the mask keeps is found before there are scores: where it is all that the variant is asked about
        pairs, and in 2-D tiles."""
        return bool(self.plan.variant.keeps) and (self.plan.grid_2d is not None or not self.asks_always)


def _eights(count: int) -> int:
    return -(-count // 8) * 8
