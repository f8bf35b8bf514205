from __future__ import annotations

import pytest

from attncc.codegen.thin_layers import without_thin_layers

LEAVES = """\
__device__ __forceinline__ int wide(int a, int b) {
    const int c = a + b;
    return c;
}
template <class Tile>
__device__ __forceinline__ int tile_rows(int a) {
    int rows = Tile::ROWS;
    return rows + a;
}
struct Inner {
    __device__ __forceinline__ void go(int (&x)[2]) const {
        x[0] = 1;
        x[1] = 2;
    }
};
"""
WORK = "__device__ __forceinline__ void work(X x) {{\n    {}\n    x.done = 1;\n}}\n"


def left(thin: str, statement: str) -> str:
    """What becomes of a statement in a function."""
    text = without_thin_layers(f"{LEAVES}{thin}\n" + WORK.format(statement))
    start = text.index("work(X x) {\n    ") + len("work(X x) {\n    ")
    return text[start : text.index("\n    x.done")]


def function(head: str, body: str) -> str:
    return f"__device__ __forceinline__ {head} {{ {body} }}"


WIDE = function("int f(int a, int b)", "return wide(a, b);")
SHIFTED = function("int f(int, int a, int b)", "return wide(a, b);")
METHOD = f"struct A {{\n    {WIDE}\n}};"
SIBLING = "struct A {{\n    {}\n    {}\n}};".format(
    function("int f() const", "return h();"),
    function("int h() const", "int z = 1; return z;"),
)
TEMPLATE = "template <class T>\n" + function("int f(int a)", "return tile_rows<T>(a);")
OF_PARAMETER = function("void f(int, const Inner& i, Ints& x)", "i.go(x);")
WITH_DEFAULT = function("int f(int a, int b, int = 0)", "return wide(a, b);")
ONE = function("int one()", "return 1;")


@pytest.mark.parametrize(
    ("thin", "statement", "written"),
    [
        (WIDE, "x.y = f(g(1), 2);", "x.y = wide(g(1), 2);"),
        (SHIFTED, "x.y = f(x.z, 1, 2);", "x.y = wide(1, 2);"),
        (WITH_DEFAULT, "f(1, 2) + f(3, 4, 5);", "wide(1, 2) + wide(3, 4);"),
        (METHOD, "x.a.f(1, 2);", "wide(1, 2);"),
        (SIBLING, "x.a.f();", "x.a.h();"),
        (TEMPLATE, "f<KTile>(1);", "tile_rows<KTile>(1);"),
        (OF_PARAMETER, "f(1, x.inner, x.ints);", "x.inner.go(x.ints);"),
        (ONE, "const float y = x.one() * f(1);", "const float y = f(1);"),
        (ONE, "g(x.y * A::one());", "g(x.y);"),
    ],
)
def test_thin_layers_go(thin: str, statement: str, written: str) -> None:
    assert left(thin, statement) == written


@pytest.mark.parametrize(
    ("thin", "statement"),
    [
        (function("int f(unsigned a, int b)", "return wide(a, b);"), "f(1, 2);"),  # of another type
        (function("float f(int a, int b)", "return wide(a, b);"), "f(1, 2);"),
        (function("int f(int a, int b)", "return wide(b, a);"), "f(1, 2);"),  # in another order
        (function("int f(int a, int b)", "return wide(a + 1, b);"), "f(1, 2);"),  # more than a call
        (SHIFTED, "f(g(), 1, 2);"),  # an effect would go
        (WIDE, "auto f = [&](int a, int b) { return 1; };"),
        (f"{WIDE}\n{function('int f(int a, long b)', 'return 1;')}", "f(1, 2);"),  # which of the two?
        (TEMPLATE, "f(1);"),  # which tile?
        (OF_PARAMETER, "f(1, x.inner(), x.ints);"),
        (ONE, "if (one() > 1) g(2 * one());"),
        (function("bool yes()", "return true;"), "if (x.y && yes()) g();"),
    ],
)
def test_others_stay(thin: str, statement: str) -> None:
    assert left(thin, statement) == statement


def test_long_calls_are_broken_between_arguments() -> None:
    first, second = "g(" + "1, " * 20 + "1)", "h(" + "2, " * 20 + "2)"
    expected = f"x.y = wide({first},\n               {second});"
    assert left(SHIFTED, f"x.y = f(0, {first},\n            {second});") == expected
