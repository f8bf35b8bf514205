"""What a mask keeps is evaluated once for heads and sequences that it doesn't tell apart, and is the same."""

from __future__ import annotations

import numpy as np
import pytest

from attncc.evaluate import Environment, evaluate
from attncc.ir import Variant
from attncc.problem import kept
from attncc.problem.arrays import at_positions
from attncc.problem.kept import Kept
from attncc.semantics.load import load
from attncc.source import SourceFile


def variant(lines: str) -> Variant:
    return load(SourceFile("kept.attn", f"attn 1\nvariant v {{\n{lines}\n}}\n")).variants[0]


def environment(b: int, rows: slice, kv_len: int = 40, **inputs: np.ndarray) -> Environment:
    heads = np.arange(2)[:, None, None]
    sizes = {"q_len": 50, "kv_len": kv_len, "q_offset": kv_len - 50, "q_start": 50 * b, "kv_start": kv_len * b}
    every = Environment({"b": b, "h": heads, "kv_h": heads, "scale": 0.125, **sizes}, inputs)
    return at_positions(every, np.arange(rows.start, rows.stop), np.arange(kv_len))


CASES = [(b, rows, kv_len) for b in range(2) for rows in (slice(0, 16), slice(16, 50)) for kv_len in (40, 41)]


@pytest.mark.parametrize(
    ("lines", "most"),
    [
        ("keep if q_pos >= kv_idx", 4),  # rows and lengths tell parts apart
        ("keep if q_pos >= kv_idx + h", 8),
        ("keep if q_pos >= kv_idx + b", 8),
        ("input n: i32[batch]\nkeep if kv_idx < n[b]", 8),
    ],
)
def test_each_part_is_evaluated_once(lines: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(kept, "evaluate", lambda *given: seen.append(given) or evaluate(*given))
    mask = variant(lines)
    of_call = Kept(mask)
    for b, rows, kv_len in CASES:
        inputs = {"n": np.array([7, 30])} if mask.inputs else {}
        where = environment(b, rows, kv_len, **inputs)
        np.testing.assert_array_equal(of_call.of(where), evaluate(mask.keeps[0].condition, where))
    assert len(seen) == most


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_PAIRS", 1000)
    of_call = Kept(variant("keep if q_pos >= kv_idx"))
    for first in range(0, 48, 16):
        found = of_call.of(environment(0, slice(first, first + 16)))
        assert found is not None and found.size == 640
        assert sum(item.size for item in of_call._known.values()) <= 1000


def test_all_is_kept_without_lines() -> None:
    assert Kept(variant("")).of(environment(0, slice(0, 4))) is None
