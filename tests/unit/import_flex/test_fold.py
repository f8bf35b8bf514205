from __future__ import annotations

import ast
import math

import pytest

from attncc.diagnostics import Diagnostics
from attncc.import_flex.fold import known, truth
from attncc.import_flex.machine import Machine
from attncc.import_flex.rules import RULES
from attncc.import_flex.terms import Term
from attncc.import_flex.text import parse_python
from attncc.import_flex.values import Scope
from attncc.source import SourceFile


def term(expression: str) -> Term:
    text = parse_python(SourceFile("mods.py", expression), expression=True)
    assert isinstance(text.tree, ast.Expression)
    machine = Machine(Diagnostics(), RULES)
    with machine.mode(inside=True):
        value = machine.evaluate(text.tree.body, Scope(text))
    assert isinstance(value, Term), value
    return value


@pytest.mark.parametrize(
    "expression",
    ["1 + 2 * 3", "-7 // 2", "-7 % 3", "7 / 2", "2 ** 10", "2 ** -1", "1 << 5", "5 & 3 | 8 ^ 1", "3 < 5 <= 5",
     "True & False", "abs(-3)", "max(1, 5, 2)", "math.sqrt(2)", "math.exp(-1.5)", "math.tanh(0.3)", "int(-2.7)",
     "float(3)", "bool(2)", "math.floor(-2.5)", "math.ceil(2.1)", "not 3", "1 if 2 > 3 else 4", "len([1, 2, 3])",
     "math.log(8, 2)", "0x1F", "-math.inf", "sum([1, 2, 3])", "min([4, 2])",
     "[1, 2, 3][-1]", "divmod(7, 3)[1]", "math.pi"],
)  # fmt: skip
def test_known_as_python_computes(expression: str) -> None:
    expected = eval(expression, {"math": math})
    assert known(term(expression)) == pytest.approx(expected)
    assert truth(term(expression)) is bool(expected)


def test_of_bools_as_torch_computes() -> None:
    assert known(term("~True")) is False
    assert known(term("torch.logical_not(3)")) is False


@pytest.mark.parametrize(
    "expression", ["limit + 1", "1 // 0", "10 ** 10 ** 5", "1 << 10 ** 9", "math.log(-1)", "(-8) ** 0.5"]
)
def test_not_known(expression: str) -> None:
    assert known(term(expression)) is None
