"""Terms as expressions of `.attn`, with the conversions written out that torch makes by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..diagnostics import Diagnostic, Diagnostics
from ..ir import Type
from ..semantics.constants import in_range
from ..source import Span
from ..syntax import ast
from . import nodes, operators
from .fold import known
from .kinds import BOOL, FLOAT, INT, Kinds
from .nodes import Written, as_bool, as_float, as_int
from .terms import Apply, Captured, Compare, Element, Named, Number, Reduce, Score, Symbol, Term, Variable, is_number

# Of bools alone; torch lets them be added and multiplied too.
_JOINED_BOOLS = {"and": "and", "or": "or", "mul": "and", "add": "or", "min": "and", "max": "or"}
_JOINED = {**_JOINED_BOOLS, "logical_and": "and", "logical_or": "or", "py_and": "and", "py_or": "or"}
_OF_BOOLS_ONLY = frozenset({*_JOINED_BOOLS, "xor", "invert"})
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_NEUTRAL = {"and": True, "or": False}
_ONE_ZERO = {INT: (as_int(nodes.literal(1)), as_int(nodes.literal(0))),
             FLOAT: (as_float(nodes.literal(1.0)), as_float(nodes.literal(0.0)))}  # fmt: skip

_CAST = "write x.to(torch.int32)"


@dataclass
class Writer:
    """Writes the terms of one variant. A term that can't be written goes to `found`, and something stands for it.

    `names` holds what consts, lets and loop variables are called, `types` the types of consts and lets in `.attn`;
    `scores` says how the score after so many lines is called where the writer stands.
    """

    kinds: Kinds
    inputs: Mapping[Captured, str]
    found: Diagnostics
    inlined: frozenset[Named] = frozenset()
    names: dict[Named | Variable, str] = field(default_factory=dict)
    types: dict[Named, Type] = field(default_factory=dict)
    scores: dict[int, str] = field(default_factory=dict)

    def condition(self, term: Term) -> ast.Expr:
        """A term as a bool: a number is compared with 0."""
        written = self.write(term)
        return written.node if written.kind is BOOL else nodes.compare(("!=",), written.node, nodes.literal(0))

    def number(self, term: Term, kind: Type = INT) -> Written:
        """A term as a number: a bool is 1 or 0, of this type."""
        return _as_number(self.write(term), kind)

    def write(self, term: Term) -> Written:
        return _RULES[type(term)](self, term)

    # ---------------------------------------------------------------- atoms

    def _number(self, term: Number) -> Written:
        value = term.value
        if isinstance(value, bool):
            return as_bool(nodes.boolean(value))
        if not in_range(value):
            help = _NO_INFINITY if isinstance(value, float) else "ints go up to 2**63 - 1"
            self._error(f"the number {value} has no place here", term.span, help)
            return as_float(nodes.literal(0.0))
        size = nodes.literal(abs(value), term.text)
        node = nodes.unary("-", size) if math.copysign(1, value) < 0 else size
        return as_int(node) if isinstance(value, int) else as_float(node)

    def _symbol(self, term: Symbol) -> Written:
        return as_int(nodes.name(term.name))

    def _variable(self, term: Variable) -> Written:
        return as_int(nodes.name(self.names[term]))

    def _score(self, term: Score) -> Written:
        return as_float(nodes.name(self.scores[term.version]))

    def _named(self, term: Named) -> Written:
        if term in self.inlined:
            return self.write(term.value)
        return Written(nodes.name(self.names[term]), self._kind(term), self.types[term])

    def _element(self, term: Element) -> Written:
        kind, of = self._kind(term), self.inputs[term.captured]
        indices = tuple(self._index(index, term) for index in term.indices)
        return Written(nodes.index(of, indices) if indices else nodes.name(of), kind, kind)

    def _index(self, term: Term, of: Element) -> ast.Expr:
        written = self.write(term)
        if written.kind is not INT:
            self._error(f"an index must be an int, and this is a {written.kind.value}", _place(term, of), _CAST)
        return written.node

    # ---------------------------------------------------------------- comparisons and loops

    def _compare(self, term: Compare) -> Written:
        if (told := self._told_by(term)) is not None:
            return told
        sides = [self.write(operand) for operand in term.operands]
        if not all(side.kind is BOOL for side in sides) or any(op not in ("==", "!=") for op in term.ops):
            sides = [_as_number(side) for side in sides]
        return as_bool(nodes.compare(term.ops, *(side.node for side in sides)))

    def _told_by(self, term: Compare) -> Written | None:
        """A bool compared with 0, 1, False or True: that bool or its negation; None for other comparisons."""
        left, right = term.operands[0], term.operands[-1]
        is_flag = isinstance(right, Number) and right.value in (0, 1) and self._kind(left) is BOOL
        if len(term.ops) > 1 or term.ops[0] not in ("==", "!=") or not is_flag or not isinstance(right, Number):
            return None
        return self.write(left) if bool(right.value) == (term.ops[0] == "==") else self._negation(left)

    def _reduce(self, term: Reduce) -> Written:
        body = self.number(term.body) if term.function == "sum" else as_bool(self.condition(term.body))
        count = self.write(term.count).node
        node = nodes.reduction(term.function, body.node, self.names[term.variable], count)
        return Written(node, body.kind, body.written)

    # ---------------------------------------------------------------- operators

    def _apply(self, term: Apply) -> Written:
        op = term.op
        of_bools = op not in _OF_BOOLS_ONLY or self._kind(term) is BOOL
        if of_bools and (rule := _LOGIC.get(op)):
            return rule(self, term)
        if op in operators.ON_BITS:
            for arg in term.args:
                if self._kind(arg) is FLOAT:
                    self._error("this works on bits, and floats have none", _place(arg, term), _CAST)
        args = [self.number(arg) for arg in term.args]
        written = operators.arithmetic(term, self._kind(term), args)
        value = known(term) if written is None else None
        if value is not None:
            return self._number(Number(value=value, span=term.span))
        if written is None:
            help = "write x * x, torch.sqrt(x), 2 ** y, or torch.exp(y * torch.log(x)) for x > 0"
            self._error("this power can't be taken", term.span, help)
            return args[0]
        return written

    def _join(self, term: Apply) -> Written:
        """A chain of `and` or `or`, without parentheses and without `true` or `false` that change nothing."""
        word = _JOINED[term.op]
        conditions = [self.condition(arg) for arg in self._chain(word, term) if not is_number(arg, _NEUTRAL[word])]
        if not conditions:
            return as_bool(nodes.boolean(_NEUTRAL[word]))
        joined = conditions[0]
        for condition in conditions[1:]:
            joined = nodes.binary(word, joined, condition)
        return as_bool(joined)

    def _chain(self, word: str, term: Term) -> list[Term]:
        while isinstance(term, Named) and term in self.inlined:
            term = term.value
        if not (isinstance(term, Apply) and _JOINED.get(term.op) == word and self._kind(term) is BOOL):
            return [term]
        if term.op in ("py_and", "py_or"):
            self._refuse_numbers(term)
        return [part for arg in term.args for part in self._chain(word, arg)]

    def _refuse_numbers(self, term: Apply) -> None:
        """Python's `and` and `or` give one of their operands, which for numbers isn't a bool."""
        for arg in term.args:
            if self._kind(arg) is not BOOL:
                self._error("`and` and `or` join bools, and this is a number", _place(arg, term), "compare it: x != 0")

    def _differ(self, term: Apply) -> Written:
        return as_bool(nodes.compare(("!=",), *(self.condition(arg) for arg in term.args)))

    def _not(self, term: Apply) -> Written:
        return self._negation(term.args[0])

    def _negation(self, term: Term) -> Written:
        """`not x`; of a comparison of ints the opposite one (not of floats: both are false of NaN)."""
        while isinstance(term, Named) and term in self.inlined:
            term = term.value
        if isinstance(term, Compare) and len(term.ops) == 1:
            (op,) = term.ops
            if op in ("==", "!=") or all(self._kind(operand) is INT for operand in term.operands):
                return self._compare(replace(term, ops=(_OPPOSITE[op],)))
        return as_bool(nodes.unary("not", self.condition(term)))

    def _where(self, term: Apply) -> Written:
        condition = self.condition(term.args[0])
        then, otherwise = (self.write(arg) for arg in term.args[1:])
        if not then.kind is otherwise.kind is BOOL:
            then, otherwise = _as_number(then), _as_number(otherwise)
        return nodes.choose(condition, then, otherwise)

    def _cast(self, term: Apply) -> Written:
        value, kind = term.args[0], self._kind(term)
        if kind is BOOL:
            return as_bool(self.condition(value))
        number = self.number(value, kind)
        if kind is INT and number.kind is FLOAT:
            return operators.truncated(value, number)
        return Written(number.node, kind, number.written)

    def _kind(self, term: Term) -> Type:
        kind = self.kinds.of(term)
        assert kind is not None, term
        return kind

    def _error(self, message: str, span: Span, help: str) -> None:
        if not any(item.span == span and item.message == message for item in self.found.items):
            self.found.add(Diagnostic("A705", message, span, help=help))


_NO_INFINITY = "to leave a pair out, let the mod return torch.where(keep, score, -inf), or write a mask_mod"


def _place(term: Term, around: Term) -> Span:
    """Where to point at: what has no parts stands where it was defined, so at what holds it."""
    return term.span if term.children else around.span


def _as_number(value: Written, kind: Type = INT) -> Written:
    return nodes.choose(value.node, *_ONE_ZERO[kind]) if value.kind is BOOL else value


_LOGIC: dict[str, Callable[[Writer, Apply], Written]] = {
    **dict.fromkeys(_JOINED, Writer._join),
    **dict.fromkeys(("invert", "logical_not", "py_not"), Writer._not),
    **dict.fromkeys(("to_int", "to_float", "to_bool", "to_like"), Writer._cast),
    "xor": Writer._differ,
    "where": Writer._where,
}

_RULES: dict[type[Term], Callable[[Writer, Any], Written]] = {
    Number: Writer._number,
    Symbol: Writer._symbol,
    Variable: Writer._variable,
    Score: Writer._score,
    Named: Writer._named,
    Element: Writer._element,
    Compare: Writer._compare,
    Reduce: Writer._reduce,
    Apply: Writer._apply,
}
