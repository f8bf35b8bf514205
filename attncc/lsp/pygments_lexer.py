"""attn for Pygments: `pygmentize -l attn`, Sphinx, MkDocs. pip registers it with attncc (pyproject.toml)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, default, include
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

from .words import of_sort


def one_of(names: Iterable[str]) -> str:
    """A pattern for whole words."""
    return rf"\b({'|'.join(sorted(names, reverse=True))})\b"


def named(*sorts: str) -> str:
    return one_of({word.name for word in of_sort(*sorts)})


STATEMENTS = {word.name for word in of_sort("statement")} - {"score", "scale"}  # those stand in expressions too


class AttnLexer(RegexLexer):  # type: ignore[misc]  # pygments has no types
    """Words are those of the grammar and of the tables of built-ins; what isn't reserved is known by its place."""

    name = "attn"
    aliases: ClassVar[list[str]] = ["attn"]
    filenames: ClassVar[list[str]] = ["*.attn"]

    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            include("blanks"),
            (r"(schedule)\b", Keyword.Declaration, "schedule"),
            (r"(variant)(\s+)(\w+)", bygroups(Keyword.Declaration, Whitespace, Name.Class)),
            (r"(mask|fn)(\s+)(\w+)", bygroups(Keyword.Declaration, Whitespace, Name.Function)),
            (r"(import)(\s+)(\w+)", bygroups(Keyword.Namespace, Whitespace, Name.Namespace)),
            (r"(normalize)(\s+)(\w+)", bygroups(Keyword, Whitespace, Name.Constant)),
            (r"(input)\b", Keyword, "input"),
            (r"(const|let|sink)(\s+)(\w+)", bygroups(Keyword, Whitespace, Name.Variable)),
            (one_of(["score", "scale"]) + r"(?=\s*=[^=])", Keyword),
            (r"^(\s*)(scale)\b", bygroups(Whitespace, Keyword)),
            include("expression"),
        ],
        "blanks": [(r"\s+", Whitespace), (r"#[^\n]*", Comment.Single)],
        "expression": [
            (named("constant"), Keyword.Constant),
            (one_of({"and", "or", "not", "in"}), Operator.Word),
            (named("function", "reduction") + r"(?=\s*\()", Name.Builtin),
            (named("value"), Name.Builtin.Pseudo),
            (named("dtype", "type"), Keyword.Type),
            (named("item", "operator", "reduction"), Keyword),
            (one_of(STATEMENTS), Keyword),
            include("atoms"),
        ],
        "atoms": [
            (r"0[xX][0-9A-Fa-f]+", Number.Hex),
            (r"(\d[\d_]*\.\d*|\.\d+)([eE][+-]?\d+)?|\d[\d_]*[eE][+-]?\d+", Number.Float),
            (r"\d[\d_]*", Number.Integer),
            (r'"[^"\n]*"', String),
            (r"[A-Za-z_]\w*", Name),
            (r"//|<<|>>|[<>=!]=|[-+*/%&|^~<>=]", Operator),
            (r"[()\[\]{},:]", Punctuation),
        ],
        "input": [  # up to the end of its line: its dtype, axes and properties
            (r"[^\S\n]+", Whitespace),
            (rf"(?={named('statement')})", Text, "#pop"),
            (r"(\w+)(\s*)(:)", bygroups(Name.Variable, Whitespace, Punctuation)),
            (named("dtype"), Keyword.Type),
            (named("tag"), Name.Attribute),
            (named("property"), Name.Decorator),
            (r"(?=[}#\n])", Text, "#pop"),
            include("atoms"),
            default("#pop"),
        ],
        "schedule": [
            include("blanks"),
            (one_of(["for", "on"]), Keyword),
            (r"\{", Punctuation, ("#pop", "settings")),
            (named("target"), Name.Constant),
            (named("pass") + r"(?=\s+on\b)", Name.Attribute),
            (rf"{named('lengths')}(?=\s+\d)", Keyword),
            (r"\d[\d_]*\.\.(\d[\d_]*)?", Number.Integer),
            (r"\w+", Name.Class),
            default("#pop"),
        ],
        "settings": [
            include("blanks"),
            (named("knob") + r"(?=\s*=)", Name.Attribute),
            (r"(=)(\s*)(\{)", bygroups(Operator, Whitespace, Punctuation), "candidates"),
            (r"\}", Punctuation, "#pop"),
            (named("setting"), Name.Constant),
            include("atoms"),
        ],
        "candidates": [
            include("blanks"),
            (r"\}", Punctuation, "#pop"),
            (named("setting"), Name.Constant),
            include("atoms"),
        ],
    }
