"""What the backward kernel of the family hopper is, beyond its tiles: registers, slices of dQ, when lse and delta join.

Two warpgroups own the keys of a block, half each, and hold their dK and dV; a third adds up dQ; a fourth loads.
A block of 64 keys can't be halved: both own it then, one its dV, the other its dK, for head dims of which no warpgroup
could hold both.

Masks and score lines take registers, mostly for what they read of inputs. A thrifty plan lets them see few pairs at
once, in a loop, and makes S^T, and all that follows, in two parts of a tile's rows. That takes 24 registers less: the
owners keep 8 of them, the warpgroup that loads gets 32 from both, for a sixth more reads of shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..analysis.additive import only_adds
from .plan import PANEL_COLUMNS, KernelPlan
from .shared import Parts
from .target import TARGETS
from .weight import looks_up_pairs, score_step

OWNERS = 2
BLOCK_Q = 64  # rows of a tile: what one wgmma makes of dQ
OWN_ROWS = 64  # of S^T that one wgmma makes
KEY_STAGES = 2  # the keys of a block are on their way while the one before is worked on, where there is room
WEIGHT_BYTES = 1024  # of operands that pick lse or delta

# Registers of a thread of each warpgroup; four of them share these, in steps of 8.
_ALL_REGISTERS = 512
_ADDER_REGISTERS = 32  # besides its slice of dQ
_OTHER_REGISTERS = 40  # of an owner, besides its accumulators, if there are as many
_PRODUCER_REGISTERS, _CLASSIFYING_REGISTERS = 48, 64  # enough for every mask
_LEAST_PRODUCER_REGISTERS = 32
_MOST_REGISTERS = 240


@dataclass(frozen=True)
class HopperBackward:
    """Facts of one backward plan of the family hopper."""

    plan: KernelPlan

    @property
    def adder_registers(self) -> int:
        return _ADDER_REGISTERS + _eights(self.dq_columns // 2)

    @property
    def producer_registers(self) -> int:
        owner = _eights(sum(self.accumulators().values()) + _OTHER_REGISTERS)
        rest = _ALL_REGISTERS - self.adder_registers - OWNERS * owner
        most = _CLASSIFYING_REGISTERS if self.plan.uses_tile_kind else _PRODUCER_REGISTERS
        return min(max(rest, _LEAST_PRODUCER_REGISTERS), most)

    @property
    def owner_registers(self) -> int:
        rest = (_ALL_REGISTERS - self.adder_registers - self.producer_registers) // OWNERS
        return min(rest // 8 * 8, _MOST_REGISTERS)

    @property
    def dq_columns(self) -> int:
        """Of dQ that are made at once. Slices begin with a panel of K."""
        columns = self.plan.padded_head_dim
        return PANEL_COLUMNS if columns % PANEL_COLUMNS == 0 else columns

    @property
    def key_shares(self) -> int:
        """Of a block of keys: one for each owner, or one for both."""
        return min(self.plan.block_kv // OWN_ROWS, OWNERS)

    @property
    def shares_keys(self) -> bool:
        """Whether both owners have all keys of a block, and a gradient each."""
        return self.key_shares == 1

    @property
    def key_stages(self) -> int:
        return 1 if self.shares_keys or self.plan.pairs_key_blocks else KEY_STAGES

    @property
    def plans_ahead(self) -> bool:
        """Whether blocks of keys are claimed, and their keys and values loaded, while the one before is worked on, see
        docs/hopper.md: under masks, whose blocks have few tiles, if there is room for the values of two blocks. Not
        where pairs are looked up: ptxas finds no registers for that. Nor where sequences may have scales of their own:
        the owners, who may be at work on two of them, share the weights of lse."""
        variant = self.plan.variant
        if self.key_stages == 1 or not self.masks_ahead or looks_up_pairs(variant) or variant.scale is not None:
            return False
        parts = self._shared_parts(ahead=True).values()
        return sum(prod(factors.values()) for factors in parts) <= TARGETS[self.plan.target].shared_bytes

    @property
    def blocks_leaf(self) -> str:
        return "blocks_ahead" if self.plans_ahead else "blocks_late"

    @property
    def blocks_template(self) -> str:
        return f"parts/hopper_backward_{self.blocks_leaf}.cu.j2"

    @property
    def owners_template(self) -> str:
        return f"parts/hopper_backward_{'sharing_owners' if self.shares_keys else 'whole_owner'}.cu.j2"

    def accumulators(self) -> dict[str, int]:
        """Registers of an owner's thread: S, then dP; P, then dS, with 16 bits; dK and dV."""
        keys = self.plan.block_kv // self.key_shares // 4  # of a warp
        dk, dv = keys * self.plan.padded_head_dim // 32, keys * self.plan.padded_value_head_dim // 32
        gradients = {"dk or dv": max(dk, dv)} if self.shares_keys else {"dk": dk, "dv": dv}
        return {"score": BLOCK_Q // self.parts // 2, "prob": BLOCK_Q // self.parts // 4, **gradients}

    def shared_parts(self) -> Parts:
        """The factors of the size of each part of shared memory. TMA writes panels of 64 columns."""
        return self._shared_parts(self.plans_ahead)

    def _shared_parts(self, ahead: bool) -> Parts:
        plan, element, pairs = self.plan, {"bytes": 2}, self.plan.pairs_key_blocks
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
            **({"k of the other block": {**keys, "columns": PANEL_COLUMNS, **element}} if pairs else {}),
            "lse and delta": {**looped, **rows, "bytes": plan.statistics_bytes},
            "weights of lse and delta": {"bytes": WEIGHT_BYTES // 2 if ahead else WEIGHT_BYTES},
            "barriers": {"bytes": self._pipeline_bytes(ahead)},
        }

    def _pipeline_bytes(self, ahead: bool) -> int:
        """As backward_pipeline.cuh has it: barriers, a record for each stage of keys, two notes for each of queries,
        what the owners' keys look at, and the question. Ahead also the request, and what fills up multiples of 1024."""
        stages, keys = self.plan.stages, self.key_stages
        of_queries = 6 + self.shares_keys + self.plan.pairs_key_blocks
        barriers = 2 * keys + (2 * keys + 1 if ahead else 2) + of_queries * stages
        ranges = self.key_shares * (keys if ahead else 1)
        size = 16 * -(-barriers // 2) + 48 * keys + 2 * 16 * stages + 16 * (ranges + 1)
        if ahead:
            return -(-(size + 16 + WEIGHT_BYTES // 2) // 1024) * 1024 - WEIGHT_BYTES // 2
        return size + (2 * 8 + 16) * self.plan.pairs_key_blocks

    @property
    def parts(self) -> int:
        """In how many parts of its rows an owner makes the scores of a tile, and what becomes of them."""
        return 1 + self.plan.thrifty

    @property
    def score_step(self) -> int:
        """Of an owner's columns of S^T, 8 rows each, how many become exponents at once: all, unless that is long."""
        return 1 if self.plan.thrifty else score_step(self.plan.variant, 1, BLOCK_Q // 8)

    # ------------------------------------------------------------ statistics, see statistics_pieces.cuh

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
    def factors_leaf(self) -> str:
        """The leaf file that knows what dS of the raw score is to that of the final one."""
        return "factors_kept" if self.factors else "factors_are_one"

    @property
    def slopes_leaf(self) -> str:
        """The leaf file that knows what dS is a multiple of dP - delta by: the P that dV takes, or another number."""
        own = self.shares_keys or self.factors or self.plan.variant.dropout is not None or not self.softmax
        return "slopes_put_aside" if own else "slopes_are_probs"

    @property
    def asks_always(self) -> bool:
        """Whether the variant is asked about the pairs of tiles of which all is kept, too."""
        return bool(self.plan.variant.scores) or self.plan.variant.dropout is not None

    @property
    def masks_ahead(self) -> bool:
        """Whether what the mask keeps is found before there are scores: where it is all that the variant is asked about
        pairs, and in patches."""
        return bool(self.plan.variant.keeps) and (self.plan.canvas is not None or not self.asks_always)


def _eights(count: int) -> int:
    return -(-count // 8) * 8
