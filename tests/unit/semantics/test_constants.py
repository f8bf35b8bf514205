from __future__ import annotations

from typing import Any

import pytest

from attncc.semantics.constants import in_range
from tests.loaded import codes, program, variant


@pytest.mark.parametrize(
    ("declaration", "value"),
    [
        ("x: int = 3", 3),
        ("x: int = 2 * 3 + 7 % 4", 9),
        ("x: int = floor(2.9)", 2),
        ("x: int = 1 << 40", 1 << 40),
        ("x: int = 5 if 2 > 3 else 6", 6),
        ("x: float = 3", 3.0),
        ("x: float = -0.5", -0.5),
        ("x: float = exp2(-3)", 0.125),
        ("x: bool = 3 > 2 and not false", True),
        ("x: int = sum(i for i in range(5))", 10),
    ],
)
def test_values(declaration: str, value: int | float | bool) -> None:
    (const,) = variant(f"const {declaration}").consts
    assert const == ("x", value)
    assert type(const[1]) is type(value)


def test_consts_of_consts() -> None:
    result = variant("const width: int = 8\nconst twice: int = 2 * width\nkeep if kv_idx < twice", width=5)
    assert result.consts == (("width", 5), ("twice", 10))
    assert result.keeps[0].condition.children[1].value == 10


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", 5, 5),
        ("float", 5, 5.0),
        ("float", 0.25, 0.25),
        ("bool", False, False),
        ("int", 2.0, "A208"),
        ("int", True, "A208"),
        ("float", True, "A208"),
        ("bool", 1, "A208"),
        ("int", 2**63, "A209"),
        ("float", 1e39, "A209"),
        ("float", float("nan"), "A209"),
    ],
)
def test_defines(kind: str, value: Any, expected: Any) -> None:
    original = {"int": "1", "float": "1.5", "bool": "true"}[kind]
    lines = f"const x: {kind} = {original}"
    if isinstance(expected, str):
        assert codes(lines, x=value) == [expected]
    else:
        ((_, replaced),) = variant(lines, x=value).consts
        assert replaced == expected
        assert type(replaced) is type(expected)


def test_a_define_for_each_variant_that_has_the_const() -> None:
    text = "variant a {\nconst n: int = 1\n}\nvariant b {\nconst n: int = 2\n}\nvariant c {\n}"
    assert [item.consts for item in program(text, n=7).variants] == [(("n", 7),), (("n", 7),), ()]


def test_a_define_of_no_const() -> None:
    assert codes("input n: i32\nlet m = n\nkeep if kv_idx < m", n=3, m=4) == ["A114", "A114"]


@pytest.mark.parametrize("count", ["kv_len", "n", "q_idx + 1", "table[0]"])
def test_what_is_not_known_when_built(count: str) -> None:
    declared = "input n: i32\ninput table: i32[_]\nkeep if table[0] < n\n"
    assert codes(f"{declared}keep if any(i == kv_idx for i in range({count}))") == ["A211"]
    assert codes(f"{declared}const x: int = {count}\nkeep if kv_idx < x") == ["A211"]


@pytest.mark.parametrize(("count", "code"), [("65", "A212"), ("-1", "A212"), ("2.0", "A212"), ("true", "A212")])
def test_counts_of_loops(count: str, code: str) -> None:
    assert codes(f"keep if any(i == kv_idx for i in range({count}))") == [code]


@pytest.mark.parametrize(
    ("length", "good"), [("1", True), ("(1 << 31) - 1", True), ("0", False), ("-3", False), ("1 << 31", False)]
)
def test_lengths_of_axes(length: str, good: bool) -> None:
    assert codes(f"input table: f32[{length}]\nscore = score + table[0]") == ([] if good else ["A213"])


def test_ranges() -> None:
    assert in_range(2**63 - 1) and in_range(-(2**63)) and not in_range(2**63)
    assert in_range(3.4e38) and not in_range(3.5e38) and not in_range(float("inf"))
