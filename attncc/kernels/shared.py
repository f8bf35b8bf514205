"""Sizes of shared memory, part by part: the factors of each, so that messages can show how they multiply."""

from __future__ import annotations

from math import prod

Parts = dict[str, dict[str, int]]


def shared_bytes(parts: Parts) -> int:
    return sum(prod(factors.values()) for factors in parts.values())
