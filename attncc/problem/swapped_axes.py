"""Calls whose heads look like lengths: [batch, length, heads, head dim] passed in layout bhsd gives wrong results in
silence, since every shape goes together."""

from __future__ import annotations

from ..diagnostics import Diagnostic, warn
from .facts import ArrayFacts
from .problem import Problem
from .strides import axis_order

MOST_HEADS = 128  # that models have; of key heads, which are as many only without groups
MANY_HEADS = 64  # enough where there are fewer keys than queries, as there are fewer key heads than query heads
_warned: set[str] = set()  # names of variants


def warn_of_swapped_axes(variant: str, q: ArrayFacts, problem: Problem) -> None:
    """Warning A624 at the first call of a variant whose heads are likely lengths. Looks at shapes and strides alone.

    Signs are more key heads than models have, or half as many with fewer keys than queries; lengths that could be
    heads, those of k a divisor of those of q. Arrays that were transposed on the way here, and calls with one row, as
    in decoding, aren't suspected.
    """
    heads_like = 2 <= problem.q_len <= MOST_HEADS and problem.kv_len > 0 and problem.q_len % problem.kv_len == 0
    many = (
        MANY_HEADS if problem.kv_len < problem.q_len and problem.num_heads == problem.num_kv_heads else MOST_HEADS + 1
    )
    if problem.packed or problem.layout != "bhsd" or problem.num_kv_heads < many or not heads_like:
        return
    if variant in _warned or axis_order(q.shape, q.strides) != (0, 1, 2, 3):
        return
    _warned.add(variant)
    warn(
        Diagnostic(
            "A624",
            f"{problem.num_heads} heads of {problem.q_len} rows look like q as [batch, length, heads, head dim]",
            notes=('layout "bhsd", the default, is [batch, heads, length, head dim]',),
            help='pass layout="bshd" if the second axis is the length',
            severity="warning",
        )
    )
