"""The tiles of shipped kernels, as trying has chosen them (`python -m benchmarks.choices`): so nobody tries again.

A row that is stale does no harm. Its tiles are the first to be tried, and are taken if they are good.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")


def known_tiles(key: str) -> str | None:
    """What was chosen for `Candidates` of this key."""
    return _rows().get(key)


def write(rows: dict[str, tuple[str, str]]) -> None:
    """Key and tiles of each kernel, by its name."""
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


@cache
def _rows() -> dict[str, str]:
    kept: dict[str, tuple[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return dict(kept.values())
