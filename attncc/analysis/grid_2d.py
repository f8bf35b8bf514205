"""2-D grids: sequences seen as rows of `width` positions. A 2-D tile has few of the rows and few of the columns.

Neighbourhoods on an image and dilated windows keep few pairs of two ranges of positions (1-D tiles), and many of two
2-D tiles. A 2-D tile of a single column holds positions that are `width` apart.
Whatever the order of the pairs, attention is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import MAX_LENGTH, Apply, Expr, Load, Symbol, apply, const, symbol


@dataclass(frozen=True)
class Grid2D:
    """Position x is in row x // width and column x % width. A tile of q (of kv) has `q_columns` (`kv_columns`) columns,
    a divisor of `width`, and as many rows as its block then has.

    Lengths are multiples of `width` in calls that see a 2-D grid. The pair (first, last) of a tile are two corners.

    `window`: tiles of kv begin where what a block of queries looks at does, at any row and column, and are as wide as
    that, so that `kv_columns` needn't divide `width`.
    """

    width: int
    q_columns: int
    kv_columns: int
    window: bool = False

    def bands(self, block_q: int, block_kv: int) -> tuple[int, int]:
        """How many positions the grid rows of a tile have, that of q and that of kv."""
        return block_q // self.q_columns * self.width, block_kv // self.kv_columns * self.width

    def tiles(self, length: int, block: int, columns: int) -> int:
        """How many 2-D tiles of `block` positions and `columns` columns hold a sequence: whole bands of them."""
        return -(-length // (block // columns * self.width)) * (self.width // columns)


@dataclass(frozen=True)
class TileAxis:
    """An axis of a tile: {name}_first <= {name}_idx <= {name}_last < {name}_first + block, all below `limit`."""

    name: str
    block: int
    limit: int = MAX_LENGTH

    @property
    def side(self) -> str:
        """`q` or `kv`."""
        return self.name.partition("_")[0]

    @property
    def symbols(self) -> tuple[str, str, str]:
        return f"{self.name}_idx", f"{self.name}_first", f"{self.name}_last"


def tile_axes(block_q: int, block_kv: int, grid_2d: Grid2D | None) -> tuple[TileAxis, ...]:
    """The axes of tiles: positions of q and kv, or rows and columns of both."""
    if grid_2d is None:
        return TileAxis("q", block_q), TileAxis("kv", block_kv)
    sides = (
        ("q", block_q // grid_2d.q_columns, grid_2d.q_columns),
        ("kv", block_kv // grid_2d.kv_columns, grid_2d.kv_columns),
    )
    return tuple(
        axis
        for side, rows, columns in sides
        for axis in (TileAxis(f"{side}_row", rows), TileAxis(f"{side}_column", columns, grid_2d.width))
    )


def position(side: str, grid_2d: Grid2D) -> Expr:
    """q_idx or kv_idx, by row and column."""
    return apply("add", apply("mul", symbol(f"{side}_row_idx"), const(grid_2d.width)), symbol(f"{side}_column_idx"))


def of_corners(expr: Expr, grid_2d: Grid2D) -> Expr:
    """A rule over the rows and columns of a tile, over its corners q_first, q_last, kv_first, kv_last."""
    known: dict[Expr, Expr] = {}

    def rewritten(node: Expr) -> Expr:
        if node not in known:
            known[node] = rebuilt(node)
        return known[node]

    def rebuilt(node: Expr) -> Expr:
        match node:
            case Symbol():
                side, _, rest = node.name.partition("_")
                part, _, end = rest.partition("_")
                if part not in ("row", "column"):
                    return node
                return apply("floordiv" if part == "row" else "mod", symbol(f"{side}_{end}"), const(grid_2d.width))
            case Apply():
                return Apply(node.type, node.op, tuple(map(rewritten, node.args)))
            case Load():
                return Load(node.type, node.input, tuple(map(rewritten, node.indices)))
        return node

    return rewritten(expr)
