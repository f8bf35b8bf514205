"""Which of a kernel's candidates was chosen: kept in the cache, so that a later process tries none in vain.

An entry, `<key>.choice`, is found by the text of the first candidate, the target and NVRTC's version. It names the
texts that were tried, by their hashes. What was chosen holds as long as all of them are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..cuda import nvrtc
from .cache import folder, write_file

_FORMAT = "1"  # of entries; part of the key


class Tried(NamedTuple):
    """Candidates in order, as far as they were tried."""

    texts: tuple[str, ...]  # their hashes
    troubles: tuple[str, ...]  # of each; empty for a good one
    chosen: int


def recall(first: str, target: str) -> Tried | None:
    """What an earlier process has tried of candidates whose first has this text. None if that isn't kept."""
    try:
        kept = json.loads(_path(first, target).read_text(encoding="utf-8"))
        texts, troubles, chosen = tuple(map(str, kept["texts"])), tuple(map(str, kept["troubles"])), int(kept["chosen"])
    except (OSError, ValueError, TypeError, KeyError):
        return None  # it is tried again, and replaced
    sound = len(texts) == len(troubles) and chosen in range(len(texts))
    return Tried(texts, troubles, chosen) if sound else None


def remember(texts: Sequence[str], target: str, troubles: Sequence[str], chosen: int) -> None:
    """Keeps what became of candidates with these texts."""
    kept = {"texts": [hash_of(text) for text in texts], "troubles": list(troubles), "chosen": chosen}
    write_file(_path(texts[0], target), json.dumps(kept).encode())


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _path(first: str, target: str) -> Path:
    parts = ("choice", _FORMAT, nvrtc.version(), *nvrtc.options(target), first)
    return folder() / f"{hash_of(chr(0).join(parts))}.choice"
