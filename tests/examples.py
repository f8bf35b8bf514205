"""Random cases by number: the first of them every day, the others marked slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def examples(count: int, every_day: int) -> list[Any]:
    """Values of a parameter `numbers`: what a plain `pytest` goes through, and what `pytest -m slow` does besides."""
    first, rest = range(every_day), range(every_day, count)
    return [
        pytest.param(first, id=f"first {every_day}"),
        pytest.param(rest, id=f"other {len(rest)}", marks=pytest.mark.slow),
    ]


def slow_beyond(every_day: int, values: Sequence[Any]) -> list[Any]:
    """Values of a parameter, or tuples of several parameters; all behind the first few are marked slow."""
    rest = (value if isinstance(value, tuple) else (value,) for value in values[every_day:])
    return [*values[:every_day], *(pytest.param(*value, marks=pytest.mark.slow) for value in rest)]
