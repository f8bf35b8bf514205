"""`KernelPlan`: one kernel as data. What follows from it, its family's facts say (`kernels.facts`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from ..analysis.grid_2d import Grid2D
from ..analysis.rules import TileRules
from ..ir import Variant
from ..problem.facts import OUT_DTYPES
from .choice import KNOBS, OPTIONAL, Choice

# Element sizes in bytes; fp64 exists on the CPU executor alone.
DTYPE_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "e4m3": 1}
KV_BYTES = 1  # of a cache's elements, where it has a type of its own: those of KV_DTYPES

# A forward call runs one plan of the first three. Of the others `backward` has dK and dV, and dQ where it adds that up
# over its thread blocks; `backward_dq` has dQ alone, in an order of its own. `backward_patches` has all, in 2-D tiles.
FORWARD_PASSES, BACKWARD_PASSES = ("forward", "decode", "patches"), ("backward", "backward_dq", "backward_patches")
PASSES = FORWARD_PASSES + BACKWARD_PASSES
KEY_PASSES = ("backward", "backward_patches")  # whose blocks own keys, and go over the rows
TILES_2D_PASSES = {"forward": "patches", "backward": "backward_patches"}  # what may serve their calls in 2-D tiles
BY_LENGTH = ("forward", "decode", "backward")  # whose calls may have kernels of their own by how many keys they have

LEAST_HEAD_DIM = 1
NARROW = 256  # the most that all families have but those of wide heads; beyond, no warp holds a row of O
MOST_HEAD_DIM, MOST_VALUE_HEAD_DIM = 576, 512  # of forward passes in WIDE_DTYPES
WIDE_DTYPES = ("fp16", "bf16")
HEAD_DIM_STEP, LEAST_STORED = 8, 16  # of the columns that kernels read
ROW_STEP_BYTES = 16  # rows in memory begin at multiples of this
FRAGMENT = 16  # rows, or columns, of a tensor core's fragment: head dims are padded to multiples
# Rows (queries times the query heads of a key head) from which on decode calls have kernels of their own: what takes
# two warps, and three, of FRAGMENT each.
LEAST_ROWS = (FRAGMENT + 1, 2 * FRAGMENT + 1)


class OwnKernel(NamedTuple):
    """What tells calls that have a kernel of their own, of decode, forward or a backward pass: fields of `Build`."""

    least_rows: int = 0
    one_block: bool = False
    split: bool = False
    unclustered: bool = False


# Those of decode calls, that of forward ones, and that of backward ones.
DECODE_KERNELS = tuple(OwnKernel(rows, one) for one, rows in product((False, True), (0, *LEAST_ROWS)) if one or rows)
SPLIT = OwnKernel(split=True)
OWN_KERNELS = (*DECODE_KERNELS, SPLIT)  # without those of backward calls
UNCLUSTERED = OwnKernel(unclustered=True)


def stored(head_dim: int, element_bytes: int) -> int:
    """The columns of rows as kernels read and write them: rows of other head dims are filled up with zeros."""
    step = max(HEAD_DIM_STEP, ROW_STEP_BYTES // element_bytes)
    return max(-(-head_dim // step) * step, LEAST_STORED)


def padded(head_dim: int) -> int:
    """The columns of a tile on the chip."""
    return -(-head_dim // FRAGMENT) * FRAGMENT


@dataclass(frozen=True, slots=True)
class Build:
    """What a kernel is asked for, apart from its variant and its schedule."""

    pass_name: str  # of PASSES
    target: str  # a name in target.TARGETS
    dtype: str  # of q, k and v: fp16 | bf16 | fp32 | fp64 | e4m3
    head_dim: int  # of q and k
    value_head_dim: int
    paged: bool = False  # k and v are pools of pages
    kv_dtype: str | None = None  # of k and v, a name of KV_DTYPES, where that isn't q's
    prefixed: bool = False  # of calls whose sequences share a prefix: `forward` over it, `decode` behind it
    least_rows: int = 0  # of decode calls that have a kernel of their own, one of LEAST_ROWS; 0: all others
    one_block: bool = False  # of dense decode calls for which one thread block fills a multiprocessor
    split: bool = False  # of forward calls of few blocks of queries, which splits of their keys share
    unclustered: bool = False  # of backward calls without clusters, where the usual kernel is made for these
    lengths: tuple[int, int] | None = None  # keys of the calls that it serves, both ends included; None: all others

    @property
    def element_bytes(self) -> int:
        """Of the kernels' tiles; fp64, which the CPU executor alone runs, is walked in tiles of fp32."""
        return min(DTYPE_BYTES[self.dtype], 4)

    @property
    def is_wide(self) -> bool:
        """Whether a head dim is too large for kernels whose warps hold whole rows of O."""
        return max(self.head_dim, self.value_head_dim) > NARROW

    @property
    def padded_head_dims(self) -> tuple[int, int]:
        return padded(self.head_dim), padded(self.value_head_dim)


@dataclass(frozen=True)
class KernelPlan(Choice):
    """One kernel: a variant, what it is asked for (`Build`), and how it runs, which stands by name (`Choice`).

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
    grid_2d: Grid2D | None = None  # the passes in 2-D tiles: of what
    paged: bool = False  # k and v are pools of pages
    kv_dtype: str | None = None  # of k and v, a name of KV_DTYPES, where that isn't q's
    # Of calls whose sequences share a prefix: `forward` over it, `decode` behind it.
    prefixed: bool = field(default=False, metadata={OPTIONAL: True})
    # Of decode calls that have a kernel of their own, one of LEAST_ROWS; 0: of all others.
    least_rows: int = field(default=0, metadata={OPTIONAL: True})
    # Of dense decode calls for which one thread block fills a multiprocessor.
    one_block: bool = field(default=False, metadata={OPTIONAL: True})
    # Of forward calls of few blocks of queries, which splits of their keys share.
    split: bool = field(default=False, metadata={OPTIONAL: True})
    # Of backward calls whose thread blocks form no clusters, where the usual kernel is made for these.
    unclustered: bool = field(default=False, metadata={OPTIONAL: True})
    # Thread blocks find their run while the kernel ahead on the stream is at work, and wait for it by themselves
    # (kernel_ahead.cuh). Then, and only then, launches say so to the driver.
    begins_early: bool = field(default=False, metadata={OPTIONAL: True})
    # Keys of the calls that it serves, both ends included; None: of all that no plan of its pass is for. Left out of
    # JSON then.
    lengths: tuple[int, int] | None = field(default=None, metadata={OPTIONAL: True})

    @property
    def own_kernel(self) -> OwnKernel:
        """All fields are unset where it is the usual kernel of its pass."""
        return OwnKernel(self.least_rows, self.one_block, self.split, self.unclustered)

    @property
    def build(self) -> Build:
        dims = self.head_dim, self.value_head_dim
        asked = self.pass_name, self.target, self.dtype
        own = self.own_kernel._asdict()
        return Build(*asked, *dims, self.paged, self.kv_dtype, self.prefixed, **own, lengths=self.lengths)

    @property
    def knobs(self) -> dict[str, int | str | None]:
        """What runs, by the knob of a schedule that sets it; None is decided at each launch."""
        return {name: getattr(self, name) for name in KNOBS}

    @property
    def element_bytes(self) -> int:
        """Of q, k and v."""
        return DTYPE_BYTES[self.dtype]

    @property
    def kv_bytes(self) -> int:
        """Of an element of k and v in memory."""
        return self.element_bytes if self.kv_dtype is None else KV_BYTES

    @property
    def kv_columns(self) -> tuple[int, int]:
        """The columns of k, and of v, in memory."""
        return stored(self.head_dim, self.kv_bytes), stored(self.value_head_dim, self.kv_bytes)

    @property
    def out_dtype(self) -> str:
        return OUT_DTYPES.get(self.dtype, self.dtype)

    @property
    def stored_head_dim(self) -> int:
        """The columns of q and k in memory."""
        return stored(self.head_dim, self.element_bytes)

    @property
    def stored_value_head_dim(self) -> int:
        """The columns of v and out in memory."""
        return stored(self.value_head_dim, self.element_bytes)

    @property
    def padded_head_dim(self) -> int:
        return padded(self.head_dim)

    @property
    def padded_value_head_dim(self) -> int:
        return padded(self.value_head_dim)

    @property
    def is_backward(self) -> bool:
        return self.pass_name in BACKWARD_PASSES

    @property
    def owns_keys(self) -> bool:
        """Whether a block makes dK and dV of its keys, and dQ at most on its way."""
        return self.pass_name in KEY_PASSES

    @property
    def warp_rows(self) -> int:
        """Rows of S, or where blocks own keys of its transpose, that a warp works on."""
        return (self.block_kv if self.owns_keys else self.block_q) // self.warps

    @property
    def may_split(self) -> bool:
        return self.split_kv != 1

    @property
    def tests_tiles(self) -> bool:
        """Whether single tiles are tested, beyond the loop bounds."""
        return self.skip != "never" and not self.rules.bounds_suffice

    @property
    def tile_order(self) -> str:
        """The leaf file that says where the rows and keys of a tile stand."""
        return "tiles_1d" if self.grid_2d is None else "tiles_2d"

    @property
    def tile_columns(self) -> tuple[int, int, int]:
        """Of the 2-D grid, of a tile of q and of one of kv: what the leaf file asks for."""
        grid_2d = self.grid_2d
        return (1, 1, 1) if grid_2d is None else (grid_2d.width, grid_2d.q_columns, grid_2d.kv_columns)

    @property
    def tiles(self) -> str:
        """`hopper 128 x 64, 8 warps, 4 stages`: what distinguishes plans of one kernel."""
        more = ", low register" if self.low_register else ""
        more += f", {self.keys_at_once} keys at once" if self.keys_at_once else ""
        return f"{self.family} {self.block_q} x {self.block_kv}, {self.warps} warps, {self.stages} stages{more}"
