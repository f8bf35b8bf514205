"""Writes `vscode/syntaxes/attn.tmLanguage.json`, the TextMate grammar, from the words of the language.

    python editors/make_textmate.py

The words come from the grammar and the tables of built-ins (attncc/lsp/words.py); a test compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FILE = HERE / "vscode" / "syntaxes" / "attn.tmLanguage.json"
sys.path.insert(0, str(HERE.parent))


def _one_of(names: Iterable[str]) -> str:
    return rf"\b({'|'.join(sorted(names, reverse=True))})\b"


def _named(*sorts: str) -> str:
    from attncc.lsp.words import of_sort

    return _one_of({word.name for word in of_sort(*sorts)})


def _match(pattern: str, name: str = "", **captures: str) -> dict[str, Any]:
    """A rule; `_1="keyword"` names the scope of its first group."""
    rule: dict[str, Any] = {"match": pattern}
    if name:
        rule["name"] = f"{name}.attn"
    if captures:
        rule["captures"] = {key.strip("_"): {"name": f"{scope}.attn"} for key, scope in captures.items()}
    return rule


def _include(*names: str) -> list[dict[str, Any]]:
    return [{"include": f"#{name}"} for name in names]


def grammar() -> dict[str, Any]:
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "attn",
        "scopeName": "source.attn",
        "fileTypes": ["attn"],
        "patterns": _include("comment", "schedule", "declaration", "input", "statement", "expression"),
        "repository": {
            "comment": _match(r"#.*$", "comment.line.number-sign"),
            "declaration": {"patterns": _declarations()},
            "input": _input(),
            "schedule": _schedule(),
            "statement": {"patterns": _statements()},
            "expression": {"patterns": _expressions()},
            "setting": _match(r"\b[a-z]\w*\b", "support.constant"),
            "atom": {"patterns": _atoms()},
        },
    }


def _declarations() -> list[dict[str, Any]]:
    return [
        _match(r"^\s*(attn)\s+(\d+)", _1="keyword.other", _2="constant.numeric"),
        _match(r"\b(import)\s+(\w+)", _1="keyword.control.import", _2="entity.name.namespace"),
        _match(r"\b(variant)\s+(\w+)", _1="storage.type", _2="entity.name.type"),
        _match(r"\b(mask|fn)\s+(\w+)", _1="storage.type", _2="entity.name.function"),
        _match(r"\b(const)\s+(\w+)\s*(?=:)", _1="keyword.other", _2="variable.other.constant"),
        _match(r"\b(let)\s+(\w+)\s*(?==)", _1="keyword.other", _2="variable.other"),
    ]


def _statements() -> list[dict[str, Any]]:
    return [
        _match(r"\b(keep)\s+(if)\b", _1="keyword.control", _2="keyword.control"),
        _match(r"\b(score)\s*(=)(?!=)", _1="keyword.other", _2="keyword.operator"),
        _match(r"^\s*(scale)\b", _1="keyword.other"),
        _match(rf"\b(normalize)\s+(?:{_named('normalizer')})?", _1="keyword.other", _2="support.constant"),
        _match(r"\b(sink|dropout)\b", _1="keyword.other"),
    ]


def _input() -> dict[str, Any]:
    """Up to the end of its line."""
    return {
        "begin": r"\b(input)\s+(\w+)\s*(:)?",
        "end": r"(?=#|$|\}|\b(?:const|input|let|keep|score|scale|sink|normalize|dropout)\b)",
        "beginCaptures": {"1": {"name": "keyword.other.attn"}, "2": {"name": "variable.parameter.attn"}},
        "patterns": [
            _match(_named("dtype"), "support.type"),
            _match(_named("tag"), "support.constant"),
            _match(_named("property"), "storage.modifier"),
            *_include("expression"),
        ],
    }


def _schedule() -> dict[str, Any]:
    """Its head, and its settings up to the closing brace; those of candidates are inside. A name before
    `=` is a knob, any other a value: `check` knows which there are."""
    head = r"\b(schedule)\s+(\w+)\s+(for)\s+(\w+)(?:\s+(?!on\b)(\w+))?\s+(on)\s+(\w+)"
    head += rf"(?:\s+(for)\s+{_named('lengths')}\s+(\d[\d_]*\.\.(?:\d[\d_]*)?))?\s*(\{{)"
    scopes = (
        "storage.type", "entity.name.function", "keyword.control", "entity.name.type", "support.constant",
        "keyword.control", "support.constant", "keyword.control", "keyword.other", "constant.numeric",
        "punctuation.section",
    )  # fmt: skip
    return {
        "begin": head,
        "end": r"\}",
        "beginCaptures": {str(place): {"name": f"{scope}.attn"} for place, scope in enumerate(scopes, 1)},
        "patterns": [
            *_include("comment"),
            _match(r"\b([a-z]\w*)\s*(=)", _1="variable.other.property", _2="keyword.operator"),
            {"begin": r"\{", "end": r"\}", "patterns": _include("comment", "setting", "atom")},
            *_include("setting", "atom"),
        ],
    }


def _expressions() -> list[dict[str, Any]]:
    return [
        _match(_named("constant"), "constant.language"),
        _match(_one_of(["and", "or", "not", "in"]), "keyword.operator.word"),
        _match(_one_of(["if", "else", "for", "on", "range"]), "keyword.control"),
        _match(_named("function", "reduction") + r"(?=\s*\()", "support.function"),
        _match(_named("value"), "variable.language"),
        _match(_named("type", "dtype"), "support.type"),
        _match(_named("item", "statement", "operator", "reduction"), "keyword.other"),
        _match(r"\b([A-Za-z]\w*)(?=\s*\()", "entity.name.function"),
        *_include("atom"),
    ]


def _atoms() -> list[dict[str, Any]]:
    return [
        _match(r"\b0[xX][0-9A-Fa-f]+\b", "constant.numeric.hex"),
        _match(r"(?:\b\d[\d_]*\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\b\d[\d_]*[eE][+-]?\d+", "constant.numeric.float"),
        _match(r"\b\d[\d_]*\b", "constant.numeric.integer"),
        _match(r'"[^"\n]*"', "string.quoted.double"),
        _match(r"//|<<|>>|[<>=!]=|[-+*/%&|^~<>=]", "keyword.operator"),
    ]


def text() -> str:
    return json.dumps(grammar(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
