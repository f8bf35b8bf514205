"""Texts that break out of comments, strings and lines in one language or another, as comments of specs and in paths."""

from __future__ import annotations

EVIL = {
    "encoding": "my coding=unicode_escape masks",
    "encoding_colon": "-*- coding: utf-7 -*-",
    "escapes": r"\u000aimport os; os.abort() \x0aimport os \N{NULL} \777",
    "docstring": '"""\nimport os\nos.abort()\n"""',
    "quotes": '"\'""""\'\'\'`',
    "backslashes": "\\\\\\",
    "backslash_at_the_end": "#error reached \\",
    "backslash_and_blank": "ends in \\ ",
    "long_with_backslashes": " ".join([*["word"] * 17, "\\", *["word"] * 17, "\\", "tail"] * 3),
    "trigraph": "what??/",
    "trigraphs": "??/??'??(??)??!??<??>??-??=",
    "comment": "*/ #error reached /* // <!-- -->",
    "newline": "a\n#error reached\nimport os; os.abort()",
    "carriage_return": "a\r#error reached\rimport os; os.abort()",
    "form_feed": "a\f#error reached\v#error reached",
    "unicode_lines": "a\x85#error reached\u2028#error reached\u2029#error reached",
    "controls": "".join(map(chr, (*range(1, 10), *range(14, 32), 127, *range(128, 160)))),
    "nul": "a\0b",
    "terminal": "\x1b]0;title\x07\x1b[2J\x9b31m",
    "directions": "\u202egnol\u202c \u2066x\u2069 \u200b\ufeff",
    "template": "${ plan } {{ 7 * 7 }} <% raw %> <# //% if x",
    "lines": '#line 1 "x.cu"\n#line restore\n#include "attncc/mma.cuh"',
    "markdown": "[x](javascript:alert(1)) ![y](z) <script> **b** | &lt; `code` ``` ~~~",
    "markdown_lines": "# head\n- item\n1. one\n> quote\n===\n    code",
    "json": '"}], {"a": "\\ud800"',
    "unicode": "Ünïcödé 漢字 🙂",
    "attn": "x\n}\nvariant evil { keep if false",
    "format": "{0} %s %(x)s {variant.__class__}",
}

NOT_UTF8 = "a\udcffb"  # as Python holds a path that has the byte 0xff


def as_comment(text: str) -> str:
    """The lines of a comment in a `.attn` file: what else may end a line is part of it."""
    return "\n".join(f"# {line}" for line in text.replace("\r", "").split("\n"))


def as_file_name(text: str) -> str:
    """What a file may be called: with no `/` and no NUL, and at most 200 bytes long."""
    name = text.replace("/", "_").replace("\0", "").strip(".")[:100]
    while len(name.encode(errors="surrogateescape")) > 200:
        name = name[:-1]
    return name
