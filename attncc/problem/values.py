"""Checks of values that the host can see: Python numbers at each call, cu_seqlens of CPU arrays."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from ..ir import MAX_LENGTH, Const, Input, Load
from ..philox import threshold
from .call_arguments import Arguments, Call
from .facts import Signature
from .inputs import POSITION_TAGS, check_positions, declaration, merges
from .problem import Problem
from .refusal import refused

_INT_BITS = {"i32": 32, "i64": 64}


def check_values(
    signature: Signature,
    scalars: Mapping[str, int | float | bool],
    *,
    seed: object,
    scale: float | None,
    q_offset: object = None,
) -> None:
    """Checks the Python numbers of one call, which a cache of `bind` can't see: scalar inputs, `seed`, `scale`,
    `q_offset`.

    `scalars` holds the scalar inputs that came as numbers; one in a 0-d array is used as it is. AttnccError A610,
    A612, A613, A619, A626.
    """
    if isinstance(q_offset, int):
        check_offset(q_offset)
    check_ranges(signature, scalars)
    if scale is not None and not _is_finite(scale):
        raise refused("A619", "`scale` can't be used", expected="a finite number, or None", came=repr(scale))
    rate = _known_rate(signature, scalars)
    if rate is not None:
        threshold(rate)
    if signature.variant.dropout is not None and rate != 0 and seed is None:
        raise refused(
            "A612",
            "`seed` is missing",
            expected="an int or a 0-d int64 array, since the variant has dropout",
            came="None",
            help="pass seed=…; the same seed gives the same mask",
        )
    if isinstance(seed, int) and not -(2**63) <= seed < 2**64:
        raise refused("A612", "`seed` is too large", expected="an int of at most 64 bits", came=seed)


def _is_finite(scale: object) -> bool:
    if isinstance(scale, float):  # nearly always, and on the way of every call
        return math.isfinite(scale)
    return isinstance(scale, numbers.Real) and not isinstance(scale, bool) and _fits(cast(float, scale))


def _fits(number: float) -> bool:
    return math.isfinite(saturated(number))


def saturated(value: float) -> float:
    """The float of a number; an infinity of an int that no float holds, as kernels take it."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_ranges(signature: Signature, scalars: Mapping[str, int | float | bool]) -> None:
    """AttnccError A610 for the first number that its input's type can't hold."""
    for name, value in scalars.items():
        _check_range(signature.inputs[name], value)


def _check_range(declared: Input, value: float) -> None:
    bits = _INT_BITS.get(declared.dtype)
    if bits is not None and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        what = f"input `{declared.name}` is too large"
        raise refused("A610", what, expected=f"a {bits}-bit int, for {declaration(declared)}", came=value)


def check_arrays(signature: Signature, arrays: Mapping[str, Any]) -> None:
    """Checks int64 arrays given for i32 inputs, where the host sees their values. AttnccError A610."""
    for name, array in arrays.items():
        declared = signature.inputs[name]
        if signature.dtype is not None and declared.dtype == "i32" and array.dtype == np.int64 and array.size:
            _check_range(declared, int(array.min()))
            _check_range(declared, int(array.max()))


def _known_rate(signature: Signature, scalars: Mapping[str, int | float | bool]) -> float | None:
    """The dropout rate where the host knows it: 0 without dropout, None if it is in an array."""
    match signature.variant.dropout:
        case None:
            return 0.0
        case Const(value=value):
            return float(value)
        case Load(input=name):
            return saturated(scalars[name]) if name in scalars else None
    raise TypeError("dropout is a constant or a scalar input")


def know_sequences(signature: Signature, call: Call, problem: Problem, given: Arguments) -> Problem:
    """The problem with cu_seqlens, kv_lens and q_offset known, after checks that need them. AttnccError A616, A625,
    A626, A611, A609."""
    known = replace(
        problem,
        q_starts=known_starts("cu_seqlens_q", given.cu_seqlens_q, problem.q_len),
        kv_starts=known_starts("cu_seqlens_kv", given.cu_seqlens_kv, problem.kv_len),
        kv_lens=known_lengths(given.kv_lens, problem),
        q_offsets=_offsets(given.q_offset, problem),
    )
    if given.block_table is not None:
        _check_table(known, given.block_table, given.k.shape[0])
    if not (problem.varies or problem.has_offset):
        return known
    sequences = list(known.sequences())
    for sequence in sequences:
        check_positions(signature, sequence.q_len, sequence.kv_len)
    longest_q = max((sequence.q_len for sequence in sequences), default=0)
    longest_kv = max((sequence.kv_len for sequence in sequences), default=0)
    _check_shared_axes(signature, call, longest_q, longest_kv)
    return known


_AXIS_OF_ROWS = "; q is [heads, all rows, head dim] in layout bhsd, the default, [all rows, heads, head dim] in bshd"


def known_starts(name: str, array: Any, total: int) -> tuple[int, ...] | None:
    """cu_seqlens of CPU arrays. AttnccError A616."""
    if array is None:
        return None
    starts = tuple(array.tolist())
    rising = all(low <= high for low, high in itertools.pairwise(starts))
    if not rising or starts[0] < 0 or starts[-1] > total:
        raise refused(
            "A616",
            f"`{name}` isn't a list of sequence starts",
            expected=f"values that never fall, from 0 to at most {total}, the rows there are",
            came=_few(starts),
            help="start at 0 and append each sequence's end" + _AXIS_OF_ROWS * (starts[-1] > total),
        )
    return starts


def known_lengths(array: Any, problem: Problem) -> tuple[int, ...] | None:
    """kv_lens of CPU arrays. AttnccError A625."""
    if array is None:
        return None
    lengths = tuple(array.tolist())
    if any(not 0 <= length <= problem.kv_len for length in lengths):
        raise refused(
            "A625",
            "`kv_lens` holds what is no length of its sequence",
            expected=f"0 to {problem.kv_len}, the keys that there is room for",
            came=_few(lengths),
            help="make room for more keys, or pass the lengths that are in use",
        )
    return lengths


def _check_table(problem: Problem, table: Any, pages: int) -> None:
    assert problem.page is not None and problem.kv_lens is not None
    for b, length in enumerate(problem.kv_lens):
        used = table[b, : -(-length // problem.page)]
        if used.size and (used.min() < 0 or used.max() >= pages):
            raise refused(
                "A625",
                f"`block_table` names pages that there aren't, for sequence {b}",
                expected=f"0 to {pages - 1} in the first {used.size} entries, which hold its {length} keys",
                came=_few(tuple(used.tolist())),
                help="entries behind those are never read and may be -1",
            )


def _offsets(value: Any, problem: Problem) -> tuple[int, ...] | None:
    if value is None:
        return None
    offsets = tuple(int(item) for item in np.broadcast_to(np.asarray(value), (problem.batch,)))
    for offset in offsets:
        check_offset(offset)
    return offsets


def check_offset(offset: int) -> None:
    """A626 for what no position can be."""
    if not -MAX_LENGTH <= offset <= MAX_LENGTH:
        expected = f"{-MAX_LENGTH} to {MAX_LENGTH}"
        raise refused("A626", "`q_offset` is out of range", expected=expected, came=offset)


def _few(values: tuple[int, ...]) -> str:
    return f"{list(values[:8])}{'…' if len(values) > 8 else ''}"


def _check_shared_axes(signature: Signature, call: Call, longest_q: int, longest_kv: int) -> None:
    """Inputs that all sequences share must reach as far as the longest."""
    for name, facts in call.inputs:
        declared = signature.inputs[name]
        if merges(declared) or isinstance(facts, type):
            continue
        for axis, length in zip(declared.axes, facts.shape, strict=True):
            needed = longest_q if axis.tag == "q" else longest_kv
            if axis.tag in POSITION_TAGS and length < needed:
                raise refused(
                    "A609",
                    f"axis `{axis}` of input `{name}` has the wrong length",
                    expected=f"at least {needed}, the longest sequence, for {declaration(declared)}",
                    came=length,
                )
