"""Static ranges: constants that an int expression can't leave, whatever the call brings.

Ints wrap at 64 bits, so a result that might leave them has the range of all 64-bit ints: a range never lies. Code
generation uses 32-bit arithmetic for a node where it and its arguments have ranges of 32 bits.
"""

from __future__ import annotations

from ...ir import MAX_LENGTH, Apply, Const, Expr, Load, Local, Search, Symbol, Type, Variant
from ...operators import OPERATORS, ranges

Range = ranges.Range
INT64 = ranges.INT64
INT32 = ranges.INT32

_POSITION = Range(0, MAX_LENGTH - 1)
_LENGTH = Range(0, MAX_LENGTH)
_SIZE = Range(0, INT32.high)

SYMBOL_RANGES: dict[str, Range] = {
    "b": _POSITION,
    "h": _POSITION,
    "kv_h": _POSITION,
    "q_idx": _POSITION,
    "kv_idx": _POSITION,
    "q_pos": Range(-MAX_LENGTH, MAX_LENGTH - 1),
    "q_len": _LENGTH,
    "kv_len": _LENGTH,
    "num_heads": Range(1, MAX_LENGTH),
    "num_kv_heads": Range(1, MAX_LENGTH),
    "head_dim": Range(1, 576),
    "q_first": _POSITION,
    "q_last": _POSITION,
    "kv_first": _POSITION,
    "kv_last": _POSITION,
    "q_start": _LENGTH,
    "kv_start": _LENGTH,
    "q_offset": Range(-MAX_LENGTH, MAX_LENGTH),
    "keys_ahead": _LENGTH,  # q_offset, where that isn't negative
}


SYMBOL_RANGES |= {
    f"{side}_{part}_{end}": _POSITION
    for side in ("q", "kv")
    for part in ("row", "column")
    for end in ("idx", "first", "last")
}


_NO_INT = Range(0, 0)  # nobody asks


class StaticRanges:
    """Ranges of the int expressions of one variant, kept as they are asked for; `symbols` has those known better."""

    def __init__(self, variant: Variant, symbols: dict[str, Range] | None = None) -> None:
        self._symbols = SYMBOL_RANGES | (symbols or {})
        self._lets = variant.lets
        self._inputs = {item.name: item for item in variant.inputs}
        self._known: dict[Expr, Range] = {}

    def of(self, expr: Expr) -> Range:
        """The range of an int expression over the variant's symbols, lets, inputs and tiles."""
        pending = [] if expr in self._known else [expr]
        while pending:  # what is known isn't walked again: each part of a large expression may be asked for
            node = pending[-1]
            below = [child for child in node.children if child not in self._known]
            pending += below
            if not below:
                self._known[pending.pop()] = self._range(node) if node.type is Type.INT else _NO_INT
        return self._known[expr]

    def _range(self, node: Expr) -> Range:
        match node:
            case Const():
                return Range(int(node.value), int(node.value))
            case Symbol():
                return self.symbol(node.name)
            case Local():
                return self.of(self._lets[node.name].value)
            case Load():
                return self.load(node.input)
            case Search():
                return Range(0, self._known[node.length].high)
            case Apply():
                return transfer(node.op, tuple(self._known[arg] for arg in node.args if arg.type is Type.INT))
        raise TypeError(f"not an expression: {node!r}")

    def symbol(self, name: str) -> Range:
        """The range of a symbol; of `X__size0`, the length of that axis of input X."""
        input_name, mark, axis = name.rpartition("__size")
        if not mark:
            return self._symbols[name]
        length = self._inputs[input_name].axes[int(axis)].length
        return _SIZE if length is None else Range(length, length)

    def load(self, input_name: str) -> Range:
        """The range of an int input, or of its min/max table: what its dtype holds. An i32 that isn't there is 0."""
        name = input_name.removesuffix("__min").removesuffix("__max")
        return INT32 if self._inputs[name].dtype == "i32" else INT64


# -------------------------------------------------------------------- one operator


def transfer(op: str, args: tuple[Range, ...]) -> Range:
    """The range of `op` over int arguments in the given ranges (of `select`: its two arms)."""
    on_ints = OPERATORS[op].on_ints
    if on_ints is None or on_ints.range is None:  # made of floats
        return INT64
    found = on_ints.range(*args)
    return found if found.fits(64) else INT64
