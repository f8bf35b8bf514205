"""Objects whose attributes something changes: what isn't followed is an input, never an older value."""

from __future__ import annotations

import pytest

from tests.unit.import_flex.snippets import lines  # noqa: F401

CLASS = """
from elsewhere import configure

class Window:
    size = 2

    def __init__(self, given, {arguments}):
        super().__init__()
        self.size = 3
        self.table = {{"a": 4}}
{change}

    def grow(self, by):
        self.size = self.size + by

    def mask(self, b, h, q_idx, kv_idx):
        return q_idx - kv_idx < {read}
"""

CHANGES = [
    ("pass", "self.size", ["const size: int = 3", "keep if q_idx - kv_idx < size"]),
    ("self.grow(4)", "self.size", ["const size: int = 3", "const by: int = 4", "const size_2: int = size + by"]),
    ("self.size += 1", "self.size", ["input size: i32"]),
    ("configure(self)", "self.size", ["input size: i32"]),
    ("if given: self.size = 5", "self.size", ["input size: i32"]),
    ("if given: self.grow(1)", "self.size", ["input size: i32"]),
    ("for i in given: self.size = i", "self.size", ["input size: i32"]),
    ("while given: self.size = 1", "self.size", ["input size: i32"]),
    ("pass", "self.table['a']", ["keep if q_idx - kv_idx < 4"]),
    ("self.table['a'] = given", "self.table['a']", ["input table_a: i32"]),
    ("self.table.update(given)", "self.table['a']", ["input table_a: i32"]),
    ("if given: self.table['a'] = 5", "self.table['a']", ["input table_a: i32"]),
]


@pytest.mark.parametrize(("change", "read", "expected"), CHANGES)
def test_what_changes_an_object(lines, change: str, read: str, expected: list[str]) -> None:  # noqa: F811
    python = CLASS.format(arguments="other=None", change=f"        {change}", read=read)
    found = lines(python, "Window(load()).mask")
    assert found[: len(expected)] == expected


def test_an_item_of_an_unknown_dict_is_one_input(lines) -> None:  # noqa: F811
    python = """
    def make(settings):
        def mod(b, h, q_idx, kv_idx):
            return (q_idx - kv_idx < settings["a"]) & (kv_idx - q_idx < settings["a"] + settings["b"])
        return mod
    """
    expected = ["input settings_a: i32", "input settings_b: i32", "keep if q_idx - kv_idx < settings_a"]
    assert lines(python, "make")[:3] == expected


def test_dicts_that_change_are_not_known(lines) -> None:  # noqa: F811
    python = """
    WIDTHS = {"a": 3}
    WIDTHS.update(load())
    def mod(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < WIDTHS["a"]
    """
    assert lines(python)[0].startswith("input")
