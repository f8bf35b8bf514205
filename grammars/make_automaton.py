"""Writes `attn.json`, the automaton of `attn.lark`, beside it: after a change of the grammar or of lark's version.

python grammars/make_automaton.py
"""

from __future__ import annotations

import json
from pathlib import Path

from lark.grammar import Rule
from lark.lexer import TerminalDef

from attncc.syntax import grammar

HERE = Path(__file__).parent


def automaton(text: str) -> str:
    """JSON: what the automaton is for, its tables, and by number the rules and terminals that these name."""
    data, memo = grammar.make(text).memo_serialize([TerminalDef, Rule])
    return json.dumps({"key": grammar.key(text), "data": data, "memo": memo}, separators=(",", ":"))


if __name__ == "__main__":
    made = automaton((HERE / "attn.lark").read_text(encoding="utf-8"))
    (HERE / "attn.json").write_text(made + "\n", encoding="utf-8")
