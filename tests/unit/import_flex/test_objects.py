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


FIELDS = """
import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

class Step(NamedTuple):
    row: int
    column: int = 3

@dataclass(frozen=True)
class Window:
    size: int
    kind: ClassVar[str] = "near"
    sinks: int = field(default=4)
    names: list = field(default_factory=list)
    causal: bool = True

    def __post_init__(self):
        self.half = self.size // 2

    def mask(self, b, h, q_idx, kv_idx):
        if self.causal:
            return q_idx - kv_idx < self.half
        return kv_idx < self.sinks

@dataclasses.dataclass
class Wider(Window):
    more: int = 7

WIDER = Wider(8, more=9)

def wide(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < WIDER.more

def near(step):
    return lambda b, h, q_idx, kv_idx: q_idx - kv_idx < step.row + step.column
"""

OBJECTS = [
    ("near(Step(2))", ["const row: int = 2", "const column: int = 3"]),
    ("near(Step(column=5, row=1))", ["const row: int = 1", "const column: int = 5"]),
    ("Window(8).mask", ["const size: int = 8", "const half: int = size // 2", "keep if q_idx - kv_idx < half"]),
    ("Window(8, causal=False).mask", ["const sinks: int = 4", "keep if kv_idx < sinks"]),
    ("Window(8, 2, causal=False).mask", ["const sinks: int = 2", "keep if kv_idx < sinks"]),
    ("wide", ["input WIDER_more: i32"]),  # fields of another class come first: not followed
]


@pytest.mark.parametrize(("target", "expected"), OBJECTS)
def test_objects_made_by_their_fields(lines, target: str, expected: list[str]) -> None:  # noqa: F811
    assert set(expected) <= set(lines(FIELDS, target))
