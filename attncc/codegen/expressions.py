"""IR to CUDA: `Lowering` turns expressions into shared `Node`s, with the meaning that `evaluate` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..analysis.algebra.places import PLACE_SYMBOLS, place_ranges
from ..analysis.algebra.ranges import StaticRanges
from ..analysis.rules import sorted_name
from ..descales import PRODUCT_SCALE, descaled
from ..ir import (
    OFFSET_SYMBOL,
    TILE_SYMBOLS,
    Apply,
    Const,
    Expr,
    Let,
    Load,
    Local,
    Search,
    Symbol,
    Type,
    Variant,
    needs,
    symbol,
    walk,
)
from ..kernels.parameters import field_name, packed_axis, packed_side
from ..kernels.registry import facts_of
from ..schedule.plan import KernelPlan
from . import floats, integers
from .loads import Address, load, search, sorted_hint
from .nodes import BOOL, CALL_SCALE, FLOAT, INT, LONG, SCALE, Level, Node, Precedence, fits_int, int_literal, leaf

_CONTEXT = frozenset({"b", "h", "kv_h", "q_len", "kv_len", "q_start", "kv_start", "q_offset", "scale"})

_CTYPES = {Type.INT: LONG, Type.FLOAT: FLOAT, Type.BOOL: BOOL}  # of what isn't made of ints


class Lowering:
    """Lowers the expressions of one plan. Equal expressions become one node, so what they share is seen.

    `score` is the node that stands for the score so far; lets that read it must be lowered where they stand, by
    `define`, and keep that value. `of_rows`: the head is that of a row where heads of a group stand together, not that
    of a context. `read`: loads that a function doesn't do itself, and what holds their values.
    """

    def __init__(self, plan: KernelPlan, *, of_rows: bool = True, read: Mapping[Load, Node] | None = None) -> None:
        self.plan = plan
        self._read = read or {}
        self._rows_have_heads = of_rows and facts_of(plan).packs_heads
        self.score = leaf(FLOAT, "score", Level.ELEMENT, reads_score=True)
        self._ranges = StaticRanges(plan.variant, None if plan.grid_2d is None else place_ranges(plan.grid_2d))
        self._lets = plan.variant.lets
        self._exact = products_of_masks(plan.variant)
        self._nodes: dict[Expr, Node] = {}
        self._of_score: dict[Expr, Node] = {}  # nodes that hold for the present `score` alone
        self._defined: dict[str, Node] = {}

    def lower(self, expr: Expr) -> Node:
        for known in (self._nodes, self._of_score):
            if expr in known:
                return known[expr]
        node = self._lower(expr)
        (self._of_score if self._names_score(expr) else self._nodes)[expr] = node
        return node

    def define(self, name: str) -> Node:
        """The value of a let, where it stands; a name for it if it isn't just another one."""
        if name not in self._defined:
            let = self._lets[name]
            value = self.lower(let.value)
            self._defined[name] = value if value.is_leaf else value.called(name, let.span, f"let {name}")
        return self._defined[name]

    def rescore(self, node: Node) -> None:
        """From here on, `score` is `node`."""
        self.score = node
        self._of_score = {}

    def _names_score(self, expr: Expr) -> bool:
        """Whether a lowered expression means something else after `rescore`, even if its node doesn't read the raw
        score: a line may have replaced that."""
        return expr == symbol("score") or any(child in self._of_score for child in expr.children)

    def _lower(self, expr: Expr) -> Node:
        match expr:
            case Const():
                return _constant(expr)
            case Symbol():
                return self._symbol(expr.name)
            case Local():
                return self.define(expr.name)
            case Load():
                return self._load(expr)
            case Search():
                return self._search(expr)
            case Apply():
                return self._apply(expr, tuple(self.lower(arg) for arg in expr.args))
        raise TypeError(f"not an expression: {expr!r}")

    # ---------------------------------------------------------------- symbols

    def _symbol(self, name: str) -> Node:
        if name == "score":
            return self.score
        if name in ("scale", PRODUCT_SCALE):
            return CALL_SCALE if self._apart(name) else SCALE
        if name == "head_dim":
            return int_literal(self.plan.head_dim)
        if "__size" in name:
            input_name, _, axis = name.rpartition("__size")
            return self.size(input_name, int(axis))
        return self._int_symbol(name)

    def _apart(self, name: str) -> bool:
        """Whether a symbol is the scale without the descales that the kernel's own has."""
        return name == "scale" and descaled(self.plan.variant)

    def _int_symbol(self, name: str) -> Node:
        bounds = self._ranges.symbol(name)
        if name == "q_pos":
            return self._q_pos().called("q_pos")
        if name == "h" and self._rows_have_heads:
            return leaf(INT, "row.h", Level.ROW, bounds=bounds)
        if name in _CONTEXT:
            return leaf(INT, f"ctx.{name}", bounds=bounds)
        if name in ("num_heads", "num_kv_heads"):
            return leaf(INT, f"params.{name}", bounds=bounds)
        if name == "q_idx":
            return leaf(INT, "row.q_idx", Level.ROW, bounds=bounds)
        assert name == "kv_idx" or name in TILE_SYMBOLS or name in PLACE_SYMBOLS, name
        return leaf(INT, name, Level.ELEMENT, bounds=bounds)

    def _q_pos(self) -> Node:
        q_idx, shift = (self._int_symbol(name) for name in ("q_idx", OFFSET_SYMBOL))
        return integers.ARITHMETIC["add"].node(INT, q_idx, shift, bounds=self._ranges.symbol("q_pos"))

    def size(self, input_name: str, axis: int) -> Node:
        """The length of an input's axis within the sequence: on a packed axis, the sequence's own."""
        field = leaf(INT, f"params.{field_name(input_name)}_size{axis}", bounds=(0, 2**31 - 1))
        item = next((item for item in self.plan.variant.inputs if item.name == input_name), None)
        if item is None or packed_axis(item) != axis:  # not an input: a min/max table, which is indexed as a whole
            return field
        side = packed_side(item)
        packed = leaf(BOOL, f"params.cu_seqlens_{side} != nullptr", precedence=Precedence.EQUALITY)
        length = leaf(INT, f"ctx.{side}_len", bounds=(0, 2**31 - 1))
        return floats.SELECT.node(INT, packed, length, field, bounds=(0, 2**31 - 1)).called(f"{input_name}_length")

    # ---------------------------------------------------------------- loads and operators

    def _load(self, expr: Load) -> Node:
        if expr in self._read:
            return self._read[expr]
        address = self.address(expr)
        item = address.item
        if expr.input.removesuffix("__min").removesuffix("__max") == sorted_name(item.name):
            return sorted_hint(address, self.size)
        return load(address, self.size, self._ranges.load(expr.input) if item.type is Type.INT else (0, 0))

    def address(self, expr: Load) -> Address:
        """What a load reads."""
        name = expr.input.removesuffix("__min").removesuffix("__max")
        item = self.plan.variant.input(name.removesuffix("__sorted"))
        indices = tuple(self.lower(index) for index in expr.indices)
        exprs = tuple(self._resolved(index) for index in expr.indices)
        return Address(expr.input, item, exprs, indices)

    def _search(self, expr: Search) -> Node:
        *indices, length, value = (self.lower(child) for child in expr.children)
        address = Address(expr.input, self.plan.variant.input(expr.input), expr.indices, tuple(indices))
        return search(address, self.size, length, value, above=expr.above)

    def _resolved(self, expr: Expr) -> Expr:
        """What a let that is just another name stands for."""
        while isinstance(expr, Local):
            expr = self._lets[expr.name].value
        return expr

    def _apply(self, expr: Apply, args: tuple[Node, ...]) -> Node:
        match expr.op:
            case "and" | "or":
                return floats.connect(expr.op, args)
            case "select":
                return self._select(expr, args)
            case "to_float":
                return floats.TO_FLOAT.node(FLOAT, *args)
            case "div":
                return _divide(*args)
        kind = expr.args[-1].type
        if expr.type is kind is Type.INT:
            return integers.integer(expr.op, args, self._ranges.of(expr))
        form = floats.EXACT_PRODUCT if expr in self._exact else floats.form(expr.op, kind)
        return form.node(_CTYPES[expr.type], *args)

    def _select(self, expr: Apply, args: tuple[Node, ...]) -> Node:
        if expr.type is not Type.INT:
            return floats.SELECT.node(args[1].ctype, *args)
        bounds = self._ranges.of(expr)
        return floats.SELECT.node(INT if fits_int(bounds) else LONG, *args, bounds=bounds)


@lru_cache(maxsize=64)
def products_of_masks(variant: Variant) -> frozenset[Expr]:
    """The products of floats that keep lines read. A sum would fuse with them, unrounded, and so compare otherwise than
    the executor and `variant.mask` do, or than a kernel that keeps the product for a row."""
    roots = [keep.condition for keep in variant.keeps]
    lets = [item.value for item in needs(variant, *roots) if isinstance(item, Let)]
    nodes = (node for root in (*roots, *lets) for node in walk(root))
    return frozenset(node for node in nodes if isinstance(node, Apply) and node.op == "mul" and node.type is Type.FLOAT)


def _constant(expr: Const) -> Node:
    if expr.type is Type.BOOL:
        return floats.bool_literal(bool(expr.value))
    return int_literal(int(expr.value)) if expr.type is Type.INT else floats.float_literal(float(expr.value))


def _divide(value: Node, divisor: Node) -> Node:
    """A score over what all pairs, or a row's, share is multiplied by a reciprocal, computed once.

    Only a score: it is rounded anyway, where `5 / 5 == 1` in a `keep` must hold.
    """
    if not value.reads_score or divisor.level >= Level.ELEMENT:
        return floats.form("div", Type.FLOAT).node(FLOAT, value, divisor)
    reciprocal = floats.RECIPROCAL.node(FLOAT, divisor)
    if not divisor.is_leaf or divisor.hint != "constant":
        reciprocal = reciprocal.called(f"inverse_{divisor.hint}")
    return floats.form("mul", Type.FLOAT).node(FLOAT, value, reciprocal)
