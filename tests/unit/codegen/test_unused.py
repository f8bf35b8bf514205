from __future__ import annotations

import time

import pytest

from attncc.codegen import render as module
from attncc.codegen.render import render
from attncc.codegen.unused import without_unused
from tests import plans

KERNEL = 'extern "C" __global__ void k(float* x) { *x = %s; }\n'


def left(definitions: str, code: str = "used()") -> str:
    """What stays of definitions where a kernel has this in it."""
    kernel = KERNEL % code
    text = without_unused(f"{definitions}\n{kernel}")
    assert text.endswith(kernel)
    return text.removesuffix(kernel).strip("\n")


@pytest.mark.parametrize(
    "definition",
    [
        "__device__ int other() { return 1; }",
        "__device__ int\nother(int a,\n      int b) {\n    if (a) {\n        return b;\n    }\n    return a;\n}",
        "template <int N, bool B = N >= 3>\n__device__ int other() {\n    return N;\n}",
        "template <class T>\n__device__ T (&other(T (&x)[4]))[2] {\n    return x;\n}",
        "struct Other {\n    int a;\n};",
        "template <class T>\nstruct Other : Base<T> {\n    __device__ Other() : Base<T>{1} {}\n    int a;\n};",
        "struct Other { int a; };",
        "struct alignas(64) Other {\n    int a;\n};",
        "using Other = int;",
        "template <class T>\nusing Other = T;",
        "constexpr int OTHER = 3;",
        "[[maybe_unused]] constexpr int OTHER = (3 + 4), MORE = 5;",
        "template <int N>\nconstexpr int OTHER = (N + 3) / 4;",
        "__constant__ unsigned OTHER[2] = {1,\n                              2};",
        "enum Other { A, B = 1 };",
        "#define OTHER(x) (1 + x)  // used()",
        '#define OTHER \\\n    "a" \\\n    "b"\n__device__ void other() { asm(OTHER); }\n#undef OTHER',
        '__device__ const char* other() { return "used() {"; }',
    ],
)
def test_what_nothing_uses_goes(definition: str) -> None:
    used = "__device__ int used() { return 0; }"
    assert left(f"{definition}\n{used}") == used
    assert left(f"/// What it is.\n// And why.\n{definition}\n\n{used}") == used


@pytest.mark.parametrize(
    ("definition", "code"),
    [
        ("__device__ int used(float x) { return 0; }\n__device__ int used(int x) { return x; }", "used(1)"),
        ("__device__ int used(int x, int y = 0) { return x; }", "used(1)"),
        ("__device__ int used(Pair<A, B> x) { return x; }", "used(Pair<A, B>{})"),
        ("template <class... All>\n__device__ int used(All... all) { return 0; }", "used(1, 2, 3)"),
        (
            "template <class T>\n__device__ T used();\ntemplate <>\n__device__ int used<int>() { return 1; }",
            "used<A>()",
        ),
        ("constexpr int A = 1;\nconstexpr int B = A, C = 2;\nusing D = E<B>;", "D::x"),
        ("enum Kind { NONE, ALL };", "ALL"),
        ("template <int N>\nstruct S {\n    int x;\n};\ntemplate <>\nstruct S<1> {\n    int y;\n};", "S<2>().x"),
        ("#define A 1\n#define B (A + 1)", "B"),
        ("int x;\nstatic_assert(sizeof(int) == 4);", "1"),
    ],
)
def test_what_is_used_stays(definition: str, code: str) -> None:
    assert left(definition, code) == definition


STRUCT = """\
/// What it is.
struct S : Base {
    using Base::base;
    int field = 1;  // a unit

    __device__ explicit S(int x) : field(x) {}
    /// The first.
    __device__ int first() const { return field; }

    /// The second.
    template <class T>
    __device__ int second(T x) const {
        return x(first());
    }

    __device__ bool operator==(const S& other) const { return true; }

private:
    static constexpr int ONE = 1;
};"""


def test_methods_go_one_by_one() -> None:
    assert left(STRUCT, "S(1).second(x)") == STRUCT.replace("    static constexpr int ONE = 1;\n", "")
    first = left(STRUCT, "S(1).first() + first")
    assert "/// The first." in first and "second" not in first.lower()
    for kept in ("using Base::base;", "int field", "explicit S(int x)", "operator=="):
        assert kept in first


def test_a_method_of_an_unused_struct_uses_nothing() -> None:
    assert (
        left(
            "__device__ int far() { return 0; }\nstruct S {\n    __device__ int used() { return far(); }\n};", "used()"
        )
        == ""
    )


def test_functions_of_another_number_of_arguments_go() -> None:
    one, two = "__device__ int used(int x) { return x; }", "__device__ int used(int x, int y) { return y; }"
    assert left(f"{one}\n{two}", "used(f(1, 2))") == one
    assert left(f"{one}\n{two}", "used<A, B>({1, 2}, [] { return g(1, 2, 3); })") == two
    assert left(f"{one}\n{two}", "used(a < b, c > d)") == f"{one}\n{two}"  # or a<b, c> d


def test_a_variable_is_no_call() -> None:
    assert left("__device__ int range() { return 0; }", "range + 1") == ""


def test_comments_go_with_the_last_definition_that_they_are_about() -> None:
    one, two = "__device__ int one() { return 0; }", "__device__ int two() { return 0; }"
    assert left(f"// Both.\n{one}\n{two}", "two()") == f"// Both.\n{two}"
    assert left(f"// One.\n{one}\n// Two.\n{two}", "two()") == f"// Two.\n{two}"
    assert left(f"// A heading.\n\n{one}\n{two}", "two()") == f"// A heading.\n\n{two}"


def test_leaf_files_of_which_nothing_is_left_go() -> None:
    """With what they say about themselves."""
    leaf = "// ---- {0}.cuh\n\n// About them.\n\n__device__ int {0}() {{ return 0; }}\n#leaf end"
    found = left(f"{leaf.format('one')}\n\n{leaf.format('two')}\n", "two()")
    assert found == "// ---- two.cuh\n\n// About them.\n\n__device__ int two() { return 0; }"


def test_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes some milliseconds; reading the templates takes more. The best of three, as a garbage collection in a
    process that has run many tests takes longer."""
    texts: list[str] = []
    monkeypatch.setattr(module, "without_unused", lambda text: texts.append(text) or text)
    render(plans.plan(plans.CAUSAL, "bf16", 64, 64, block_q=64, block_kv=64, warps=4))
    taken = []
    for _ in range(3):
        start = time.process_time()
        without_unused(texts[0])
        taken.append(time.process_time() - start)
    assert min(taken) < 0.1


IDLE = """\
struct Idle {
    __device__ __forceinline__ explicit Idle(int) {}
    __device__ __forceinline__ void f() const {}
};
"""
OWNER = """\
struct Owner {{
    int x;
    const Idle idle{{0}};

    {}__device__ __forceinline__ int g() const {{ return {}; }}
}};
"""
MADE = "__device__ __forceinline__ Owner() : x(0) {}\n    "
CALLS = 'extern "C" __global__ void kernel() {\n    Owner owner;\n    owner.g();\n}\n'


def test_fields_without_data_go() -> None:
    text = without_unused(IDLE + OWNER.format(MADE, "x") + CALLS)
    assert "Idle" not in text and "int x;" in text


@pytest.mark.parametrize(
    "text",
    [
        IDLE + OWNER.format(MADE, "idle.f(), x"),  # it is used
        IDLE + OWNER.format("", "x"),  # the owner is made of a list
        IDLE.replace("struct Idle {\n", "struct Idle {\n    int y;\n") + OWNER.format(MADE, "x"),
        IDLE.replace("(int) {}", "(int y) { h(y); }") + OWNER.format(MADE, "x"),
    ],
)
def test_other_fields_stay(text: str) -> None:
    assert "const Idle idle{0};" in without_unused(text + CALLS)
