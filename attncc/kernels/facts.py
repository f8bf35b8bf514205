"""What follows from a plan: what launches, templates and the executor ask, and each family answers in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..problem import Problem
from ..schedule.plan import FRAGMENT, KernelPlan, OwnKernel
from ..schedule.target import TARGETS
from .crossings import Chip, Crossings
from .parameters import (
    ELEMENT_TYPES,
    Parameter,
    call_fields,
    ints,
    operand_pointers,
    ordered,
    page_parameters,
    pointers,
    strides,
    variant_fields,
)
from .quantized import scale_parameters
from .shared import Parts

if TYPE_CHECKING:
    from .instruction_cost import Steps
    from .products import Product


@dataclass(frozen=True)
class Facts(ABC):
    """What all families have in common; what differs stands in their folders."""

    plan: KernelPlan

    # ------------------------------------------------------------ the kernel

    @property
    @abstractmethod
    def template(self) -> str:
        """The template that renders the kernel: a path in templates/."""

    @abstractmethod
    def parameters(self) -> tuple[Parameter, ...]:
        """The fields of `Params`, in order."""

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.plan.warps

    @property
    def products(self) -> dict[str, Product]:
        """Those that warpgroups make together, each printed as a CUDA function for this kernel alone."""
        return {}

    @property
    def uses_tile_kind(self) -> bool:
        """Whether the kernel itself tests single tiles."""
        return self.plan.tests_tiles

    @property
    def may_list_tiles(self) -> bool:
        """Whether there are tests of single tiles that a pre-pass could do."""
        return False

    @property
    def tile_parts(self) -> tuple[int, int]:
        """Into how many parts of its rows, and of its keys, a tile falls that are asked about one by one. It is loaded
        if any of them is live."""
        return 1, 1

    # ------------------------------------------------------------ its code

    @property
    def packs_heads(self) -> bool:
        """Whether the heads of a group, which share keys and values, stand together in a tile."""
        return False

    @property
    def shares_distances(self) -> bool:
        """Whether a lane's rows are r and r + 8, so that they share what score lines read by distance."""
        return False

    @property
    def reads_key_lines(self) -> bool:
        """Whether a lane reads what the variant reads at kv_idx ahead, and for all its keys of a tile at once."""
        return False

    @property
    def has_near_form(self) -> bool:
        """Whether score lines whose cheap form is a polynomial have a shorter one too, for smaller scores."""
        return False

    @property
    def maxima_may_grow(self) -> bool:
        """Whether a bias that grows with the key raises maxima ahead of a tile."""
        return False

    @property
    def keeps_row_values(self) -> bool:
        """Whether what keep lines look up for a row may be kept for all of its pairs."""
        return False

    # ------------------------------------------------------------ what it takes of a multiprocessor

    other_registers: ClassVar[int] = 48  # an estimate: addresses, row sums, fragments of Q, K, V and P

    @abstractmethod
    def accumulators(self) -> dict[str, int]:
        """Registers of each thread for the fp32 accumulators, by part."""

    @abstractmethod
    def shared_parts(self) -> Parts:
        """The factors of each part's size in shared memory, by name."""

    @property
    def register_limit(self) -> tuple[int, str]:
        """The most that a thread may have, and why."""
        target = TARGETS[self.plan.target]
        most, block, threads = target.max_registers_per_thread, target.registers_per_block, self.threads
        return min(most, block // threads), f"the least of {most} and {block} / {threads} threads"

    # ------------------------------------------------------------ the launch

    @property
    def mapped(self) -> tuple[str, ...]:
        """The operands that TMA loads, by maps that the kernel takes before `Params`."""
        return ()

    @property
    def persistent(self) -> bool:
        """Whether thread blocks stay, and take one block of work after the other."""
        return False

    @property
    def calls(self) -> str:
        """Which calls the kernel serves, in words: what `serves` decides by."""
        if self.plan.grid_2d is not None:
            return f"dense ones whose lengths are multiples of {self.plan.grid_2d.width}"
        if self.plan.prefixed:
            return "those with shared_prefix: over the keys that all sequences share"
        return "all that no other pass serves"

    def serves(self, problem: Problem) -> bool:
        """Whether the kernel can run calls of these sizes."""
        grid_2d = self.plan.grid_2d
        if grid_2d is None:
            return True
        if problem.varies or problem.has_offset:
            return False
        return problem.q_len % grid_2d.width == problem.kv_len % grid_2d.width == 0

    def takes_few_rows(self, problem: Problem, crossings: Crossings) -> bool:
        """Whether a forward kernel takes less time for a call that a decode kernel serves."""
        return False

    def least_time(self, problem: Problem, chip: Chip) -> float | None:
        """How long a forward call takes, by this kernel or an own one, in keys that a block of queries goes over; None
        where that is taken to be the keys of the block that has most of them."""
        return None

    def own_kernels(self, problem: Problem, chip: Chip) -> tuple[OwnKernel, ...]:
        """Those that are faster for a call of the plan's, where there are any; best first."""
        return ()

    def fits_pages(self, problem: Problem) -> bool:
        """Whether the kernel can load pages of so many rows; calls without pages fit all."""
        return True

    @property
    def separates_dq(self) -> bool:
        """Whether some of the calls get dQ from another kernel, of the pass `backward_dq`."""
        return False

    def row_heads(self, problem: Problem) -> int:
        """How many query heads the rows of a tile are of: the group, or one."""
        return 1

    def block_rows(self, problem: Problem) -> tuple[int, int]:
        """How many rows a block has, and how many of these each query: blocks follow each other without a gap."""
        return self.plan.block_q, self.row_heads(problem)

    def heads(self, problem: Problem) -> int:
        """How many heads the grid counts, over all sequences."""
        return problem.num_heads // self.row_heads(problem) * (1 if problem.packed else problem.batch)

    def q_blocks(self, problem: Problem) -> int:
        """The grid's q blocks for one head and sequence; of packed batches for one head, a bound without cu_seqlens."""
        plan = self.plan
        if plan.grid_2d is None:
            return problem.q_blocks(plan.block_q, self.row_heads(problem))
        return plan.grid_2d.tiles(problem.q_len, plan.block_q, plan.grid_2d.q_columns)

    def kv_blocks(self, problem: Problem) -> int:
        """The blocks of keys of one head and sequence; of packed batches for one head, a bound without cu_seqlens."""
        plan = self.plan
        if plan.grid_2d is not None:
            return plan.grid_2d.tiles(problem.kv_len, plan.block_kv, plan.grid_2d.kv_columns)
        if problem.packs_keys:
            return problem.kv_len // plan.block_kv + problem.batch
        return -(-problem.kv_len // plan.block_kv)


class ForwardFacts(Facts):
    """Of a kernel of a forward pass."""

    @property
    def tile_lists(self) -> bool:
        """Whether a pre-pass tests single tiles, and lists those that are live for each block of queries. Unasked,
        where the test of a tile reads tensors: many loads, which all heads and warps would do again, and registers that
        the kernel has better use for."""
        if not self.may_list_tiles or self.plan.skip == "in_kernel":
            return False
        return self.plan.skip == "lists" or self.plan.rules.reads_keys

    @property
    def may_list_tiles(self) -> bool:
        plan = self.plan
        return plan.tests_tiles and bool(plan.variant.keeps) and plan.pass_name == "forward" and plan.loop == "q_outer"

    @property
    def uses_tile_kind(self) -> bool:
        return self.plan.tests_tiles and not self.tile_lists

    @property
    def latent_stages(self) -> int:
        """Tiles of K in flight where V is its first columns, which are loaded once. 0: V is loaded for itself."""
        return 0

    @property
    def aligns_tiles(self) -> bool:
        """Whether tiles of keys begin at multiples of block_kv. Else those of a block begin with its first key."""
        return True

    @property
    def row_groups(self) -> int:
        """Into how many groups a block's rows fall, for each of which tiles have lists and info."""
        return 1

    @property
    def transposes_values(self) -> bool:
        """Whether V is transposed on its way to P V."""
        return False

    @property
    def transposing_warps(self) -> int:
        """How many warps of the kernel do that, where no launch does it ahead."""
        return 0

    @property
    def out_columns(self) -> str:
        """The struct that says which columns of the output a lane stores."""
        return "ColumnsInFours" if self.plan.kv_dtype else "ColumnsInPairs"

    @property
    def store_rows(self) -> str:
        """The function that stores rows of the output."""
        return "store_rows"

    @property
    def finishes_early(self) -> bool:
        """Whether a row's sums are finished beside its last P V, which takes registers."""
        return False

    @property
    def widen(self) -> str:
        """The struct that makes the numbers of a cache of 8 bits fp16."""
        by_instruction = TARGETS[self.plan.target].converts_e4m3
        return "Int8ToFp16" if self.plan.kv_dtype == "int8" else "E4m3ToFp16" if by_instruction else "E4m3BitsToFp16"

    @property
    def probs_range(self) -> str:
        """The struct that brings P, times the scales of a cache of 8 bits, into fp16's range."""
        bounded = self.plan.variant.normalize == "softmax" and not self.plan.paged
        return "ProbsInRange" if bounded else "ProbsOfAnyRange<M_TILES>"

    def is_short(self, rows: int) -> bool:
        """Whether a block of queries with so many rows takes less time than a whole one."""
        return False

    @property
    def uses_clusters(self) -> bool:
        """Whether two thread blocks that look at the same keys may load them for each other."""
        return False

    @property
    def tests_once(self) -> bool:
        """Whether a warp asks once for a range of keys whether the mask's tests hold for all of its rows."""
        return False

    @property
    def halves_output(self) -> bool:
        """Whether a loop stores the rows of the output, half of many columns at a time."""
        return False

    @property
    def shares_rows(self) -> bool:
        """Whether all warps have columns of O of all rows of a tile; else each has rows of its own."""
        return False

    @property
    def warp_rows(self) -> str:
        """Of a tile, those of S that a warp works on, as the kernel says it."""
        return "BLOCK_Q / WARPS"

    @property
    def warp_slot(self) -> str:
        """The first row of a tile that a warp has, as the kernel says it."""
        return "rows.template warp_slot<WARP_ROWS>()"

    @property
    def query_rows(self) -> str:
        """The leaf file that says which queries the rows of a tile are."""
        return "kept_rows"

    def heads_in_rows(self, problem: Problem) -> dict[str, int]:
        """The fields that say how heads of a group stand together in blocks of queries."""
        return {}

    @property
    def slot_query(self) -> str:
        """The function of a row of a block that gives its query, counted from the block's first."""
        return "QOrder::offset"

    @property
    def scores_may_be_low(self) -> bool:
        """Whether score lines may bring scores so far down that others, relative to them, would lose their digits."""
        # Analyses expressions: calls of built kernels needn't load that.
        from ..analysis.score.lowest import may_be_low

        return self.plan.variant.normalize == "softmax" and may_be_low(self.plan.variant)

    @property
    def normalizer(self) -> str:
        """The leaf file of the normaliser."""
        if self.scores_may_be_low:
            return "low_scores_softmax"
        return f"normalize_{self.plan.variant.normalize}"

    @property
    def warp_keys(self) -> int:
        """Of a tile of keys, those that a warp works on at once."""
        return self.plan.block_kv

    @property
    def most_resident(self) -> int:
        """The most thread blocks of one m16 tile a warp that a multiprocessor should hold."""
        return 3

    @property
    def registers_besides(self) -> int:
        """Of a thread, besides those for S, O and Q: where two blocks are to be on a multiprocessor."""
        return 88

    @property
    def steps(self) -> Steps:
        """How many of a warp's column tiles (8 keys) code handles at once."""
        # Analyses expressions: calls of built kernels needn't load that.
        from .instruction_cost import SELDOM_CODE, WIDE_SELDOM_CODE, steps

        plan = self.plan
        seldom = SELDOM_CODE // 2 if self.has_near_form else WIDE_SELDOM_CODE if self.halves_output else SELDOM_CODE
        return steps(plan.variant, plan.warps, plan.block_q // plan.warps // FRAGMENT, self.warp_keys // 8, seldom)

    def parameters(self) -> tuple[Parameter, ...]:
        return ordered(self._parameters())

    def _parameters(self) -> Iterator[Parameter]:
        plan = self.plan
        yield from operand_pointers(plan)
        yield from pointers(ELEMENT_TYPES[plan.out_dtype], "out")
        yield from pointers("float", "lse", "partial_out", "row_max", "row_sum")
        yield from pointers("unsigned", *["next_block"] * self.persistent)
        yield from call_fields(plan.variant)
        for name in ("q", "k", "v", "out"):
            yield from strides(name)
        yield from ints("batch", "num_heads", "num_kv_heads", "q_len", "kv_len", "q_blocks", "splits", "head_swizzle")
        yield from ints(*["blocks"] * self.persistent)
        if self.transposes_values:
            yield from pointers("unsigned char", "values_ahead")
            yield from ints("kv_tiles")
        if plan.paged:
            yield from (*page_parameters(), *ints("box_rows"))
        if plan.kv_dtype is not None:
            yield from scale_parameters()
        if self.tile_lists:
            yield from pointers("uint2", "tile_lists")
            yield from ints("list_batch", "list_heads", "list_words", "list_parts")
        yield from variant_fields(plan)
