"""Bits that are compared, as equal numbers."""

from __future__ import annotations

import pytest

from attncc.ir import Apply, show

from .test_arcs import forms


@pytest.mark.parametrize(
    "lines",
    [
        (
            "q_idx // 64 == kv_idx // 64",
            "(q_idx ^ kv_idx) < 64",
            "(q_idx ^ kv_idx) >> 6 == 0",
            "(q_idx & -64) == kv_idx & -64",
        ),
        ("q_idx // 64 != kv_idx // 64", "(q_idx ^ kv_idx) >= 64", "not (q_idx ^ kv_idx) // 64 == 0"),
        ("q_idx == kv_idx", "(q_idx ^ kv_idx) == 0", "(q_idx ^ kv_idx) < 1"),
        ("d % 2 == 0 and q_idx % 4 == 0", "((d | (2 * d)) & 1) == 0 and (q_idx & 3) == 0"),
        ("d % 2 == 0 and q_idx // 8 % 4 == 0", "(d & 1) == 0 and (q_idx & 24) == 0"),
        (
            "q_idx // 64 == kv_idx // 64 and q_idx // 4 % 4 == kv_idx // 4 % 4",
            "q_idx // 4 % 4 == kv_idx // 4 % 4 and ((q_idx ^ kv_idx) & -64) == 0",
        ),
        ("(q_idx & -52) == (kv_idx & -52)", "((q_idx ^ kv_idx) & -52) == 0"),
    ],
)
def test_one_form(lines: tuple[str, ...]) -> None:
    parts = [set(found.args) if found.op == "and" else {found} for found in forms(*lines) if isinstance(found, Apply)]
    assert parts == [parts[0]] * len(lines)


def test_what_may_be_negative_stays() -> None:
    """Of distances of different signs the exclusive or is below 64, too."""
    (form,) = forms("(d ^ (d + 1)) < 64")
    assert "^" in show(form)
