"""Operators on numbers, as `.attn` writes them: `rule(term, kind, args)`, where no argument is a bool any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Type
from ..operators import FLOAT_FUNCTIONS, OPERATORS, WHOLE_FUNCTIONS
from . import nodes
from .bounds import least
from .fold import known
from .nodes import Written, as_float, as_int
from .terms import FUNCTIONS, Apply, Term, is_number

INT, FLOAT = Type.INT, Type.FLOAT
Rule = Callable[[Apply, Type, Sequence[Written]], Written | None]

_INFIX = {"add": "+", "sub": "-", "shl": "<<", "shr": ">>", "and": "&", "or": "|", "xor": "^"}
_PREFIX = {"neg": "-", "invert": "~"}
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
            return abs(known(term.args[1]) or 0) in (2, 3, 4)
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


def _power(term: Apply, kind: Type, args: Sequence[Written]) -> Written | None:
    """The powers that the language has: of 2, by a small int, roots; of a known positive number by exp and log."""
    base, exponent = args
    of, by = known(term.args[0]), known(term.args[1])
    if by is not None:
        return _known_power(by, kind, base)
    if of == 2 and kind is INT:
        return as_int(nodes.binary("<<", nodes.literal(1), exponent.node))
    if of == 2:
        return as_float(nodes.call("exp2", exponent.node))
    if of is not None and of > 0:
        return as_float(nodes.call("exp", nodes.binary("*", exponent.node, nodes.call("log", base.node))))
    return None


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
}
