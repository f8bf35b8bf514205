"""Operators on numbers, as `.attn` writes them: `rule(term, kind, args)`, where no argument is a bool any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..ir import Type
from ..operators import FLOAT_FUNCTIONS, OPERATORS, WHOLE_FUNCTIONS
from ..syntax import ast
from . import nodes
from .bounds import least
from .fold import known
from .nodes import Written, as_float, as_int
from .terms import FUNCTIONS, Apply, Term, is_number

INT, FLOAT = Type.INT, Type.FLOAT
Rule = Callable[[Apply, Type, Sequence[Written]], Written | None]

_INFIX = {"add": "+", "sub": "-", "shl": "<<", "shr": ">>", "and": "&", "or": "|", "xor": "^"}
_PREFIX = {"neg": "-", "invert": "~"}
_ONE_ZERO = as_int(nodes.literal(1)), as_int(nodes.literal(0))
_KEEP_TYPE = (*(name for name in FUNCTIONS if not OPERATORS[name].is_float_function), "clamp")

ON_BITS = frozenset({"and", "or", "xor", "invert", "shl", "shr"})


def arithmetic(term: Apply, kind: Type, args: Sequence[Written]) -> Written | None:
    """The operator of a term on its arguments; `kind` is its type in torch. None for a power that `.attn` lacks."""
    return _RULES[term.op](term, kind, args)


def truncated(term: Term, value: Written) -> Written:
    """A float towards 0, as an int."""
    if value.written is INT:
        return as_int(value.node)
    down = as_int(nodes.call("floor", value.node))
    if least(term) >= 0:
        return down
    up = as_int(nodes.unary("-", nodes.call("floor", nodes.unary("-", value.node))))
    return nodes.choose(nodes.compare((">=",), value.node, nodes.literal(0)), down, up)


def writes_twice(term: Apply, kind: Type | None) -> bool:
    """Whether operands are written more than once, so that a long one needs a name; `kind` is the first one's."""
    match term.op:
        case "to_int":
            return kind is FLOAT and least(term.args[0]) < 0
        case "mod":
            return FLOAT in (kind, None)
        case "pow":
            by = known(term.args[1])
            return abs(by) in (2, 3, 4) if by is not None else _has_factors(known(term.args[0]))
        case "truncdiv":
            return kind is not INT or min(map(least, term.args)) < 0
    return False


# -------------------------------------------------------------------- rules


def _infix(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    starts_at_zero = is_number(term.args[0], 0) or is_number(term.args[0], 0.0)
    if starts_at_zero and term.op in ("add", "or", "xor") and args[1].kind is kind:
        return args[1]  # a sum or union that a loop has begun with nothing
    node = nodes.binary(_INFIX[term.op], args[0].node, args[1].node)
    return Written(node, kind, nodes.widest(*(arg.written for arg in args)))


def _prefix(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    return Written(nodes.unary(_PREFIX[term.op], args[0].node), kind, args[0].written)


def _product(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    """Floats of torch's that are ints here could grow beyond 64 bits, so they are made floats."""
    left = args[0].node
    both = nodes.widest(*(arg.written for arg in args))
    if kind is FLOAT and both is INT:
        left, both = nodes.binary("*", nodes.literal(1.0), left), FLOAT
    return Written(nodes.binary("*", left, args[1].node), kind, both)


def _quotient(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    return as_float(nodes.binary("/", args[0].node, args[1].node))


def _whole_quotient(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    left, right = (arg.node for arg in args)
    if kind is INT:
        return as_int(nodes.binary("//", left, right))
    return Written(nodes.call("floor", nodes.binary("/", left, right)), FLOAT, INT)


def _remainder(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    left, right = (arg.node for arg in args)
    if kind is INT:
        return as_int(nodes.binary("%", left, right))
    whole = nodes.call("floor", nodes.binary("/", left, right))
    return as_float(nodes.binary("-", left, nodes.binary("*", whole, right)))


def _whole(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    """A float of torch's that is an int here."""
    (value,) = args
    return Written(value.node if value.written is INT else nodes.call(term.op, value.node), kind, INT)


def _same_type(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    node = nodes.call(term.op, *(arg.node for arg in args))
    return Written(node, kind, nodes.widest(*(arg.written for arg in args)))


def _float_function(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    return as_float(nodes.call(term.op, args[0].node))


def _truncated_quotient(term: Apply, kind: Type, args: Sequence[Written]) -> Written:
    """A quotient without its fraction; of ints it is exact, at any size."""
    left, right = (arg.node for arg in args)
    zero = nodes.literal(0)
    if kind is FLOAT:
        quotient = nodes.binary("/", left, right)
        down, up = (nodes.call("floor", item) for item in (quotient, nodes.unary("-", quotient)))
        chosen = nodes.choose(nodes.compare((">=",), quotient, zero), as_int(down), as_int(nodes.unary("-", up)))
        return Written(chosen.node, FLOAT, INT)
    if min(map(least, term.args)) >= 0:
        return as_int(nodes.binary("//", left, right))
    by = known(term.args[1])
    divisor = nodes.call("abs", right) if by is None else nodes.literal(abs(by))
    size = nodes.binary("//", nodes.call("abs", left), divisor)
    apart = nodes.compare(("<",) if by is None or by > 0 else (">=",), left, zero)
    if by is None:
        apart = nodes.compare(("!=",), apart, nodes.compare(("<",), right, zero))
    return nodes.choose(apart, as_int(nodes.unary("-", size)), as_int(size))


def _power(term: Apply, kind: Type, args: Sequence[Written]) -> Written | None:
    """The powers that the language has: by a small int, roots; of a known number by shifts, factors, exp and log."""
    base, exponent = args
    of, by = known(term.args[0]), known(term.args[1])
    if by is not None:
        return _known_power(by, kind, base)
    if of is None:
        return None
    if kind is INT:
        return _int_power(int(of), exponent, least(term.args[1]))
    if of <= 0:
        return None
    if (twos := _exponent_of_two(of)) is not None:
        return as_float(nodes.call("exp2", _times(twos, exponent.node)))
    return as_float(nodes.call("exp", nodes.binary("*", exponent.node, nodes.call("log", base.node))))


def _int_power(of: int, exponent: Written, least_exponent: float) -> Written:
    """An int to the power of an int, as torch has it: an int, and 0 where the exponent is negative."""
    if of == 0:
        return nodes.choose(nodes.compare(("==",), exponent.node, nodes.literal(0)), *_ONE_ZERO)
    if (twos := _exponent_of_two(of)) is not None:
        return (
            as_int(nodes.literal(1))
            if twos == 0
            else as_int(nodes.binary("<<", nodes.literal(1), _times(twos, exponent.node)))
        )
    product: Written | None = None
    power, bit = of, 1
    while abs(power) < 2**63 and (product is None or power != 1):  # a factor for each bit of the exponent
        is_set = nodes.compare(("!=",), nodes.binary("&", exponent.node, nodes.literal(bit)), nodes.literal(0))
        factor = nodes.choose(is_set, as_int(_signed(power)), _ONE_ZERO[0])
        product = factor if product is None else as_int(nodes.binary("*", product.node, factor.node))
        power, bit = power * power, 2 * bit
    assert product is not None
    if of == -1 or least_exponent >= 0:
        return product
    return nodes.choose(nodes.compare((">=",), exponent.node, nodes.literal(0)), product, _ONE_ZERO[1])


def _has_factors(of: int | float | None) -> bool:
    """Whether a power of this number reads its exponent several times."""
    return isinstance(of, int) and abs(of) > 1 and _exponent_of_two(of) is None


def _exponent_of_two(of: float) -> int | None:
    """k where a number is 2 ** k."""
    mantissa, exponent = math.frexp(of)
    return exponent - 1 if mantissa == 0.5 else None


def _times(factor: int, node: ast.Expr) -> ast.Expr:
    if abs(factor) != 1:
        return nodes.binary("*", _signed(factor), node)
    return node if factor == 1 else nodes.unary("-", node)


def _signed(value: int) -> ast.Expr:
    return nodes.literal(value) if value >= 0 else nodes.unary("-", nodes.literal(-value))


def _known_power(by: int | float, kind: Type, base: Written) -> Written | None:
    value = base.node
    if abs(by) in (1, 2, 3, 4):
        for _ in range(int(abs(by)) - 1):
            value = nodes.binary("*", value, base.node)
        powered = Written(value, kind, base.written)
    elif abs(by) == 0.5:
        powered = as_float(nodes.call("sqrt", value))
    else:
        return None
    return powered if by > 0 else as_float(nodes.binary("/", nodes.literal(1), powered.node))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_INFIX, _infix),
    **dict.fromkeys(_PREFIX, _prefix),
    **dict.fromkeys(_KEEP_TYPE, _same_type),
    **dict.fromkeys(FLOAT_FUNCTIONS, _float_function),
    **dict.fromkeys(WHOLE_FUNCTIONS, _whole),
    "mul": _product,
    "truediv": _quotient,
    "floordiv": _whole_quotient,
    "mod": _remainder,
    "pow": _power,
    "truncdiv": _truncated_quotient,
}
