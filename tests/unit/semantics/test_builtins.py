from attncc import ir
from attncc.operators import OPERATORS
from attncc.semantics import builtins
from attncc.syntax.grammar import keywords


def test_the_tables_agree_with_the_ir() -> None:
    assert {name: value.type for name, value in builtins.VALUES.items()} == ir.SYMBOLS
    assert tuple(builtins.TAGS) == ir.AXIS_TAGS
    assert tuple(builtins.DTYPES) == ir.DTYPES


def test_every_function_of_an_operator_is_called_by_its_name() -> None:
    assert {name for name, item in OPERATORS.items() if item.function} | {"clamp"} == set(builtins.FUNCTIONS)
    assert [name for name, item in builtins.FUNCTIONS.items() if item.operator is None] == ["clamp"]


def test_no_name_has_two_meanings() -> None:
    tables = [builtins.VALUES, builtins.FUNCTIONS, builtins.TAGS, builtins.DTYPES, builtins.REDUCTIONS]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))
    assert set(builtins.VALUES) & keywords() == {"score", "scale"}
    assert set(builtins.REDUCTIONS) <= keywords()


def test_axes_are_indexed_by_what_counts_something() -> None:
    indices = {name for tag in builtins.TAGS.values() for name in tag.indexed_by}
    assert indices == {name for name, value in builtins.VALUES.items() if value.counts}


def test_hints_lead_somewhere() -> None:
    """Names from elsewhere aren't names of the language."""
    assert not set(builtins.FOREIGN_VALUES) & (set(builtins.VALUES) | set(builtins.FUNCTIONS))
