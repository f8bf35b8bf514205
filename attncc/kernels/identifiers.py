"""Names of the user's in C: one rule, so that no name of an input or a let can clash with C++, CUDA or the kernel."""

from __future__ import annotations

import re

# Words that no C++ identifier may be, and macros that compilers or kernels define (codegen/layout.py).
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
    co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while
    xor xor_eq asm linux unix i386 NULL NAN INFINITY NEGATIVE_INFINITY assert offsetof
    DEVICE UNROLL NO_UNROLL
        """,
    )
)

# What a field of `Params` for an input may end in: the input `p` has `p_stride0`, `p_size0`, `p_value`.
_DERIVED = re.compile(r"^_|__|_(stride\d+|size\d+|value)$")


def identifier(name: str, taken: frozenset[str] = frozenset()) -> str:
    """`name` as a C identifier: the name itself, or with one `_` more where that is a keyword or one of `taken`.

    The rule is one-to-one: it looks at the name without its last underscores, so `int` becomes `int_` and a name
    `int_` becomes `int__`.
    """
    stem = name.rstrip("_")
    clashes = stem in KEYWORDS or stem in taken or _DERIVED.search(stem) is not None
    return name + "_" if clashes else name
