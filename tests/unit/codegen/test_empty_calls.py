from __future__ import annotations

import pytest

from attncc.codegen.empty_calls import without_empty_calls

NOTHING = "__device__ __forceinline__ void nothing(int) {}\n"
NOTHING += "__device__ __forceinline__ bool is_even(int y) { return y % 2 == 0; }\n"
NOTHING += "__device__ __forceinline__ bool changes(int& y) { return y = 1; }\n"
BODY = "__device__ __forceinline__ void work(X x) {{\n{}    x.done = 1;\n}}\n"


def left(statements: str, definitions: str = NOTHING) -> str:
    """What stays of statements in a function."""
    text = without_empty_calls(definitions + BODY.format(statements))
    start = text.index("work(X x) {\n") + len("work(X x) {\n")
    return text[start : text.index("    x.done")]


@pytest.mark.parametrize(
    "statement",
    [
        "    nothing(1);\n",
        "    x.nothing(y[2] + z);\n",
        "    X::nothing(1);\n",
        "    nothing<A, 2>(1);\n",
        "    nothing(\n        1);\n",
        "    for (int i = 0; i < 2; ++i) nothing(i);\n",
        "#pragma unroll\n    for (int i = 0; i < 2; ++i) nothing(i);\n",
        "    if ((y + 1) % 2 == 0) nothing(1);\n",
        "    if (y && is_even(y)) nothing(1);\n",
    ],
)
def test_calls_of_what_does_nothing_go(statement: str) -> None:
    assert left(statement) == ""
    assert left(f"    f();\n    // Why.\n{statement}") == "    f();\n    // Why.\n"


@pytest.mark.parametrize(
    "statement",
    [
        "    if (f(y)) nothing(1);\n",
        "    if (y++) nothing(1);\n",
        "    if (changes(y)) nothing(1);\n",
        "    if (y) nothing(1);\n    else\n        f();\n",
        "    if (y)\n        nothing(1);\n",
        "    if (y)\n        f();\n    else\n        nothing(1);\n",
        "    nothing(f(1));\n",
        "    nothing(++y);\n",
        "    nothing(y = 1);\n",
        "    f(nothing(1));\n",
        "    auto nothing = [&](int) { x.y = 1; };\n    nothing(1);\n",
    ],
)
def test_others_stay(statement: str) -> None:
    assert left(statement) == statement


def test_a_function_that_does_something_elsewhere_is_called() -> None:
    both = "struct A {\n    __device__ __forceinline__ void f(int) {}\n};\n"
    both += "struct B {\n    __device__ __forceinline__ void f(int x) { g(x); }\n};\n"
    assert left("    x.f(1);\n    A::f(1);\n    B::f(1);\n", both) == "    x.f(1);\n    B::f(1);\n"


def test_what_becomes_empty_goes_too() -> None:
    outer = f"{NOTHING}__device__ __forceinline__ void outer(int x) {{\n    nothing(x);\n}}\n"
    assert left("    outer(1);\n", outer) == ""
