from attncc import ir
from attncc.semantics import builtins
from attncc.syntax.grammar import keywords


def test_the_tables_agree_with_the_ir() -> None:
    assert {name: value.type for name, value in builtins.VALUES.items()} == ir.SYMBOLS
    assert tuple(builtins.TAGS) == ir.AXIS_TAGS
    assert tuple(builtins.DTYPES) == ir.DTYPES


def test_every_function_is_an_operator_or_made_of_some() -> None:
    made_of_others = {"clamp"}
    assert set(builtins.FUNCTIONS) - made_of_others <= set(ir.OPERATORS)
    one_argument = {name for name, item in builtins.FUNCTIONS.items() if item.most == 1}
    assert all(ir.OPERATORS[name] == 1 for name in one_argument)


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
    assert not set(builtins.FOREIGN_FUNCTIONS) & set(builtins.FUNCTIONS)
