"""Generated files break no line without need, and change nothing but blanks, macros and their places."""

from __future__ import annotations

import re

import pytest

from attncc.codegen.layout import COLUMNS, MACROS, laid_out
from attncc.kernels.identifiers import KEYWORDS

HEADER = "// causal\n// Written by attncc.\n\n"
INLINED = MACROS["DEVICE"]
LONG = "a_parameter_whose_name_is_long"


def body(text: str) -> str:
    """The text in its layout, without header and macros."""
    found = laid_out(f"{HEADER}{text}\n").removeprefix(HEADER)
    return re.sub(r"\A(#define .*\n)*", "", found).strip("\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{INLINED} int one() {{\n    return 1;\n}}", "DEVICE int one() { return 1; }"),
        (f"template <class T>\n{INLINED} T f(T x) {{\n    return x;\n}}",
         "template <class T> DEVICE T f(T x) { return x; }"),
        (f'{INLINED} void leave() {{\n    asm("exit;");\n}}', 'DEVICE void leave() { asm("exit;"); }'),
        ("template <int N>\nstruct S {\n    int x;\n};", "template <int N> struct S {\n    int x;\n};"),
        ("template <class T>\nusing Same = T;", "template <class T> using Same = T;"),
        (f"{INLINED} int add(int x,\n            int y) {{\n    x += y;\n    return x;\n}}",
         "DEVICE int add(int x, int y) {\n    x += y;\n    return x;\n}"),
        ("    const int sum = first +\n                    second;", "    const int sum = first + second;"),
        ("    run(first,\n        second);", "    run(first, second);"),
        ("#pragma unroll\n    for (int i = 0; i < 4; ++i) f(i);", "    UNROLL for (int i = 0; i < 4; ++i) f(i);"),
        ("#pragma unroll 1\n    for (;;) {", "    NO_UNROLL for (;;) {"),
        (f"    {INLINED} S(int x)\n        : x(x) {{}}", "    DEVICE S(int x) : x(x) {}"),
    ],
    ids=["function", "template", "asm", "struct", "alias", "lines", "operator", "call", "unroll", "rolled", "members"],
)  # fmt: skip
def test_what_fits_is_joined(before: str, after: str) -> None:
    assert body(before) == after
    assert body(after.replace("DEVICE", INLINED)) == after


@pytest.mark.parametrize(
    "text",
    [
        "    x = 1;\n    y = 2;",
        "    if (x)\n        y = 2;",
        "    // A comment,\n    // and its end.",
        "    run(first,  // why\n        second);",
        '    asm("bar.sync %0;"\n        : "r"(x));',
        "#pragma unroll 4\n    for (;;) {",
        "    each([&](int x) {\n        y += x;\n    });",
        '#line 8 "causal.attn"\n    run(first,\n        second);\n#line restore',
        "int x;\n#define SUM(x) \\\n    (x + \\\n     1)",
    ],
    ids=["statements", "if", "comment", "commented", "text", "count", "lambda", "user", "macro"],
)
def test_what_stays(text: str) -> None:
    assert body(text) == text


def test_functions_of_more_than_a_simple_statement_stay() -> None:
    for statement in ("if (x) y = 1;", "x = 1; y = 2;", "for (;;) x = 1;"):
        text = f"DEVICE void f() {{\n    {statement}\n}}"
        assert body(text) == text


def test_parameters_that_do_not_fit_are_aligned() -> None:
    parameters = [f"const Pair<int, {LONG}>& {LONG}{number}" for number in range(4)]
    lines = body(f"{INLINED} void f({(',' + chr(10)).join(parameters)}) {{\n    x = 1;\n}}").split("\n")
    assert lines[0].startswith("DEVICE void f(const") and all(
        line.startswith(" " * 14 + "const") for line in lines[1:4]
    )
    assert max(map(len, lines)) <= COLUMNS and len(lines) == 6


def test_macros_are_defined_where_they_are_used() -> None:
    text = laid_out(f"{HEADER}{INLINED} int one() {{ return 1; }}\n")
    assert text == f"{HEADER}#define DEVICE {INLINED}\n\nDEVICE int one() {{ return 1; }}\n"
    assert laid_out(f"{HEADER}int x;\n") == f"{HEADER}int x;\n"
    assert KEYWORDS.issuperset(MACROS)
