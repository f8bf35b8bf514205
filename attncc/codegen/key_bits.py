"""Key sets (`analysis.mask.key_sets`) as CUDA: the bits of a lane's keys, in place of a test of each pair."""

from __future__ import annotations

from ..analysis.mask.key_sets import (
    Below,
    ColumnsBelow,
    Common,
    KeySet,
    LaneKeys,
    OfRow,
    Outside,
    RemainderBelow,
    Repeating,
    RowsBelow,
    United,
    periods,
)
from ..ir import apply, const, substituted, symbol
from .expressions import Lowering
from .floats import connect
from .integers import ARITHMETIC
from .nodes import INT, Node, call, cast, prefix

BITS = "unsigned"
_LEAF = "mask/key_bits.cuh"
_REPEATED = call("repeated_bits", 2, cost=3, hint="bits", include=_LEAF)
_OF_ROW = call("row_bits", 1, hint="bits", include=_LEAF)
_OUTSIDE = prefix("~", hint="bits")

_KV_IDX = symbol("kv_idx")


class BitPrinter:
    """Nodes of key sets, in which `kv_idx` is the lane's first key."""

    def __init__(self, lowering: Lowering, block_kv: int, lane: LaneKeys) -> None:
        self._lowering = lowering
        self._block_kv = block_kv
        self._lane = lane
        in_lane = "" if lane == LaneKeys() else f"<{lane.step}, {lane.side}>"
        self._below = call(f"bits_below{in_lane}", 1, cost=8, hint="bits", include=_LEAF)

    def node(self, keys: KeySet) -> Node:
        match keys:
            case OfRow() | Below() | RemainderBelow() | Repeating():
                return self._leaf(keys)
            case RowsBelow() | ColumnsBelow():
                return self._of_window(keys)
            case Outside(of):
                return _OUTSIDE.node(BITS, self.node(of))
            case Common(parts):
                return connect("and", tuple(map(self.node, parts)), BITS)
            case United(parts):
                return connect("or", tuple(map(self.node, parts)), BITS)

    def _leaf(self, keys: OfRow | Below | RemainderBelow | Repeating) -> Node:
        lower = self._lowering.lower
        match keys:
            case OfRow(holds):
                return _OF_ROW.node(BITS, lower(holds))
            case Below(limit):
                return self._below.node(BITS, ARITHMETIC["sub"].node(INT, _limit(lower(limit)), lower(_KV_IDX)))
            case RemainderBelow():
                return self._remainder(keys)
            case Repeating(holds):
                second = substituted(holds, {_KV_IDX: apply("add", _KV_IDX, const(self._lane.side))})
                return _REPEATED.node(BITS, lower(holds), lower(second))

    def _of_window(self, keys: RowsBelow | ColumnsBelow) -> Node:
        """Of rows, or columns, counted from those of the tile."""
        grid_2d = self._lane.window
        assert grid_2d is not None
        name, place = ("rows", "floordiv") if isinstance(keys, RowsBelow) else ("columns", "mod")
        size = f"{grid_2d.kv_columns}, {self._block_kv // grid_2d.kv_columns}"
        form = call(f"{name}_below<{size}>", 1, cost=16, hint="bits", include="tiles/windows.cuh")
        first = self._lowering.lower(apply(place, _KV_IDX, const(grid_2d.width)))
        return form.node(BITS, ARITHMETIC["sub"].node(INT, _limit(self._lowering.lower(keys.limit)), first))

    def _remainder(self, keys: RemainderBelow) -> Node:
        moved = _KV_IDX if keys.shift == const(0) else apply("add", _KV_IDX, keys.shift)
        place = self._lowering.lower(apply("mod", moved, const(keys.period)))
        limit = _limit(self._lowering.lower(keys.limit))
        arguments = f"{keys.period}, {periods(keys, self._block_kv)}"
        form = call(f"remainder_bits<{arguments}>", 2, cost=16, hint="bits", include=_LEAF)
        return form.node(BITS, place, limit)


def _limit(node: Node) -> Node:
    """A limit as an int, which it is known to fit."""
    node = cast(node, INT)
    return node if node.is_leaf or node.named else node.called("limit", named=False)
