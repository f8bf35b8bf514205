"""`KernelPlan`: everything a template, the executor and the launcher know of a kernel. It holds IR and no CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import ir
from ..analysis.canvas import Canvas
from ..analysis.rules import TileRules
from ..ir import Variant
from ..problem import Problem
from ..problem.facts import OUT_DTYPES
from .target import TARGETS

if TYPE_CHECKING:
    from .weight import Steps

# Element sizes in bytes; fp64 exists on the CPU executor alone.
DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "e4m3": 1}

# A forward call runs one plan of the first three. Of the others `backward` has dK and dV, and dQ where it adds that up
# over its thread blocks; `backward_dq` has dQ alone, in an order of its own. `backward_patches` has all, in patches.
FORWARD_PASSES, BACKWARD_PASSES = ("forward", "decode", "patches"), ("backward", "backward_dq", "backward_patches")
PASSES = FORWARD_PASSES + BACKWARD_PASSES
KEY_PASSES = ("backward", "backward_patches")  # whose blocks own keys, and go over the rows
PATCHED_PASSES = {"forward": "patches", "backward": "backward_patches"}  # what may serve their calls in patches
LOOPS = ("q_outer", "kv_outer")
FAMILIES = ("portable", "hopper")

# A warpgroup is four warps, 64 rows of Q.
WARPGROUP_WARPS, WARPGROUP_ROWS = 4, 64
CROWDING_REGISTERS = 192  # of a thread, for S and O: what else it needs in a loop takes all that is left
GRADIENT_REGISTERS = 160  # of a thread, for dK and dV together
STATISTICS_BYTES = {2: 8, 4: 16, 8: 16}  # portable: of a row, by an element's; in fp32 with what lse lost by rounding
PANEL_COLUMNS = 64  # of 16 bits, of the tiles that TMA writes and wgmma reads
PANEL_BYTES = 2 * PANEL_COLUMNS

MAX_SPLITS = 256  # of the keys of a row: the combine kernel has room for so many weights

# The forward kernel leaves a GPU idle whose multiprocessors are at least this many times its thread blocks, over keys
# that are worth a second launch.
IDLE_SHARE, SPLIT_KEYS = 4, 2048


@dataclass(frozen=True)
class KernelPlan:
    """One kernel: a variant, a pass, a target, and how it runs.

    block_q x block_kv is the tile; `warps` share its rows, `block_q / warps` rows each (a multiple of 16; in the family
    hopper 16). In KEY_PASSES a block owns keys: its warps share those, and `stages` tiles of Q and dO are in flight.
    `stages` K/V tiles are in flight. `split_kv` splits the keys over that many blocks (None: chosen at each launch),
    whose partial results the combine kernel merges; 1 leaves splitting out of the kernel.
    """

    variant: Variant
    rules: TileRules
    pass_name: str  # of PASSES
    target: str  # a name in target.TARGETS
    dtype: str  # of q, k and v: fp16 | bf16 | fp32 | fp64 | e4m3
    head_dim: int  # of q and k
    value_head_dim: int
    loop: str  # of LOOPS
    block_q: int
    block_kv: int
    warps: int
    stages: int
    split_kv: int | None
    skip: str  # auto | always | never | lists | in_kernel
    family: str = "portable"  # of FAMILIES; hopper: TMA, wgmma, and warps that do nothing but load
    overlap: bool = True  # hopper: Q K^T of a tile runs beside P V of the one before
    canvas: Canvas | None = None  # the passes in patches: what their tiles are patches of
    thrifty: bool = False  # backward: saves registers at the cost of time, see hopper_backward and few_registers.cuh

    def serves(self, problem: Problem) -> bool:
        """Whether the kernel is the one for calls of these sizes: decode, where one tile holds all rows."""
        if self.pass_name == "decode":
            return problem.rows * self.row_heads(problem) <= self.block_q
        if self.canvas is None:
            return True
        return not problem.packed and problem.q_len % self.canvas.width == problem.kv_len % self.canvas.width == 0

    @property
    def calls(self) -> str:
        """Which calls the kernel serves, in words: what `plan_for` decides by."""
        if self.pass_name == "decode":
            rows = "queries times the query heads of a key head" if self.packs_heads else "queries"
            return (
                f"up to {self.block_q} rows ({rows}), and those over {SPLIT_KEYS} keys or more for which the forward "
                f"kernel would have one thread block for {IDLE_SHARE} multiprocessors or fewer"
            )
        if self.canvas is not None:
            return f"dense ones whose lengths are multiples of {self.canvas.width}"
        return "all that no other pass serves"

    def row_heads(self, problem: Problem) -> int:
        """How many query heads the rows of a tile are of: the group, or one."""
        return problem.group if self.packs_heads else 1

    def heads(self, problem: Problem) -> int:
        """How many heads the grid counts, over all sequences."""
        return problem.num_heads // self.row_heads(problem) * (1 if problem.packed else problem.batch)

    def q_blocks(self, problem: Problem) -> int:
        """The grid's q blocks for one head and sequence; of packed batches for one head, a bound without cu_seqlens."""
        if self.canvas is None:
            return problem.q_blocks(self.block_q, self.row_heads(problem))
        return self.canvas.patches(problem.q_len, self.block_q, self.canvas.q_columns)

    def kv_blocks(self, problem: Problem) -> int:
        """The blocks of keys of one head and sequence; of packed batches for one head, a bound without cu_seqlens."""
        if self.canvas is not None:
            return self.canvas.patches(problem.kv_len, self.block_kv, self.canvas.kv_columns)
        if problem.packed:
            return problem.kv_len // self.block_kv + problem.batch
        return -(-problem.kv_len // self.block_kv)

    def kept_rows(self, problem: Problem) -> int:
        """backward: rows of a head of which something is kept, those that fill up blocks included."""
        blocks = problem.q_blocks(self.row_alignment) if self.canvas is None else self.q_blocks(problem)
        return blocks * self.row_alignment

    def leaves_idle(self, problem: Problem, multiprocessors: int) -> bool:
        """Whether most of a GPU has nothing to do while the kernel, which doesn't split them, goes over many keys."""
        if self.may_split or self.loop == "kv_outer":
            return False
        blocks = self.q_blocks(problem) * self.heads(problem)
        return IDLE_SHARE * blocks <= multiprocessors and problem.keys >= SPLIT_KEYS

    @property
    def packs_heads(self) -> bool:
        """decode: whether the heads of a group, which share keys and values, stand together in a tile (Flash-Decoding).

        Not where a mask may keep other tiles for each of them, nor with dropout, whose bits are drawn by head.
        """
        if self.pass_name != "decode" or self.variant.dropout is not None:
            return False
        tests = (self.rules.any_kept, self.rules.all_kept) if self.tests_tiles else ()
        return not any("h" in ir.reads(self.variant, rule) for rule in (*self.rules.bounds, *tests))

    @property
    def keeps_work(self) -> bool:
        """Whether there are registers to keep, over the loop, what a block works on: decode's tiles of 16 bits."""
        return self.pass_name == "decode" and self.dtype != "fp32"

    @property
    def parks(self) -> bool:
        """portable: whether what a block knows of itself lies in shared memory, since accumulators leave no registers
        for it. A mask seldom asks for it; score lines do so in every tile."""
        if self.family != "portable" or self.loop != "q_outer" or self.pass_name == "decode":
            return False
        crowded = (self.block_kv + self.padded_value_head_dim) * self.warp_rows // 32 >= CROWDING_REGISTERS
        return crowded and bool(self.variant.keeps) and not self.variant.scores and self.variant.dropout is None

    @property
    def loads_boxes(self) -> bool:
        """portable: whether TMA brings keys and values, as boxes of their tensors: to forward kernels of 16 bits, for
        targets that say so. Boxes are whole panels, and tiles follow one another."""
        if self.family != "portable" or self.loop != "q_outer" or self.pass_name != "forward":
            return False
        in_turn = self.warps_see_less or not self.variant.keeps
        panels = self.head_dim % PANEL_COLUMNS == self.value_head_dim % PANEL_COLUMNS == 0
        fits = in_turn and panels and self.dtype in {"fp16", "bf16"} and self.stages > 1
        return fits and TARGETS[self.target].boxes

    @property
    def searches(self) -> bool:
        """portable: whether warps search for their keys, in kernels that park what they know of a block. Such kernels
        ask for all that a block needs ahead of their first barrier (`block_searches.cu.j2`)."""
        found = any(isinstance(node, ir.Search) for node in ir.walk(self.rules.kv_begin, self.rules.kv_end))
        return self.parks and self.warps_see_less and found

    @property
    def query_rows(self) -> str:
        """The leaf file that says which queries the rows of a tile are."""
        if self.packs_heads:
            return "group_rows"
        return f"parked_rows{'_ahead' * self.loads_boxes}" if self.parks else "kept_rows"

    @property
    def element_bytes(self) -> int:
        """Of q, k and v."""
        return DTYPE_BYTES[self.dtype]

    @property
    def out_dtype(self) -> str:
        return OUT_DTYPES.get(self.dtype, self.dtype)

    @property
    def tile_order(self) -> str:
        """The leaf file that says where the rows and keys of a tile stand."""
        return "stretches" if self.canvas is None else "patches"

    @property
    def tile_walk(self) -> str:
        """hopper: the leaf file that goes over the tiles of a block."""
        if self.rules.columns is not None:
            return "window_tiles"
        return "group_lists" if self.tile_lists else "descending_tiles"

    @property
    def tile_columns(self) -> tuple[int, int, int]:
        """Of the canvas, of a tile of q and of one of kv: what the leaf file asks for."""
        canvas = self.canvas
        return (1, 1, 1) if canvas is None else (canvas.width, canvas.q_columns, canvas.kv_columns)

    @property
    def template(self) -> str:
        """The template that renders the kernel."""
        name = "backward" if self.is_backward else "forward"
        return f"{name}_{'hopper' if self.family == 'hopper' else self.loop}"

    @property
    def tiles(self) -> str:
        """`hopper 128 x 64, 8 warps, 4 stages`: what distinguishes plans of one kernel."""
        thrifty = ", thrifty" if self.thrifty else ""
        return f"{self.family} {self.block_q} x {self.block_kv}, {self.warps} warps, {self.stages} stages{thrifty}"

    @property
    def is_backward(self) -> bool:
        return self.pass_name in BACKWARD_PASSES

    @property
    def owns_keys(self) -> bool:
        """backward: whether a block makes dK and dV of its keys, and dQ at most on its way."""
        return self.pass_name in KEY_PASSES

    @property
    def warp_rows(self) -> int:
        """Rows of S, or where blocks own keys of its transpose, that a warp works on."""
        return (self.block_kv if self.owns_keys else self.block_q) // self.warps

    @property
    def steps(self) -> Steps:
        """How many of a warp's column tiles (8 keys) code handles at once."""
        # Analyses expressions: calls of built kernels needn't load that.
        from .weight import SELDOM_CODE, WIDE_SELDOM_CODE, steps

        seldom = SELDOM_CODE // 2 if self.has_near_form else WIDE_SELDOM_CODE if self.halves_output else SELDOM_CODE
        rows = self.block_q // self.warps // 16
        return steps(self.variant, self.warps, rows, self.block_kv // 8, seldom)

    @property
    def has_near_form(self) -> bool:
        """Whether score lines whose cheap form is a polynomial have a shorter one too, for smaller scores. That is code
        once more for a whole tile: only where it was timed."""
        from .weight import form_terms

        timed = self.family == "hopper" and self.dtype != "e4m3" and 96 < self.padded_head_dim <= 128
        return timed and not self.is_backward and form_terms(self.variant) > 1

    @property
    def adds_dq(self) -> bool:
        """backward: whether the kernel can add up dQ too, over thread blocks, in fp32."""
        return self.owns_keys and self.dtype != "fp32"

    @property
    def orders_dq(self) -> bool:
        """backward: whether it can add that up in one order, whatever order its thread blocks run in."""
        return self.adds_dq and self.family == "hopper"

    @property
    def separates_dq(self) -> bool:
        """backward: whether some of the calls get dQ from a kernel of the pass `backward_dq`."""
        return self.owns_keys and not self.orders_dq

    @property
    def needs_delta(self) -> bool:
        """backward: whether the kernel reads lse and delta = rowsum(dO O) of each row."""
        return self.is_backward and self.variant.normalize == "softmax"

    @property
    def row_alignment(self) -> int:
        """backward: what is kept of the rows of a sequence and head fills up a multiple of this many."""
        return WARPGROUP_ROWS if self.family == "hopper" else 16

    @property
    def row_format(self) -> str:
        """backward: how what is kept of rows lies in memory, as part of the names of kernels that know it."""
        family, canvas = "hopper_" if self.family == "hopper" else "", self.canvas
        return family if canvas is None else f"{family}w{canvas.width}x{canvas.q_columns}_"

    @property
    def statistics_bytes(self) -> int:
        """backward: of a row, for lse and delta."""
        return 16 if self.family == "hopper" else STATISTICS_BYTES[self.element_bytes]

    @property
    def learns(self) -> bool:
        """backward: whether there are inputs to get a gradient."""
        return self.owns_keys and any(item.learnable for item in self.variant.inputs)

    @property
    def learned_sink(self) -> ir.Input | None:
        """backward: the sink, if it gets a gradient."""
        sink = None if self.variant.sink is None else self.variant.input(self.variant.sink)
        return sink if sink is not None and sink.learnable and self.learns else None

    @property
    def gradient_parts(self) -> int:
        """backward: 2 where one thread block makes dK and another dV, since no warp has registers for both."""
        registers = self.warp_rows * (self.padded_head_dim + self.padded_value_head_dim) // 32
        return 1 + (registers > GRADIENT_REGISTERS)

    @property
    def threads(self) -> int:
        """Of a block: those that multiply, in the family hopper one warpgroup that loads, backward one that adds dQ."""
        more = (1 + self.is_backward) * WARPGROUP_WARPS if self.family == "hopper" else 0
        return 32 * (self.warps + more)

    @property
    def warpgroups(self) -> int:
        """hopper: those that multiply."""
        return self.warps // WARPGROUP_WARPS

    @property
    def transposes_values(self) -> bool:
        """hopper: whether V is transposed between TMA and P V, which sums over what is contiguous in 8-bit tiles."""
        return self.dtype == "e4m3"

    @property
    def warps_see_less(self) -> bool:
        """portable, forward: whether warps know what their own rows keep of a tile. They pass by those of which only
        rows of others keep keys, and mask none that is whole for them: the bounds move with the rows. With one stage or
        tests of tiles, they have no registers for it."""
        bounds = list(ir.walk(self.rules.kv_begin, self.rules.kv_end))
        moves = any(isinstance(node, ir.Symbol) and node.name in ("q_first", "q_last") for node in bounds)
        few = self.stages == 1 or self.tests_tiles
        return self.pass_name == "forward" and self.skip != "never" and moves and not few

    @property
    def row_groups(self) -> int:
        """hopper: into how many groups a block's rows fall, for each of which tiles are listed and noted: one for each
        warpgroup, or one for all. One where nothing is masked, and where large tiles are tested, which are seldom EMPTY
        for some rows alone; for heavy variants, whose code is long enough; and where P is rounded early, which brings
        more."""
        from .weight import room

        small = self.block_kv <= WARPGROUP_ROWS or not self.tests_tiles
        apart = self.family == "hopper" and bool(self.variant.keeps) and small and room(self.variant) == 0
        return self.warpgroups if apart and not self.rounds_early else 1

    @property
    def halves_output(self) -> bool:
        """hopper: whether a loop stores the rows of the output, half of many columns at a time: such kernels would
        compile for a second. With fewer keys a tile's code is shorter, and other tiles would be needed for the loop."""
        hopper = self.family == "hopper" and not self.is_backward and self.block_kv >= 64
        return hopper and self.value_head_dim > 128 and self.value_head_dim % 32 == 0

    @property
    def pairs_blocks(self) -> bool:
        """hopper: whether two thread blocks that look at the same keys may load them for each other: what four
        warpgroups share, or two tiles of 128 keys, leaves none time to wait for the others."""
        slack = self.family == "hopper" and self.padded_head_dim > 96 and self.block_kv < 128 and not self.may_split
        bare = slack and not self.variant.keeps and self.variant.dropout is None
        if not bare or not self.variant.scores:  # calls of built kernels needn't load what analyses score lines
            return bare
        from .weight import is_plain

        return is_plain(self.variant)

    @property
    def pairs_key_blocks(self) -> bool:
        """hopper, backward: whether two thread blocks whose keys are neighbours may load tiles of queries for each
        other, exchange dS, and make half of the columns of dQ each, a panel of K. They must have the same tiles, but
        for few: rows go on to the last, without a mask or as under a causal one."""
        if self.family != "hopper" or not self.owns_keys or self.thrifty or self.canvas is not None:
            return False
        from .weight import looks_up_pairs

        halves, rows = self.padded_head_dim == self.block_kv == 2 * PANEL_COLUMNS, self.rules.q_bounds
        alike = rows is not None and rows.q_end == ir.symbol("q_len") and not self.tests_tiles
        light = not self.variant.scores and self.variant.dropout is None and not looks_up_pairs(self.variant)
        return halves and alike and light

    @property
    def step_keys(self) -> int:
        """That one product of P V sums over: 32 bytes of P."""
        return 32 if self.dtype == "e4m3" else 16

    @property
    def references(self) -> str:
        """hopper: how probabilities are kept within their type. Old references are trusted, and a tile's sum tells
        whether they served. But e4m3 ends at 448: with much to do above 128 columns, exponents are bounded first."""
        bounded = self.dtype == "e4m3" and self.padded_value_head_dim > 128 and not self.is_light
        return "bounded" if bounded else "trusted"

    @property
    def rounds_early(self) -> bool:
        """hopper: whether P is rounded beside the products of the tile before, which takes registers."""
        return self.dtype == "e4m3" and self.padded_value_head_dim > 128 and self.is_light

    @property
    def rounds_midway(self) -> bool:
        """hopper: whether P V of the tile before is waited for midway through the exponentials, so that P is rounded
        beside the rest of them: straight into the operands, before the sums are judged. By then the next V is there,
        for which there must be a place. A mask leaves no registers for it."""
        narrow = self.dtype == "e4m3" and self.padded_value_head_dim <= 128
        return narrow and self.counts_tiles and self.overlap and self.stages > 1

    @property
    def counts_tiles(self) -> bool:
        """hopper: whether consumers know a block's tiles without notes: where all keys are kept, the first tile alone
        may have fewer, and the last begins with the first key. Score lines leave no register for it."""
        return self.family == "hopper" and self.is_light and not self.variant.keeps and not self.may_split

    @property
    def is_light(self) -> bool:
        """Whether the variant computes next to nothing for each pair."""
        from .weight import room

        return room(self.variant) == 0 and not self.variant.scores

    @property
    def normalizer(self) -> str:
        """The leaf file of the normaliser."""
        if self.family == "hopper" and self.variant.normalize == "softmax" and self.references == "trusted":
            return "trust_softmax"
        return f"normalize_{self.variant.normalize}"

    @property
    def replay(self) -> str:
        """backward: the leaf file that tells which pairs dropout kept, by what the rows of a warp are."""
        if self.variant.dropout is None:
            return "replay_all"
        return "replay_keys" if self.owns_keys else "replay_rows"

    @property
    def padded_head_dim(self) -> int:
        return -(-self.head_dim // 16) * 16

    @property
    def padded_value_head_dim(self) -> int:
        return -(-self.value_head_dim // 16) * 16

    @property
    def may_split(self) -> bool:
        return self.split_kv != 1

    @property
    def tests_tiles(self) -> bool:
        """Whether single tiles are tested, beyond the loop bounds."""
        return self.skip != "never" and not self.rules.bounds_suffice

    @property
    def aligns_tiles(self) -> bool:
        """portable, q_outer: whether tiles of keys begin at multiples of block_kv. Else a block's first tile begins at
        its first key: not where splits share tiles, nor where single tiles are tested, whose answers are sharper for
        blocks that divide what masks speak of; dropout bits and remainders of keys ask for it too."""
        from .weight import takes_remainders

        aligned = self.may_split or self.tests_tiles or self.variant.dropout is not None
        return aligned or takes_remainders(self.variant)

    @property
    def uses_tile_kind(self) -> bool:
        """Whether the kernel itself tests single tiles."""
        return self.tests_tiles and not self.tile_lists

    @property
    def tile_lists(self) -> bool:
        """Whether a pre-pass tests single tiles, and lists those that are live for each block of queries. Unasked,
        where the test of a tile reads tensors: many loads, which all heads and warps would do again, and registers that
        the kernel has better use for."""
        if not self.may_list_tiles or self.skip == "in_kernel":
            return False
        return self.skip == "lists" or self.rules.reads_keys

    @property
    def may_list_tiles(self) -> bool:
        """Whether there are tests of single tiles that a pre-pass could do."""
        tests = self.tests_tiles and bool(self.variant.keeps)
        return tests and self.pass_name == "forward" and self.loop == "q_outer"
