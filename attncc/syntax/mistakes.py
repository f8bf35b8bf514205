"""What to say about a token that does not fit, and what the parser may take it for, so that it can go on.

Each rule below looks at one sort of mistake and is silent about all others. They are asked in order; the last one
answers always.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from itertools import pairwise

from lark import Token

from ..diagnostics import Diagnostic, Edit, Label, did_you_mean, suggested
from ..source import Span
from .grammar import keywords, literals, terminals
from .stray import STRAY_HELP
from .tokens import END, STRAY, first_on_line, span
from .trouble import BRACKETS, FORMS, ITEMS, STATEMENTS, Mistake, Trouble, either, expected_and_found, found

Rule = Callable[[Trouble], Mistake | None]


def explain(trouble: Trouble) -> Mistake:
    """The most certain thing that can be said about the token."""
    for rule in _RULES:
        mistake = rule(trouble)
        if mistake is not None:
            return mistake
    return _anything_else(trouble)


# -------------------------------------------------------------------- the beginning


def _no_version(trouble: Trouble) -> Mistake | None:
    if trouble.before == "ATTN":
        what = f"expected the language version after `attn`, found {found(trouble.token)}"
        return Mistake(
            Diagnostic("A006", what, trouble.at, help="write `attn 1`"), (("INT",), ("INT", trouble.token.type))
        )
    if "ATTN" not in trouble.expected:
        return None
    diagnostic = Diagnostic(
        "A006",
        "the file does not begin with its language version",
        trouble.at,
        help="write `attn 1` above everything else",
        edit=Edit(Span(trouble.source, trouble.at.start, trouble.at.start), "attn 1\n\n"),
    )
    return Mistake(diagnostic, (("ATTN", "INT", trouble.token.type),))


def _second_version(trouble: Trouble) -> Mistake | None:
    if trouble.token.type != "ATTN":
        return None
    help_ = "write `attn 1` once, above everything else"
    return Mistake(Diagnostic("A006", "`attn` stands at the beginning only", trouble.at, help=help_), ((),))


# -------------------------------------------------------------------- what is not of this language


def _stray(trouble: Trouble) -> Mistake | None:
    if trouble.token.type != STRAY:
        return None
    char = trouble.token[0]
    advice = "write a blank" if char.isspace() else "remove it"
    advice = "names are made of the letters a to z, A to Z, digits and `_`" if char.isalpha() else advice
    what = "this string has no closing quote" if char == '"' else f"{_character(char)} has no meaning here"
    no_first = char == "." and "LENGTHS" in trouble.expected
    help_ = "write the first length too, as in `1..8192`" if no_first else STRAY_HELP.get(char, advice)
    diagnostic = Diagnostic("A002", what, trouble.at, help=help_, edit=_stray_edit(trouble.at, help_))
    return Mistake(diagnostic, ((), ("NAME",), ("STAR",), ("STRING",)))


def _stray_edit(at: Span, help_: str) -> Edit | None:
    edit = suggested(help_, at)
    return Edit(at, f"{edit.text} ") if edit is not None and edit.text.isalpha() else edit


def _character(char: str) -> str:
    code = f"U+{ord(char):04X}"
    if not char.isprintable() or char.isspace():
        name = unicodedata.name(char, "").lower()
        return f"{name} ({code})" if name else f"the character {code}"
    return f"`{char}`" if char.isascii() else f"`{char}` ({code})"


# What is written -> what to write. Several tokens of this language, or one that does not fit.
_FOREIGN = {
    "!==": "`!=`",
    "===": "`==`",
    ":=": "`=`",
    "&&": "`and`",
    "||": "`or`",
    "=>": "`>=`",
    "=<": "`<=`",
    "<>": "`!=`",
    "**": "`x * x`; there is no power operator",
    "->": "`=` and an expression; nothing has a return type",
    "+=": "`score = score + …`",
    "-=": "`score = score - …`",
    "*=": "`score = score * …`",
    "/=": "`score = score / …`",
}


def _foreign_operator(trouble: Trouble) -> Mistake | None:
    start = trouble.at.start
    for text, instead in _FOREIGN.items():
        for begin in range(max(0, start - len(text) + 1), start + 1):
            if trouble.source.text.startswith(text, begin):
                at = Span(trouble.source, begin, begin + len(text))
                help_ = f"write {instead}"
                edit = None if text == "**" else suggested(help_, at)
                diagnostic = Diagnostic("A003", f"there is no operator `{text}`", at, help=help_, edit=edit)
                return Mistake(diagnostic, ((), ("EQUAL",)))
    return None


# Words that compare in Python -> what to write.
_WORDS = {
    "in": "compare with each, as in `x == 1 or x == 5`, or with both ends, as in `2 <= x < 5`",
    "is": "write `==`, or `!=` for `is not`",
}


def _foreign_word(trouble: Trouble) -> Mistake | None:
    word = trouble.token
    if word not in _WORDS or trouble.new_line or terminals()["=="] not in trouble.expected:
        return None
    diagnostic = Diagnostic("A003", f"there is no operator `{word}`", trouble.at, help=_WORDS[str(word)])
    return Mistake(diagnostic, ((terminals()["=="],),))


def _range_of_two(trouble: Trouble) -> Mistake | None:
    """`range(2, 4)`"""
    opened = trouble.opened[-1] if trouble.opened else None
    before = next((word for word, bracket in pairwise(trouble.tokens) if bracket is opened), None)
    if trouble.token.type != terminals()[","] or before is None or before.type != "RANGE":
        return None
    help_ = "`for i in range(8)` goes from 0 to 7; to begin at 2, write `i + 2` for `i`"
    return Mistake(Diagnostic("A003", "`range` takes one count", trouble.at, help=help_), (("PLUS",),))


def _named_argument(trouble: Trouble) -> Mistake | None:
    """`window(width=3)`"""
    opened = trouble.opened[-1] if trouble.opened else None
    place = next((index for index, token in enumerate(trouble.tokens) if token is opened), 0)
    called = opened is not None and opened.type == "LPAR" and trouble.tokens[place - 1].type == "NAME"
    first, name = trouble.tokens[trouble.index - 2 : trouble.index] if trouble.index > 1 else (None, None)
    if trouble.token.type != "EQUAL" or not called or name is None or name.type != "NAME":
        return None
    if first is not opened and first != ",":
        return None
    in_order = f"leave out `{name} =`, and keep to the order of the parameters"
    help_ = _OF_TORCH.get((str(trouble.tokens[place - 1]), str(name)), in_order)
    what = "arguments are given by their order, not by name"
    return Mistake(Diagnostic("A003", what, trouble.at, help=help_), ((terminals()["=="],),))


_OF_TORCH = {
    ("gelu", "approximate"): 'write `gelu_tanh(x)` for torch\'s gelu(x, approximate="tanh")',
    **dict.fromkeys(
        ((name, axis) for name in ("max", "min") for axis in ("dim", "axis")),
        "a variant sees one pair of a query and a key: nothing is reduced over an axis",
    ),
    ("softplus", "beta"): "`softplus(x)` has no beta: with a beta of 2 it is `softplus(2 * x) / 2`",
}


def _equals(trouble: Trouble) -> Mistake | None:
    """`=` where values are compared, `==` where one is given."""
    wrong, right = trouble.token, "==" if trouble.token.type == "EQUAL" else "="
    fits = wrong in ("=", "==") and terminals()[right] in trouble.expected
    if not fits:
        return None
    what = "`==` compares, `=` gives a value"
    diagnostic = Diagnostic("A003", what, trouble.at, help=f"write `{right}`", edit=Edit(trouble.at, right))
    return Mistake(diagnostic, ((terminals()[right],),))


# -------------------------------------------------------------------- names and numbers


_NO_NAMES = ("AND", "OR", "IF", "ELSE", "FOR", "IN", "SCORE")  # where an expression is due, nobody means a name by them


def _keyword_as_name(trouble: Trouble) -> Mistake | None:
    if "NAME" not in trouble.expected or trouble.token not in keywords():
        return None
    if trouble.new_line or "LET" in trouble.expected:  # more likely a statement in the wrong place
        return None
    if "TILDE" in trouble.expected and trouble.token.type in _NO_NAMES:
        return None
    what = f"`{trouble.token}` is a keyword and cannot be a name"
    advice = "write `import masks` for the library's masks" if trouble.before == "IMPORT" else "choose another name"
    diagnostic = Diagnostic("A004", what, trouble.at, help=advice)
    return Mistake(diagnostic, (("NAME",),))


def _number_runs_into_name(trouble: Trouble) -> Mistake | None:
    previous = trouble.tokens[trouble.index - 1]
    if trouble.before not in ("INT", "FLOAT") or trouble.token.type not in ("NAME", "INT", "FLOAT", "UNDERSCORE"):
        return None
    at = span(trouble.source, previous)
    if at.end != trouble.at.start:
        return None
    what = "a name does not begin with a digit" if trouble.token.type == "NAME" else "this is not a number"
    return Mistake(
        Diagnostic("A009", what, at.to(trouble.at), help="numbers look like `12`, `0.5`, `1e-6`, `0xff`"), ((),)
    )


# -------------------------------------------------------------------- brackets


def _item_for_let(trouble: Trouble) -> Mistake | None:
    """`mask = condition` among the statements of a variant: a value that somebody calls `mask`."""
    if trouble.token.type not in ("MASK", "FN") or "LET" not in trouble.expected:
        return None
    if trouble.tokens[min(trouble.index + 1, len(trouble.tokens) - 1)] != "=":
        return None
    what = f"`{trouble.token}` is a keyword and cannot be a name"
    help_ = "write `let` and another name, as in `let near = …`, and `keep if near`"
    return Mistake(Diagnostic("A004", what, trouble.at, help=help_), (("LET", "NAME"),))


def _item_in_variant(trouble: Trouble) -> Mistake | None:
    """An item that is indented as the statements of a variant or a mask are: it was not meant to stand below."""
    opening = trouble.opened[-1] if trouble.opened else None
    if opening is None or opening.type != "LBRACE" or trouble.token.type not in (*ITEMS, "IMPORT"):
        return None
    if not trouble.new_line or trouble.at.column <= _indentation(trouble, opening) + 1:
        return None
    what, where = f"`{trouble.token}` cannot stand here", "inside of another item"
    help_ = "write it above or below, outside of the braces"
    if trouble.token.type == "IMPORT":
        help_ = _MISPLACED["IMPORT"]
    return Mistake(
        Diagnostic("A008", what, trouble.at, where, help=help_), (("RBRACE", trouble.token.type), ("RBRACE",))
    )


def _indentation(trouble: Trouble, token: Token) -> int:
    """Blanks before the first word of the token's line."""
    line = trouble.source.text[: token.start_pos].rpartition("\n")[2]
    return len(line) - len(line.lstrip())


def _never_closed(trouble: Trouble) -> Mistake | None:
    if not trouble.opened or not trouble.opened[-1]:  # without text: read instead of something else, by an earlier rule
        return None
    opening, kind = trouble.opened[-1], trouble.token.type
    in_body = opening.type == "LBRACE"
    new_item = kind in (*ITEMS, "IMPORT") and (trouble.new_line or "RBRACE" in trouble.expected)
    ends = kind == END or new_item or (not in_body and _begins_statement(trouble))
    wrong_closing = not in_body and kind in BRACKETS.values() and kind != BRACKETS[opening.type]
    if not ends and not wrong_closing:
        return None
    closing = literals()[BRACKETS[opening.type]]
    diagnostic = Diagnostic(
        "A005",
        f"`{opening}` is never closed",
        span(trouble.source, opening),
        labels=(Label(trouble.at, f"expected `{closing}` before {found(trouble.token)}"),),
        help=f"write `{closing}` where it ends",
    )
    return Mistake(diagnostic, ((BRACKETS[opening.type], kind), (BRACKETS[opening.type],)))


def _never_opened(trouble: Trouble) -> Mistake | None:
    kind = trouble.token.type
    if kind not in BRACKETS.values() or any(BRACKETS[opening.type] == kind for opening in trouble.opened):
        return None
    what = f"`{trouble.token}` closes nothing"
    return Mistake(Diagnostic("A005", what, trouble.at, help="remove it, or write what it closes"), ((),))


# -------------------------------------------------------------------- statements that lack something


def _keep_without_if(trouble: Trouble) -> Mistake | None:
    if trouble.before != "KEEP":
        return None
    diagnostic = Diagnostic(
        "A007",
        f"expected `if` after `keep`, found {found(trouble.token)}",
        trouble.at,
        help="write `keep if` and what is true for the pairs that attend",
    )
    return Mistake(diagnostic, (("IF",), ("IF", trouble.token.type)))


_MASK = "a mask has parameters, if none then `()`: `mask name() = …`"
_FUNCTION = "a function has parameters, if none then `()`: `fn name() = …`"

# (terminal that is expected, terminal that came) -> what is read instead, and help where the form alone says too little
_LACKS = {
    ("COLON", "EQUAL"): (("COLON", "NAME", "EQUAL"), ""),
    ("COLON", "LSQB"): (("COLON", "NAME", "LSQB"), ""),
    ("EQUAL", "COLON"): ((), "a `let` has the type of its value: `let name = value`"),
    ("LPAR", "EQUAL"): (("LPAR", "RPAR", "EQUAL"), _MASK),
    ("LPAR", "LBRACE"): (("LPAR", "RPAR", "LBRACE"), _MASK),
    ("RANGE", "INT"): (("RANGE", "LPAR", "INT", "RPAR"), "write `for i in range(8)`"),
    ("RANGE", "NAME"): (("RANGE", "LPAR", "NAME", "RPAR"), "write `for i in range(size)`"),
    ("LENGTHS", "INT"): (("LENGTHS",), "write both ends without blanks, as in `1024..8192`, or `1024..`"),
    ("FOR", "LBRACE"): (("FOR", "NAME", "ON", "NAME", "LBRACE"), ""),
    ("FOR", "ON"): (("FOR", "NAME", "ON"), ""),
    ("ON", "LBRACE"): (("ON", "NAME", "LBRACE"), ""),
    ("LBRACE", "COMMA"): (
        ("LBRACE", "RBRACE", "SCHEDULE", "NAME", "FOR", "NAME", "ON"),
        "a schedule is for one target; write another for the next",
    ),
}


def _lacks(trouble: Trouble) -> Mistake | None:
    if {"STAR", "TILDE"} & trouble.expected:
        return None
    for expected in trouble.expected:
        reading, advice = _LACKS.get((expected, trouble.token.type), (None, ""))
        if reading is not None:
            what = expected_and_found(trouble)
            if advice is _MASK and trouble.tokens[trouble.index - 2].type == "FN":
                advice = _FUNCTION
            return Mistake(Diagnostic("A007", what, trouble.at, help=advice or _form(trouble)), (reading,))
    return None


def _unfinished(trouble: Trouble) -> Mistake | None:
    """The next statement, item or end comes where a name or a value is missing."""
    ends = trouble.token.type in (*STATEMENTS, *ITEMS, "RBRACE", END) and trouble.new_line
    if not ends or "NAME" not in trouble.expected or "RBRACE" in trouble.expected:
        return None
    what = "an expression" if "TILDE" in trouble.expected else "a name"
    last = trouble.tokens[trouble.index - 1]
    at = span(trouble.source, last)
    label = Label(trouble.at, f"{found(trouble.token)} comes instead")
    what = f"expected {what} after `{last}`"
    diagnostic = Diagnostic("A007", what, at, labels=(label,), help=_form(trouble))
    return Mistake(diagnostic, (("NAME", trouble.token.type),))


def _no_value(trouble: Trouble) -> Mistake | None:
    """`knob = knob = value`: the first knob of a schedule has no value."""
    kinds = [token.type for token in trouble.tokens[max(0, trouble.index - 2) : trouble.index + 1]]
    if kinds != ["EQUAL", "NAME", "EQUAL"] or not {"NAME", "RBRACE"} <= trouble.expected:
        return None
    at = span(trouble.source, trouble.tokens[trouble.index - 2])
    diagnostic = Diagnostic("A007", "expected a value after `=`", at, help="write a whole number or a word")
    return Mistake(diagnostic, (("NAME", "EQUAL"),))


def _no_else(trouble: Trouble) -> Mistake | None:
    if "ELSE" not in trouble.expected or not (trouble.new_line or trouble.token.type in BRACKETS.values()):
        return None
    word = _if_without_else(trouble)
    at = span(trouble.source, word)
    advice = "an `if` inside an expression has two sides: `a if condition else b`"
    if first_on_line(trouble.source, word):
        advice = "to say which pairs attend, write `keep if`; inside an expression, write `a if condition else b`"
    label = Label(trouble.at, f"expected `else` before {found(trouble.token)}")
    diagnostic = Diagnostic("A007", "this `if` has no `else`", at, labels=(label,), help=advice)
    return Mistake(diagnostic, (("ELSE", "NAME", trouble.token.type),))


def _if_without_else(trouble: Trouble) -> Token:
    """The last `if` that no `else` belongs to; after other mistakes there may be none, then the token itself."""
    owed = 1
    for token in reversed(trouble.tokens[: trouble.index]):
        owed += (token.type == "ELSE") - (token.type == "IF")
        if owed == 0:
            return token
    return trouble.token


# -------------------------------------------------------------------- words that begin nothing here


def _begins_nothing(trouble: Trouble) -> Mistake | None:
    """A misspelt keyword, or a statement or item where there can be none."""
    word = trouble.token
    places = [place for place in (STATEMENTS, ITEMS) if trouble.expected & set(place) - {"SCORE", "SCALE"}]
    if not places or not (word.type == "NAME" or word in keywords()) or "TILDE" in trouble.expected:
        return None
    if not trouble.new_line and "STAR" in trouble.expected:
        return None
    choices = [literals()[terminal] for terminal in (*STATEMENTS, *ITEMS, "IMPORT") if terminal in trouble.expected]
    where = "outside of a variant" if word.type in STATEMENTS and "VARIANT" in trouble.expected else "here"
    advice = _MISPLACED.get(word.type) or _FROM_ELSEWHERE.get(word) or OPERANDS.get(word, "")
    if not advice and "LET" in trouble.expected and trouble.tokens[trouble.index + 1].type == "EQUAL":
        advice = f"to name a value, write `let {word} = …`"
    diagnostic = Diagnostic(
        "A008",
        f"`{word}` {'cannot stand' if word in keywords() else 'begins nothing'} {where}",
        trouble.at,
        f"expected {either([f'`{choice}`' for choice in choices])}",
        help=advice or did_you_mean(word, choices),
        edit=None if advice else suggested(did_you_mean(word, choices), trouble.at),
    )
    guess = [] if advice else did_you_mean(word, choices).split("`")[1:2]
    return Mistake(diagnostic, tuple((terminals()[choice],) for choice in guess))


_MISPLACED = {
    "IMPORT": "imports stand below `attn 1` and above the first mask, variant or schedule",
    "SCORE": "scores are changed in variants; a mask has `let` and `keep if`",
    "CONST": "write it inside of a variant; a mask has parameters instead",
    "INPUT": "write it inside of a variant; a mask has parameters instead",
    "IF": "write `keep if` and what is true for the pairs that attend",
    "KEEP": "write it inside of a variant or a mask",
    "LET": "write it inside of a variant or a mask",
}

# For lines that would change an operand.
OPERANDS = dict.fromkeys(
    ("q", "k", "v", "query", "key", "value"),
    "a variant sees q, k and v through the score alone: rotate, scale or normalise them before the call",
)

_FROM_ELSEWHERE = {
    "as": "leave it out: masks have the names that their file gives them",
    "def": "write `mask name(parameters) = condition` or `fn name(parameters) = value`",
    "from": "write `import masks`, which brings all masks of a file",
    "keep_if": "write `keep if`",
    "lambda": "write `mask name(parameters) = condition` or `fn name(parameters) = value`",
    "return": "write `keep if` and what is true for the pairs that attend, or `score = value`",
}

# In the order in which they are asked: what is certain before what is likely.
_RULES: tuple[Rule, ...] = (
    _stray,
    _no_version,
    _number_runs_into_name,
    _keep_without_if,
    _foreign_operator,
    _foreign_word,
    _range_of_two,
    _lacks,
    _item_for_let,
    _item_in_variant,
    _never_closed,
    _never_opened,
    _named_argument,
    _equals,
    _no_value,
    _no_else,
    _unfinished,
    _second_version,
    _keyword_as_name,
    _begins_nothing,
)

# -------------------------------------------------------------------- anything else


def _anything_else(trouble: Trouble) -> Mistake:
    advice = _GENERAL_HELP.get(trouble.token.type) or _form(trouble)
    if trouble.token.type == "LSQB" and "TILDE" in trouble.expected:
        advice = "a list is a const of its own: `const name: float[2] = [0.5, 0.25]`"
    if (trouble.before, trouble.token.type) == ("RSQB", "LSQB"):
        advice = "all indices stand in one bracket: `bias[h, q_idx]`"
    diagnostic = Diagnostic("A001", expected_and_found(trouble), trouble.at, help=advice)
    if (kind := trouble.token.type) == "LBRACE" and "TILDE" in trouble.expected:
        return Mistake(diagnostic)
    only = tuple(trouble.expected)
    inserted = ((*only, kind), only) if len(only) == 1 else ()
    return Mistake(diagnostic, (*inserted, (), ("NAME",), ("NAME", kind)))


_GENERAL_HELP = {
    "UNDERSCORE": "`_` stands for an axis of any length, in the brackets of an `input`",
    "STRING": "text in quotes stands after `import`",
}


def _form(trouble: Trouble) -> str:
    """What the statement or item looks like in which the token stands; in an `any`, `all` or `sum`, what that does."""
    opened = trouble.opened[-1] if trouble.opened else None
    reducer = next((word for word, bracket in pairwise(trouble.tokens) if bracket is opened), None)
    if reducer is not None and reducer.type in ("ANY", "ALL", "SUM"):
        return f"the form is `{reducer}(… for i in range(8))`"
    for index in range(trouble.index - 1, -1, -1):
        kind = trouble.tokens[index].type
        if kind == "SCHEDULE" and trouble.opened:
            return "a setting is written `knob = 128`, `knob = word` or `knob = {64, 128}`"
        # Within an expression these two words are values.
        value = kind in ("SCORE", "SCALE") and not first_on_line(trouble.source, trouble.tokens[index])
        if kind in FORMS and not value:
            return f"the form is {FORMS[kind]}"
    return "write `attn 1`, then imports, then masks, variants and schedules"


def _begins_statement(trouble: Trouble) -> bool:
    return trouble.token.type == "RBRACE" or (trouble.token.type in STATEMENTS and trouble.new_line)
