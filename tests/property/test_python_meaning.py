"""Expressions mean what Python means by them: precedence, chained comparisons, floor division, shifts, conditionals."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attncc.evaluate import Environment, evaluate
from tests.loaded import variant

NAMES = ("q_idx", "kv_idx", "b")
POINTS = [(0, 0, 0), (5, 3, 1), (17, 40, 2), (6, 6, 3)]


def joined(operands: st.SearchStrategy[str], operators: tuple[str, ...], most: int = 3) -> st.SearchStrategy[str]:
    """Operands with operators between them and no parentheses: precedence decides."""
    pairs = st.lists(st.tuples(st.sampled_from(operators), operands), min_size=1, max_size=most - 1)
    return st.builds(lambda first, rest: " ".join([first, *(f"{op} {item}" for op, item in rest)]), operands, pairs)


def ints(depth: int) -> st.SearchStrategy[str]:
    atoms = st.sampled_from(NAMES) | st.integers(0, 9).map(str)
    if depth == 0:
        return atoms
    below = ints(depth - 1)
    return (
        atoms
        | joined(below, ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"))
        | st.builds("({})".format, below)
        | st.builds("-{}".format, atoms)
        | st.builds("~{}".format, atoms)
        | st.builds("({} if {} else {})".format, below, bools(depth - 1), below)
        | st.builds("{}({}, {})".format, st.sampled_from(("min", "max")), below, below)
        | st.builds("abs({})".format, below)
        | st.builds("sum(i * {} for i in range(3))".format, atoms)
    )


def bools(depth: int) -> st.SearchStrategy[str]:
    comparisons = joined(ints(max(depth - 1, 0)), ("<", "<=", ">", ">=", "==", "!="))
    if depth == 0:
        return comparisons
    below = bools(depth - 1)
    return (
        comparisons
        | joined(below, ("and", "or"))
        | st.builds("not {}".format, below)
        | st.builds("({}) != ({})".format, below, below)
        | st.builds("any({} == i for i in range(4))".format, ints(0))
    )


def python_says(text: str, values: dict[str, int]) -> bool:
    """Python's answer; an example that Python refuses, or that leaves 62 bits on the way, is not used."""
    try:
        checked = {name: Bounded(value) for name, value in values.items()}
        return bool(eval(text, {**checked, "min": min, "max": max, "abs": abs}))
    except (ZeroDivisionError, ValueError, OverflowError):
        assume(False)
        raise


class Bounded(int):
    """An int whose operators raise OverflowError where 64-bit ints might wrap; results stay Bounded."""


def _checked(name: str) -> None:
    plain = getattr(int, name)

    def operator(self: int, *args: int) -> object:
        if name in ("__lshift__", "__rlshift__") and any(abs(int(item)) > 64 for item in (*args, self)):
            raise OverflowError
        result = plain(self, *args)
        if isinstance(result, int) and abs(result) >= 2**62:
            raise OverflowError
        return Bounded(result) if isinstance(result, int) and not isinstance(result, bool) else result

    setattr(Bounded, name, operator)


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
    _checked(f"__{_name}__")
    _checked(f"__r{_name}__")
for _name in ("neg", "invert", "abs"):
    _checked(f"__{_name}__")


@settings(max_examples=120, deadline=None, derandomize=True)
@given(bools(2))
def test_bools(text: str) -> None:
    points = [dict(zip(NAMES, point, strict=True)) for point in POINTS]
    expected = [python_says(text, point) for point in points]
    condition = variant(f"keep if {text}").keeps[0].condition
    assert [bool(evaluate(condition, Environment(point))) for point in points] == expected, text
