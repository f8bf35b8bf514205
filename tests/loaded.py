"""Variants, values and error codes of lines of `.attn` text."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncc.diagnostics import AttnccError
from attncc.evaluate import Array, Environment, evaluate
from attncc.ir import Expr, Variant
from attncc.semantics.load import Program, load
from attncc.source import SourceFile


def program(text: str, **defines: Any) -> Program:
    return load(SourceFile("test.attn", f"attn 1\n{text}"), defines)


def variant(lines: str, items: str = "", **defines: Any) -> Variant:
    """The variant with these lines, in a file with these items (or imports) above it."""
    return program(f"{items}\nvariant v {{\n{lines}\n}}\n", **defines).variants[0]


def codes(lines: str, items: str = "", **defines: Any) -> list[str]:
    """The codes of the diagnostics, in order: errors, or if there are none, warnings."""
    try:
        return [item.code for item in program(f"{items}\nvariant v {{\n{lines}\n}}\n", **defines).warnings]
    except AttnccError as error:
        return [item.code for item in error.diagnostics]


def lowered(expression: str, declarations: str = "", items: str = "") -> Expr:
    """One bool expression, as the condition of a keep line."""
    return variant(f"{declarations}\nkeep if {expression}", items).keeps[0].condition


def scored(expression: str, declarations: str = "", items: str = "") -> Expr:
    """One number, as the value of a score line."""
    return variant(f"{declarations}\nscore = {expression}", items).scores[0].value


def kept(spec: Variant, q_len: int, kv_len: int, **given: Any) -> Array:
    """The mask that all keep lines make, bool [q_len, kv_len]. `given`: inputs and symbols (b, h are 0 if not)."""
    q_idx, kv_idx = np.arange(q_len)[:, None], np.arange(kv_len)[None, :]
    positions = {
        "q_idx": q_idx,
        "kv_idx": kv_idx,
        "q_pos": q_idx + kv_len - q_len,
        "q_len": q_len,
        "kv_len": kv_len,
        "q_offset": kv_len - q_len,
    }
    inputs = {item.name: np.asarray(given.pop(item.name)) for item in spec.inputs if item.name in given}
    environment = Environment({"b": 0, "h": 0, **positions, **given}, inputs, spec.lets)
    mask = np.ones((q_len, kv_len), bool)
    for keep in spec.keeps:
        mask &= evaluate(keep.condition, environment)
    return mask
