"""Types of terms, and the guess of what captured tensors hold, from how they are used.

torch converts bools and ints where `.attn` doesn't, so every operator needs to know what its operands are. A captured
tensor's dtype is seldom written beside the mod: it follows from its partner in a comparison, from being an index, from
being joined with a bool. What nothing tells is an int in a mask, a float in a score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ..ir import Type
from ..operators import FLOAT_FUNCTIONS, OPERATORS, WHOLE_FUNCTIONS
from .terms import Apply, Captured, Compare, Element, Named, Number, Reduce, Score, Symbol, Term, Variable, walk

INT, FLOAT, BOOL = Type.INT, Type.FLOAT, Type.BOOL

OF_DTYPE = {"bool": BOOL, "i32": INT, "i64": INT, "f16": FLOAT, "bf16": FLOAT, "f32": FLOAT}

# Functions of one int or float, which keep its type.
_ONE_NUMBER = tuple(name for name, item in OPERATORS.items() if item.function and item.arity == 1 and item.on_ints)
# `+` and `*` of bools are bools
_ALWAYS_NUMBERS = frozenset({"sub", "floordiv", "truncdiv", "mod", "neg", "pow", *_ONE_NUMBER, *WHOLE_FUNCTIONS})
_OF_ONE = frozenset({"neg", "invert", *_ONE_NUMBER, *WHOLE_FUNCTIONS})
_BITS = frozenset({"and", "or", "xor", "invert"})
_LOGICAL = frozenset({"logical_and", "logical_or", "logical_not", "py_and", "py_or", "py_not", "to_bool"})
_TRUTHS = frozenset({"py_and", "py_or", "py_not"})  # operands of these are bools, unless they are known to be numbers
_ALIKE = frozenset({"add", "sub", "min", "max", "clamp", "where", "and", "or", "xor", "floordiv", "truncdiv", "mod"})

_FIXED: dict[type[Term], Type] = {Symbol: INT, Variable: INT, Score: FLOAT, Compare: BOOL, Reduce: BOOL}


class Kinds:
    """The type of every term, once `infer` has run; `None` while a captured tensor's is open."""

    def __init__(self, declared: Mapping[Captured, Type]) -> None:
        self.captured: dict[Captured, Type] = dict(declared)
        self._of_named: dict[Named, Type | None] = {}  # since the last guess

    def of(self, term: Term) -> Type | None:
        match term:
            case Number():
                kind = {bool: BOOL, int: INT}.get(type(term.value), FLOAT)
            case Element():
                return self.captured.get(term.captured)
            case Named():
                if term not in self._of_named:
                    self._of_named[term] = self.of(term.value)
                return self._of_named[term]
            case Reduce(function="sum"):
                return self._sum(term.body)
            case Apply():
                return self._applied(term)
            case _:
                kind = _FIXED[type(term)]
        return kind

    def _applied(self, term: Apply) -> Type | None:
        op = term.op
        if op in FLOAT_FUNCTIONS or op in ("truediv", "to_float"):
            return FLOAT
        if op in _LOGICAL:
            return BOOL
        if op in ("shl", "shr", "to_int"):
            return INT
        if op == "to_like":
            return self.of(term.args[1])
        kinds = [self.of(arg) for arg in (term.args[1:] if op == "where" else term.args)]
        joined = _joined(kinds)
        return INT if joined is BOOL and op in _ALWAYS_NUMBERS else joined

    def _sum(self, body: Term) -> Type | None:
        kind = self.of(body)
        return INT if kind is BOOL else kind

    # ---------------------------------------------------------------- guesses

    def infer(self, keeps: Sequence[Term], scores: Sequence[Term]) -> None:
        """Settles every captured tensor that the lines read."""
        self._settle(keeps, scores)
        for roots, default in ((keeps, INT), (scores, FLOAT)):
            for term in walk(*roots):
                if isinstance(term, Compare):
                    self._open(term.operands, INT)
            self._settle(keeps, scores)
            for term in walk(*roots):
                if isinstance(term, Element) and term.captured not in self.captured:
                    self._ask(term, default)
                    self._settle(keeps, scores)

    def _open(self, operands: Sequence[Term], kind: Type) -> None:
        for operand in operands:
            if self.of(operand) is None:
                self._ask(operand, kind)

    def _settle(self, keeps: Sequence[Term], scores: Sequence[Term]) -> None:
        """Asks until nothing new comes of it."""
        before = -1
        while before < len(self.captured):
            before = len(self.captured)
            for keep in keeps:
                self._ask(keep, BOOL)
            for term in walk(*keeps, *scores):
                for asked, kind in self._demands(term):
                    self._ask(asked, kind)

    def _ask(self, term: Term, kind: Type) -> None:
        """A term should have this type: so should the captured tensors that alone make it up."""
        match term:
            case Element() if term.captured not in self.captured:
                self.captured[term.captured] = kind
                self._of_named.clear()
            case Named():
                self._ask(term.value, kind)
            case Apply(op=op) if op in _OF_ONE:
                self._ask(term.args[0], kind)
            case Apply(op="where"):
                self._open(term.args[1:], kind)
            case Apply(op="mul"):
                self._open(term.args, kind)
            case Apply(op=op) if op in _ALIKE:
                among_ints = any(self.of(arg) is INT and not _is_literal_int(arg) for arg in term.args)
                self._open(term.args, INT if among_ints else kind)

    def _demands(self, term: Term) -> Iterator[tuple[Term, Type]]:
        """What a node asks of the terms in it."""
        match term:
            case Element():
                yield from ((index, INT) for index in term.indices)
            case Compare():
                for pair in pairwise(term.operands):
                    yield from self._partners(pair, BOOL)
            case Reduce() if term.function != "sum":
                yield term.body, BOOL
            case Apply(op="where"):
                yield term.args[0], BOOL
                yield from self._partners(term.args[1:], BOOL)
            case Apply(op=op) if op in _TRUTHS:
                yield from ((arg, BOOL) for arg in term.args)
            case Apply(op=op) if op in FLOAT_FUNCTIONS:
                yield term.args[0], FLOAT
            case Apply(op=op) if op in _BITS:
                yield from self._partners(term.args, BOOL)
            case Apply(op=op) if op in _ALIKE:
                yield from self._partners(term.args)
            case Apply(op="mul") if FLOAT in map(self.of, term.args):
                yield from ((arg, FLOAT) for arg in term.args)

    def _partners(self, terms: Sequence[Term], *also: Type) -> Iterator[tuple[Term, Type]]:
        """Numbers that meet are of one type, and so may bools be; a plain int beside them doesn't tell which."""
        kinds = [self.of(term) for term in terms if not _is_literal_int(term)]
        told = next((kind for kind in (FLOAT, *also, INT) if kind in kinds), None)
        if told is not None:
            yield from ((term, told) for term in terms)


def _is_literal_int(term: Term) -> bool:
    return isinstance(term, Number) and type(term.value) is int


def _joined(kinds: Sequence[Type | None]) -> Type | None:
    """What torch makes of operands of these types."""
    if FLOAT in kinds:
        return FLOAT
    if None in kinds:
        return None
    return INT if INT in kinds else BOOL
