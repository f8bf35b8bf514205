"""How kernels find the page of a key (PagedAttention, Kwon et al. 2023, section 4.3)."""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from ..problem import Problem

_KEY_BITS = 31  # of the number of a key, which is below 2**30
SWIZZLE_ROWS = 8  # of an atom of the 128-byte swizzle


class Division(NamedTuple):
    """x // divisor is x * magic >> shift, for x below 2**31 (Hacker's Delight, section 10-9)."""

    magic: int
    shift: int

    @classmethod
    def by(cls, divisor: int) -> Division:
        shift = _KEY_BITS + (divisor - 1).bit_length()
        return cls(-(-(1 << shift) // divisor), shift)


def box_rows(block_kv: int, problem: Problem) -> int:
    """The rows of a tile of keys that surely lie in one page: what one load by TMA brings. Tiles begin at multiples of
    their size, so without pages these are all."""
    return block_kv if problem.page is None else gcd(block_kv, problem.page)


def fits_boxes(block_kv: int, problem: Problem) -> bool:
    """Whether such a load is whole groups of rows, after which the swizzle of a tile repeats."""
    return box_rows(block_kv, problem) % SWIZZLE_ROWS == 0


def page_fields(block_kv: int, problem: Problem, pages: int) -> dict[str, int]:
    """The fields of `Params` of a pool of so many pages."""
    assert problem.page is not None
    division = Division.by(problem.page)
    return {
        "page_rows": problem.page, "page_magic": division.magic, "page_shift": division.shift, "pages": pages,
        "max_blocks": problem.kv_len // problem.page, "box_rows": box_rows(block_kv, problem),
    }  # fmt: skip
