"""What the backward pass costs: FLOPs and bytes, counted as `cost` counts those of forward calls.

Dao, "FlashAttention-2" (2023), Algorithm 2: a block owns keys, and the rows that see them pass by; dQ is added up in
HBM, or made by blocks that own rows. A kernel before them has lse and delta of each row.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..mask.grid import Tally
from .cost import Traffic, Workload


def statistics_traffic(work: Workload) -> Traffic:
    """Of the kernel before the others; nothing without softmax."""
    rows = work.problem.num_heads * sum(sequence.q_len for sequence in work.problem.sequences())
    if not work.softmax:
        return Traffic()
    return Traffic(work.moved(dict.fromkeys(("dout", "out", "lse"), rows)), work.moved({"statistics": rows}))


def keys_traffic(
    work: Workload, tallies: Iterable[Tally], parts: int = 1, *, adds_dq: bool = True, zeros: bool = True
) -> Traffic:
    """Blocks own keys, of which so many `parts` share a tile: dK and dV, and with `adds_dq` the sum of dQ, which
    begins with `zeros` unless the first who comes to rows stores."""
    problem, traffic = work.problem, Traffic()
    for sequence, tally in zip(problem.sequences(), tallies, strict=True):
        keys, rows = problem.num_kv_heads * sequence.kv_len, problem.num_heads * tally.q_len
        passing = dict.fromkeys(("q", "dout", "statistics"), tally.live_rows * parts)
        reads, writes = {"k": keys * parts, "v": keys, **passing}, {"dk": keys, "dv": keys}
        if adds_dq:
            reads["partial_dq"] = rows
            writes |= {"partial_dq": tally.live_rows + rows * zeros, "dq": rows}
        traffic += Traffic(work.moved(reads), work.moved(writes))
    return traffic


def rows_traffic(work: Workload, tallies: Iterable[Tally]) -> Traffic:
    """Blocks own rows: dQ alone."""
    traffic = Traffic()
    for tally in tallies:
        rows = work.problem.num_heads * tally.q_len
        reads = dict.fromkeys(("q", "dout", "statistics"), rows) | dict.fromkeys(("k", "v"), tally.live_keys)
        traffic += Traffic(work.moved(reads), work.moved({"dq": rows}))
    return traffic


def backward_flops(work: Workload, pairs: int, *, padded: bool = False) -> int:
    """2 FLOP for each multiply-add of S, dP, dV, dQ and dK: 10 D a pair where both head dims are D. `padded`: head dims
    as the tensor cores have them."""
    problem = work.problem
    keys, values = (-(-dim // 16) * 16 if padded else dim for dim in (problem.head_dim, problem.value_head_dim))
    return 2 * (3 * keys + 2 * values) * pairs
