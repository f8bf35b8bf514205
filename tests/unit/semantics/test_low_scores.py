"""A305: which numbers in score lines are low, which aren't, and what comes of the edits."""

from __future__ import annotations

import numpy as np
import pytest

from attncc import reference
from attncc.diagnostics import Diagnostic, Edit
from attncc.semantics.load import load
from attncc.source import SourceFile

HEAD = """attn 1
fn bounded(x) = 50.0 * tanh(x / 50.0)
variant v {
input m: i32[batch, kv]
input slope: f32[head]
const LOW: float = -1e9
let near = q_pos >= kv_idx and kv_idx > 2
"""


def text(lines: str) -> str:
    return f"{HEAD}{lines}\n}}\n"


def found(lines: str) -> list[Diagnostic]:
    program = load(SourceFile("given.attn", text(lines)))
    return [item for item in program.warnings if item.code == "A305"]


# The lines, what is marked, and what the edit writes there ("" where there is none).
EDITED = {
    "score = score if near else -1e9": ("-1e9", "keep if near"),
    "score = -1e9 if near or h > 1 else score": ("-1e9", "keep if not (near or h > 1)"),
    "score = score if near else LOW": ("LOW", "keep if near"),
    "score = score if near else -10000": ("-10000", "keep if near"),
    "score = score if near else -100 * 100": ("-100 * 100", "keep if near"),
    "score = score if score < 3 else -3e38": ("-3e38", "log(0.0)"),
    "score = score + slope[h] if near else -1e5": ("-1e5", "log(0.0)"),
    "score = score + (0.0 if near else -1e30)": ("-1e30", "log(0.0)"),
    "score = score + (0 if near else -10000)": ("-10000", "log(0.0)"),
    "score = score - (0.0 if near else 1e9)": ("1e9", "-log(0.0)"),
    "score = score if near else score - 20000.0": ("20000.0", "-log(0.0)"),
    "let bias = 0.0 if near else -1e9\nscore = bias + score": ("-1e9", "log(0.0)"),
    "score = (0.0 if near else -1e9) + score\nscore = 2 * score + slope[h]": ("-1e9", "log(0.0)"),
    "score = score + 2 * (0.0 if near else -9e3)": ("-9e3", "log(0.0)"),
}
ADVISED = {
    "score = score + (0 if near else 1) * -1e9": "-1e9",
    "score = score + -10000.0 * (1 - m[b, kv_idx])": "-10000.0",
    "score = score + (1.0 - m[b, kv_idx]) * LOW": "LOW",
    "score = score + (1 - (1.0 if near else 0.0)) * -3e4": "-3e4",
    "let bias = 0 if near else -10000\nscore = score + bias": "-10000",
}
OTHERS = [
    "score = score if near else log(0.0)",
    "score = score if near else -1.0 / 0.0",
    "score = score if near else -9999.0",
    "score = score if near else 1e9",
    "score = score - (-1e9 if near else 0.0)",
    "score = score - slope[h] * (q_pos - kv_idx)",
    "score = score - 10000.0 * abs(q_pos - kv_idx)",
    "score = score + -20000.0 * slope[h]",
    "score = score - 0.5 * (kv_idx + 100000)",
    "score = score if score > -1e9 else 0.0",
    "score = score + (1 if kv_idx - q_pos > -10000 else 0)",
    "score = max(score, -1e9)",
    "score = score - 20000.0",
    "score = bounded(score if near else -1e9)",
    "score = score if near else -1e9\nscore = bounded(score)",
    "score = score if near else -1e9\nscore = slope[h]",
    "score = score if near else -1e9\nnormalize sigmoid",
    "keep if (kv_idx if near else -100000) > 0",
]


def applied(edit: Edit) -> str:
    source = edit.span.source.text
    return source[: edit.span.start] + edit.text + source[edit.span.end :]


def output(attn: str) -> np.ndarray:
    """The fp64 reference's, of 9 queries and keys."""
    random = np.random.default_rng(0)
    q, k, v = (random.normal(size=(1, 2, 9, 8)) for _ in range(3))
    variant = load(SourceFile("given.attn", attn)).variants[0]
    slope, m = np.array([0.25, 0.5], np.float32), np.ones((1, 9), np.int32)
    given = {item.name: {"slope": slope, "m": m}[item.name] for item in variant.inputs}
    return np.asarray(reference.forward(variant, q, k, v, **given)[0])


@pytest.mark.parametrize("lines", EDITED)
def test_edits(lines: str) -> None:
    """The warning is gone, there is no error, and rows in which a pair stays have the same result."""
    marked, written = EDITED[lines]
    (item,) = found(lines)
    assert item.severity == "warning" and item.span is not None and item.span.text == marked
    assert item.edit is not None and item.edit.text == written and f"`{written}`" in item.help
    after = applied(item.edit)
    assert "A305" not in [item.code for item in load(SourceFile("given.attn", after)).warnings]
    assert written in after
    live = slice(3, None)  # the first three queries may have no key
    np.testing.assert_allclose(output(after)[:, :, live], output(text(lines))[:, :, live], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("lines", ADVISED)
def test_where_minus_infinity_is_no_substitute(lines: str) -> None:
    (item,) = found(lines)
    assert item.span is not None and item.span.text == ADVISED[lines]
    assert item.edit is None and "`keep if`" in item.help


@pytest.mark.parametrize("lines", OTHERS)
def test_other_numbers(lines: str) -> None:
    assert not found(lines)


def test_many_ways_to_one_number_end() -> None:
    """Each line reads the score twice, at factors that make all ways differ."""
    lines = [f"score = {2 * i + 3} * score + {2 * i + 4} * score" for i in range(40)]
    assert len(found("\n".join(["score = score if near else -1e9", *lines]))) == 1
