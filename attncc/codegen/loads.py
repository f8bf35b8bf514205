"""Loads of inputs in CUDA: the address, split by what its parts depend on, and guards only where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..ir import Expr, Input, Load, Symbol, show
from ..kernels.parameters import ELEMENT_TYPES, VALUE_TYPES, field_name, gradient_name, packed_axis, packed_side
from .floats import SELECT, connect, float_literal
from .integers import ALIKE, ARITHMETIC
from .nodes import BOOL, FLOAT, INT, LONG, Level, Node, Precedence, call, infix, leaf

_LEAF = "memory/load.cuh"
_PARTS = {Level.UNIFORM: "base", Level.ROW: "row", Level.ELEMENT: "address"}
VALUES = {"bool": BOOL, "i32": INT, "i64": LONG, "f16": FLOAT, "bf16": FLOAT, "f32": FLOAT}

LOAD = call("load", 1, cost=10, include=_LEAF)
LOAD_IF = call("load_if", 2, cost=12, include=_LEAF)
SCALAR = call("scalar", 2, cost=10, include=_LEAF)
SORTED_HINT = call("sorted_hint_holds", 1, cost=12, include="memory/sorted_hints.cuh")
SORTED_HINT_IF = call("sorted_hint_holds_if", 2, cost=12, include="memory/sorted_hints.cuh")
SEARCHES = {
    False: call("first_at_least", 4, cost=40, hint="first", include="memory/search.cuh"),
    True: call("first_above", 4, cost=40, hint="first", include="memory/search.cuh"),
}
IN_RANGE = call("in_range", 2, hint="inside", include=_LEAF)
NOT_NEGATIVE = infix(">=", Precedence.RELATION, Precedence.SUM, hint="inside")
BELOW = infix("<", Precedence.RELATION, Precedence.SUM, hint="inside")

# Symbols that lie within an axis of the tag in every call: the launcher has checked the axis. Positions only beside a
# batch axis, since sequences of a packed batch may be longer than an axis that they share.
_INSIDE = {"batch": {"b"}, "head": {"h"}, "kv_head": {"kv_h"}}
_POSITIONS_INSIDE = {
    "q": {"q_idx", "q_first", "q_last"},
    "kv": {"kv_idx", "kv_first", "kv_last"},
    "pos": {"kv_idx", "kv_first", "kv_last"},
}


@dataclass(frozen=True)
class Address:
    """What a load reads: an input, or a table of it, at indices (as IR and as nodes).

    A sorted hint, and the line that a search goes through, have no last index.
    """

    name: str
    item: Input
    exprs: tuple[Expr, ...]
    indices: tuple[Node, ...]

    @property
    def is_table(self) -> bool:
        return self.name not in (self.item.name, gradient_name(self.item.name))


def load(address: Address, size: Callable[[str, int], Node], bounds: tuple[int, int]) -> Node:
    """The node of a load; `size(name, axis)` is the length of an axis, `bounds` hold the value if it is an int."""
    dtype = address.item.dtype
    base = leaf(f"const {ELEMENT_TYPES[dtype]}*", f"params.{field_name(address.name)}")
    hint = _hint(address)
    note = show(Load(address.item.type, address.name, address.exprs)) if address.indices else ""
    if not address.indices:
        value = leaf(VALUE_TYPES[dtype], f"{base.form}_value")
        return SCALAR.node(VALUES[dtype], base, value, bounds=bounds).called(hint, note=note, named=False)
    guards = list(_guards(address, size))
    pointer = _pointer(base, address)
    if address.item.default is not None:  # of an input that is left out the pointer is null and strides are 0
        default = float_literal(address.item.default)
        return SCALAR.node(VALUES[dtype], pointer, default).called(hint, note=note, named=False)
    if not guards:
        return LOAD.node(VALUES[dtype], pointer, bounds=bounds).called(hint, note=note, named=False)
    return LOAD_IF.node(VALUES[dtype], _all(guards), pointer, bounds=bounds).called(hint, note=note, named=False)


def line(address: Address, size: Callable[[str, int], Node], *, whole: bool) -> tuple[Node, Node, Node]:
    """Where a line of an input begins that is read at kv_idx, its stride, and how many entries it has: none if the line
    isn't there, and at most as many as keys. `address` has no last index. `whole`: there is an entry for each key."""
    axis = len(address.item.axes) - 1
    base = leaf(f"const {ELEMENT_TYPES[address.item.dtype]}*", f"params.{field_name(address.name)}")
    keys = leaf(INT, "ctx.kv_len", bounds=(0, 2**31 - 1))
    length = keys if whole else ALIKE["min"].node(INT, keys, size(address.name, axis))
    guards = list(_guards(address, size))
    if guards:
        length = SELECT.node(INT, _all(guards), length, leaf(INT, "0"))
    return _pointer(base, address), leaf(LONG, f"params.{field_name(address.name)}_stride{axis}"), length


def has_entry_for_each_key(address: Address) -> bool:
    """Whether the last axis, which is read at kv_idx, is known to be long enough."""
    axis = len(address.item.axes) - 1
    return _proven(address, axis, address.exprs[axis], address.indices[axis])[1]


def place(address: Address, size: Callable[[str, int], Node]) -> tuple[Node, Node | None]:
    """How many elements from its start an entry of an input's gradient lies, and whether there is such an entry (None:
    always)."""
    base, guards = leaf(LONG, "0"), list(_guards(replace(address, name=address.item.name), size))
    return _pointer(base, address), _all(guards) if guards else None


def sorted_hint(address: Address, size: Callable[[str, int], Node]) -> Node:
    """Whether a hint `nondecreasing` was found true; not where there is no such line."""
    pointer = _pointer(leaf("const unsigned char*", f"params.{field_name(address.name)}"), address)
    guards = list(_guards(address, size))
    found = SORTED_HINT_IF.node(BOOL, _all(guards), pointer) if guards else SORTED_HINT.node(BOOL, pointer)
    note = f"whether {address.item.name} is nondecreasing"
    return found.called(f"{address.item.name}_sorted", note=note, named=False)


def search(address: Address, size: Callable[[str, int], Node], length: Node, value: Node, *, above: bool) -> Node:
    """The first place of a line whose entry is at least `value`, or above it; a line that isn't there is empty."""
    guards = list(_guards(address, size))
    if guards:
        length = SELECT.node(INT, _all(guards), length, leaf(INT, "0"), bounds=length.bounds).called(
            "searched", named=False
        )
    field, axis = field_name(address.name), len(address.item.axes) - 1
    line = _pointer(leaf(f"const {ELEMENT_TYPES[address.item.dtype]}*", f"params.{field}"), address)
    stride = leaf(LONG, f"params.{field}_stride{axis}")
    form = SEARCHES[above]
    return form.node(INT, line, stride, length, value, bounds=length.bounds).called(f"{field}_first", named=False)


def _pointer(base: Node, address: Address) -> Node:
    """The address as a sum by level: what is uniform first, then what a row adds, then the element's part."""
    for level in Level:
        whole = base
        for axis, index in _terms(address, level):
            whole = _advance(whole, index, address, axis)
        if whole is not base:
            base = whole.called(f"{_plain(address.name)}_{_PARTS[level]}", named=False)
    return base


def _terms(address: Address, level: Level) -> Iterator[tuple[int, Node]]:
    """What is added to the address at a level, by axis; a packed axis starts where the sequence does."""
    packed = None if address.is_table else packed_axis(address.item)
    for axis in range(len(address.item.axes)):
        if axis == packed and level is Level.UNIFORM:
            yield axis, leaf(INT, f"ctx.{packed_side(address.item)}_start")
        if axis < len(address.indices) and address.indices[axis].level is level:
            yield axis, address.indices[axis]


def _advance(base: Node, index: Node, address: Address, axis: int) -> Node:
    if index.bounds == (0, 0):
        return base
    stride = leaf(LONG, f"params.{field_name(address.name)}_stride{axis}")
    return ARITHMETIC["add"].node(base.ctype, base, ARITHMETIC["mul"].node(LONG, index, stride))


def _guards(address: Address, size: Callable[[str, int], Node]) -> Iterator[Node]:
    for axis, (expr, index) in enumerate(zip(address.exprs, address.indices, strict=True)):
        above, below = _proven(address, axis, expr, index)
        if above and below:
            continue
        length = size(address.name, axis)
        if below:
            yield NOT_NEGATIVE.node(BOOL, index, leaf(INT, "0"))
        elif above:
            yield BELOW.node(BOOL, index, length)
        else:
            yield IN_RANGE.node(BOOL, index, length)


def _proven(address: Address, axis: int, expr: Expr, index: Node) -> tuple[bool, bool]:
    """Whether an index is known not to be negative, and to be below the length of its axis."""
    low, high = index.bounds
    declared = address.item.axes[axis]
    last = address.is_table and axis == len(address.item.axes) - 1  # counts blocks, not positions
    inside = False
    if isinstance(expr, Symbol) and declared.tag is not None and not last:
        by_sequence = any(axis.tag == "batch" for axis in address.item.axes)
        known = {**_INSIDE, **(_POSITIONS_INSIDE if by_sequence else {})}
        inside = expr.name in known.get(declared.tag, ())
    fits = declared.length is not None and not last and high < declared.length
    return inside or low >= 0, inside or fits


def _all(guards: list[Node]) -> Node:
    """All guards as one, those of a lower level together, so that they can be hoisted."""
    by_level = [[guard for guard in guards if guard.level is level] for level in Level]
    joined: list[Node] = []
    for group in by_level:
        joined = [*joined, *group]
        if len(joined) > 1:
            joined = [connect("and", tuple(joined)).called("inside", named=False)]
    return joined[0]


def _hint(address: Address) -> str:
    """`doc_q_pos` for doc[b, q_pos]: the input and the names of its indices; the batch goes without saying."""
    parts = [expr.name if isinstance(expr, Symbol) else "" for expr in address.exprs]
    names = [
        index.hint if index.named or not part else part for part, index in zip(parts, address.indices, strict=True)
    ]
    known = [name for name in names if name not in ("b", "constant", "value")]
    return "_".join([_plain(address.name), *known][:3])


def _plain(name: str) -> str:
    return name.replace("__", "_")
