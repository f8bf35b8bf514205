from __future__ import annotations

import pytest

from attncc.codegen.calls import MOST, calls, function_words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("f()", {"f(0"}),
        ("f(1)", {"f(1"}),
        ("f(g(1, 2), 3)", {"f(2", "g(2"}),
        ("f({1, 2}, x[g(1)], (3, 4))", {"f(3", "g(1"}),
        ("f<A, B<C>>(1)", {"f(1", "B(*"}),
        ("x.template f<8 * (N > 2)>(1, 2)", {"f(2"}),
        ("x->f(1)", {"f(1"}),
        ("f(a < b, c)", {"f(2"}),
        ("f(a < b, c > d)", {"f(1", "f(2"}),
        ("f(a << 2, b >= c)", {"f(2"}),
        ("f(A<B>{}, C<D, E>{})", {"f(2", "f(3", "A(*", "C(*"}),
        ("f([&](int a, int b) { return g(a); }, 1)", {"f(2", "g(1"}),
        ("f(each...)", {f"f({number}" for number in range(MOST + 1)}),
        ("using F = f<3>;", {"f(*"}),
        ("a[1] + b", set()),
    ],
)
def test_calls_by_number_of_arguments(code: str, words: set[str]) -> None:
    assert calls(code) == words


@pytest.mark.parametrize(
    ("rest", "numbers"),
    [
        ("() { return 0; }", {0}),
        ("(int x) {", {1}),
        ("(int x, int y = g(1, 2), int z = 3) {", {1, 2, 3}),
        ("(const Pair<A, B>& x) {", {1, 2}),  # or a comparison: rather one too many
        ("(float (&x)[2][4], Visit) {", {2}),
        ("(All... all) {", set(range(MOST + 1))),
    ],
)
def test_functions_by_number_of_parameters(rest: str, numbers: set[int]) -> None:
    assert set(function_words("f", rest)) == {"f(*", *(f"f({number}" for number in numbers)}
