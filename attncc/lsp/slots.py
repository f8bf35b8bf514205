"""What may stand at a place, by what stands before it in its statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lark import Token

_ENDS_VALUE = ("NAME", "INT", "FLOAT", "RPAR", "RSQB", "TRUE", "FALSE", "SCORE", "SCALE")

# A slot is one of: item, statement, knob (where something new begins); name (one that is given here), library, variant,
# for, pass, on, target, lengths, type, dtype, axis, property, normalizer, input, if, in, range, setting, operator,
# operand, nothing.


def slot(before: Sequence[Token]) -> str:
    """The slot behind these tokens, the first of which begins a statement, a setting or an item."""
    rule = _RULES.get(before[0].type, _expression)
    return rule([token.type for token in before])


def complete(before: Sequence[Token]) -> bool:
    """Whether a statement or item may end behind these tokens."""
    types = [token.type for token in before]
    if _open(types, "LBRACE", "RBRACE") or _open(types, "LPAR", "RPAR") or _open(types, "LSQB", "RSQB"):
        return False
    if types[0] == "INPUT":
        return len(types) > 3
    return len(types) > 1 and slot(before) in ("operator", "nothing", "property")


def _open(types: list[str], opening: str, closing: str) -> bool:
    return types.count(opening) > types.count(closing)


def _import(types: list[str]) -> str:
    return "library" if len(types) == 1 else "nothing"


def _item(types: list[str]) -> str:
    """A mask, function or variant."""
    if "EQUAL" in types:
        return _expression(types)
    return "name" if len(types) == 1 or _open(types, "LPAR", "RPAR") else "nothing"


def _schedule(types: list[str]) -> str:
    if "ON" in types:
        behind = types[types.index("ON") + 1 :]
        return ("target", "for", "lengths", "nothing")[min(len(behind), 3)]
    return ("name", "for", "variant", "pass", "on")[min(len(types) - 1, 4)]


def _const(types: list[str]) -> str:
    if "EQUAL" in types or _open(types, "LSQB", "RSQB"):
        return _expression(types)
    return {"CONST": "name", "COLON": "type"}.get(types[-1], "nothing")


def _input(types: list[str]) -> str:
    if _open(types, "LSQB", "RSQB"):
        return "axis"
    return {"INPUT": "name", "COLON": "dtype"}.get(types[-1], "property" if len(types) > 3 else "nothing")


def _let(types: list[str]) -> str:
    return _expression(types) if "EQUAL" in types else "name" if len(types) == 1 else "nothing"


def _keep(types: list[str]) -> str:
    return "if" if len(types) == 1 else _expression(types)


def _score(types: list[str]) -> str:
    return "nothing" if len(types) == 1 else _expression(types)


def _scale(types: list[str]) -> str:
    return "operand" if len(types) == 1 else _expression(types)


def _sink(types: list[str]) -> str:
    return "input" if len(types) == 1 else "nothing"


def _normalize(types: list[str]) -> str:
    return "normalizer" if len(types) == 1 else "nothing"


def _setting(types: list[str]) -> str:
    if "EQUAL" not in types:
        return "nothing"
    return "setting" if types[-1] in ("EQUAL", "LBRACE", "COMMA") else "nothing"


def _expression(types: list[str]) -> str:
    if types[-1] in ("FOR", "IN"):
        return "name" if types[-1] == "FOR" else "range"
    if types[-2:] == ["FOR", "NAME"]:
        return "in"
    return "operator" if types[-1] in _ENDS_VALUE else "operand"


_RULES: dict[str, Callable[[list[str]], str]] = {
    "IMPORT": _import, "MASK": _item, "FN": _item, "VARIANT": _item, "SCHEDULE": _schedule, "CONST": _const,
    "INPUT": _input, "LET": _let, "KEEP": _keep, "SCORE": _score, "SCALE": _scale, "NAME": _setting,
    "SINK": _sink, "NORMALIZE": _normalize,
}  # fmt: skip
