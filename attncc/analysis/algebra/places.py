"""Keep lines over the places of a pair on a 2-D grid, rows and columns: what neighbours share is then one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir import MAX_LENGTH, OFFSET_SYMBOL, Apply, Expr, Let, Load, Local, Symbol, apply, const, symbol, walk
from ..grid_2d import Grid2D, position
from .algebra import TRUE
from .ranges import Range

PLACE_SYMBOLS = ("q_row_idx", "q_column_idx", "kv_row_idx", "kv_column_idx")

_ZERO = const(0)
_FRAGMENT_COLUMNS = 8  # of scores


def place_ranges(grid_2d: Grid2D) -> dict[str, Range]:
    """Of rows and columns, by symbol."""
    rows, columns = Range(0, MAX_LENGTH // grid_2d.width), Range(0, grid_2d.width - 1)
    return {name: columns if "column" in name else rows for name in PLACE_SYMBOLS}


def by_places(expr: Expr, lets: Mapping[str, Let], grid_2d: Grid2D) -> Expr:
    """An expression over positions as one over rows and columns, without lets; lengths are multiples of the width.

    What divides positions by the width becomes a row or a column.
    """
    return _Places(lets, grid_2d).of(expr)


def rows_apart(condition: Expr, grid_2d: Grid2D) -> tuple[Expr, Expr, Expr]:
    """A condition by places as three of which all must hold: about rows alone, about columns alone, and what is left.

    All is left where 2-D tiles aren't as wide as a fragment: then lanes differ in rows, too.
    """
    if {grid_2d.q_columns, grid_2d.kv_columns} != {_FRAGMENT_COLUMNS}:
        return TRUE, TRUE, condition
    found: list[Expr] = [TRUE, TRUE, TRUE]
    for part in _joined(condition):
        read = {node.name for node in walk(part) if isinstance(node, Symbol)}
        of_rows, of_columns = (any(f"{side}_{axis}_idx" in read for side in ("q", "kv")) for axis in ("row", "column"))
        kind = 2 if of_rows and of_columns else int(of_columns)
        found[kind] = part if found[kind] is TRUE else apply("and", found[kind], part)
    rows, columns, left = found
    return rows, columns, left


def _joined(condition: Expr) -> list[Expr]:
    """The parts of a condition that `and` joins."""
    if isinstance(condition, Apply) and condition.op == "and":
        return [part for arg in condition.args for part in _joined(arg)]
    return [condition]


@dataclass(frozen=True)
class _Parts:
    """width * rows + columns."""

    rows: Expr
    columns: Expr


@dataclass(frozen=True)
class _Places:
    lets: Mapping[str, Let]
    grid_2d: Grid2D
    known: dict[Expr, Expr] = field(default_factory=dict)

    @property
    def width(self) -> Expr:
        return const(self.grid_2d.width)

    def of(self, node: Expr) -> Expr:
        if node not in self.known:
            self.known[node] = self._of(node)
        return self.known[node]

    def _of(self, node: Expr) -> Expr:
        match node:
            case Local():
                return self.of(self.lets[node.name].value)
            case Symbol(name="q_idx" | "kv_idx"):
                return position(node.name.removesuffix("_idx"), self.grid_2d)
            case Symbol(name="q_pos"):
                return self.of(_q_pos())
            case Apply(op="floordiv" | "mod", args=(divided, divisor)) if divisor == self.width:
                parts = self._parts(divided)
                if parts is not None:
                    return self._divided(node.op, parts)
            case Load():  # in a mask on a 2-D grid none that counts: its normal form has no lookup
                return Load(node.type, node.input, tuple(map(self.of, node.indices)))
        return Apply(node.type, node.op, tuple(map(self.of, node.args))) if isinstance(node, Apply) else node

    def _parts(self, node: Expr) -> _Parts | None:
        """Of positions, lengths, and sums of them."""
        found: _Parts | None = None
        match node:
            case Local():
                found = self._parts(self.lets[node.name].value)
            case Symbol(name="q_idx" | "kv_idx"):
                side = node.name.removesuffix("_idx")
                found = _Parts(symbol(f"{side}_row_idx"), symbol(f"{side}_column_idx"))
            case Symbol(name="q_len" | "kv_len" | "q_offset"):
                found = _Parts(apply("floordiv", node, self.width), _ZERO)
            case Symbol(name="q_pos"):
                found = self._parts(_q_pos())
            case Apply(op="add" | "sub"):
                a, b = map(self._parts, node.args)
                if a is not None and b is not None:
                    found = _Parts(_sum(node.op, a.rows, b.rows), _sum(node.op, a.columns, b.columns))
        return found

    def _divided(self, op: str, parts: _Parts) -> Expr:
        """By the width, below which a column lies; a sum of columns may not."""
        if isinstance(parts.columns, Symbol) or parts.columns == _ZERO:
            return parts.rows if op == "floordiv" else parts.columns
        divided = apply(op, parts.columns, self.width)
        return apply("add", parts.rows, divided) if op == "floordiv" else divided


def _q_pos() -> Expr:
    return apply("add", symbol("q_idx"), symbol(OFFSET_SYMBOL))


def _sum(op: str, a: Expr, b: Expr) -> Expr:
    if b == _ZERO:
        return a
    return b if op == "add" and a == _ZERO else apply(op, a, b)
