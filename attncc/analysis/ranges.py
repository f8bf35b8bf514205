"""Static ranges: constants that an int expression can't leave, whatever the call brings.

Ints wrap at 64 bits, so a result that might leave them has the range of all 64-bit ints: a range never lies. Code
generation uses 32-bit arithmetic for a node where it and its arguments have ranges of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import NamedTuple

from ..ir import MAX_LENGTH, Apply, Const, Expr, Load, Local, Search, Symbol, Type, Variant, walk


class Range(NamedTuple):
    """All ints from `low` to `high`, both included."""

    low: int
    high: int

    def fits(self, bits: int) -> bool:
        """Whether a signed int of that many bits holds every value."""
        return -(1 << (bits - 1)) <= self.low and self.high < 1 << (bits - 1)

    def join(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


INT64 = Range(-(2**63), 2**63 - 1)
INT32 = Range(-(2**31), 2**31 - 1)

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
    "head_dim": Range(16, 256),
    "q_first": _POSITION,
    "q_last": _POSITION,
    "kv_first": _POSITION,
    "kv_last": _POSITION,
    "q_start": _LENGTH,
    "kv_start": _LENGTH,
}


SYMBOL_RANGES |= {
    f"{side}_{part}_{end}": _POSITION
    for side in ("q", "kv")
    for part in ("row", "column")
    for end in ("idx", "first", "last")
}


class StaticRanges:
    """Ranges of the int expressions of one variant, kept as they are asked for; `symbols` has those known better."""

    def __init__(self, variant: Variant, symbols: dict[str, Range] | None = None) -> None:
        self._symbols = SYMBOL_RANGES | (symbols or {})
        self._lets = variant.lets
        self._inputs = {item.name: item for item in variant.inputs}
        self._known: dict[Expr, Range] = {}

    def of(self, expr: Expr) -> Range:
        """The range of an int expression over the variant's symbols, lets, inputs and tiles."""
        for node in walk(expr):
            if node.type is Type.INT and node not in self._known:
                self._known[node] = self._range(node)
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
        """The range of an int input, or of its zone map: what its dtype holds. An i32 that isn't there is 0."""
        name = input_name.removesuffix("__min").removesuffix("__max")
        return INT32 if self._inputs[name].dtype == "i32" else INT64


# -------------------------------------------------------------------- one operator


def transfer(op: str, args: tuple[Range, ...]) -> Range:
    """The range of `op` over int arguments in the given ranges (of `select`: its two arms)."""
    found = _TRANSFER[op](*args)
    return found if found.fits(64) else INT64


def _hull(values: Iterable[int]) -> Range:
    known = list(values)
    return Range(min(known), max(known))


def _corners(combine: Callable[[int, int], int], a: Range, b: Iterable[int]) -> Range:
    return _hull(combine(x, y) for x, y in product(a, b))


def _floordiv(a: Range, b: Range) -> Range:
    """Over one sign of the divisor, the extreme quotients are at its ends; x // 0 is 0."""
    divisors = [x for x in (b.low, b.high, -1, 1) if x != 0 and b.low <= x <= b.high]
    quotients = [x // y for x, y in product(a, divisors)]
    return _hull(quotients + [0] * (b.low <= 0 <= b.high))


def _mod(a: Range, b: Range) -> Range:
    """A remainder has its divisor's sign and is nearer to 0; x % 0 is 0."""
    if b.low == b.high != 0 and a.low // b.low == a.high // b.low:
        return Range(a.low % b.low, a.high % b.low)
    high = max(b.high - 1, 0)
    if a.low >= 0 and b.low > 0:
        high = min(high, a.high)
    return Range(min(b.low + 1, 0), high)


def _bits(*args: Range) -> int:
    return max(x.bit_length() for arg in args for x in (arg.low, ~arg.low, arg.high, ~arg.high) if x >= 0)


def _bitand(a: Range, b: Range) -> Range:
    """Not above either argument that can't be negative, and not negative if one can't be."""
    ceilings = [x.high for x in (a, b) if x.low >= 0]
    if ceilings:
        return Range(0, min(ceilings))
    width = _bits(a, b)
    return Range(-(1 << width), max(a.high, b.high))


def _bitor(a: Range, b: Range) -> Range:
    width = _bits(a, b)
    if a.low >= 0 and b.low >= 0:
        return Range(max(a.low, b.low), (1 << width) - 1)
    return Range(-(1 << width), (1 << width) - 1)


def _bitxor(a: Range, b: Range) -> Range:
    width = _bits(a, b)
    return Range(0 if a.low >= 0 and b.low >= 0 else -(1 << width), (1 << width) - 1)


def _counts(count: Range) -> list[int]:
    """The ends of the counts that shift; the others give 0 or the sign."""
    inside = Range(max(count.low, 0), min(count.high, 63))
    return [inside.low, inside.high] if inside.low <= inside.high else []


def _shl(a: Range, count: Range) -> Range:
    shifted = [x << y for x, y in product(a, _counts(count))]
    return _hull(shifted + [0] * (count.low < 0 or count.high > 63))


def _shr(a: Range, count: Range) -> Range:
    outside = [x >> 63 for x in a] if count.low < 0 or count.high > 63 else []
    return _hull([x >> y for x, y in product(a, _counts(count))] + outside)


def _abs(a: Range) -> Range:
    low = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high))
    return Range(low, max(-a.low, a.high))


_TRANSFER: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: Range(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: Range(a.low - b.high, a.high - b.low),
    "mul": lambda a, b: _corners(lambda x, y: x * y, a, b),
    "neg": lambda a: Range(-a.high, -a.low),
    "abs": _abs,
    "min": lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)),
    "max": lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)),
    "floordiv": _floordiv,
    "mod": _mod,
    "bitand": _bitand,
    "bitor": _bitor,
    "bitxor": _bitxor,
    "bitnot": lambda a: Range(~a.high, ~a.low),
    "shl": _shl,
    "shr": _shr,
    "floor": lambda: INT64,
    "select": Range.join,
}
