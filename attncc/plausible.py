"""Inputs as models bring them, for what people look at: documents of some hundred positions, few global positions,
spans that are contiguous. (`synthetic` draws the harder ones that tests and `attncc run` work on.)

Names say nothing here. What an input is for is seen from the mask: whether more or less is kept where the input is
greater, or nothing changes where all of it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import synthetic
from .analysis.algebra.ranges import Range, StaticRanges
from .diagnostics import AttnccError, Diagnostic
from .ir import Axis, Input, Load, Symbol, Type, Variant, walk
from .problem import Problem
from .problem.facts import INPUT_DTYPES, numpy_dtype
from .problem.inputs import POSITION_TAGS
from .statements import by_input, mask_alone

Array = NDArray[Any]

SEGMENT = 512  # positions that a document has, about
_MOST_SEGMENTS = 12
_GLOBAL = 256  # of so many positions one is a global one
_MOST_ENTRIES = 2**24
_ROWS = 256
_POSITIONS = ("q_idx", "q_pos", "kv_idx")
MOST_DRAWN = 2**26  # entries of the inputs of a mask, for what people look at: about half a GB while they are drawn


class Role(Enum):
    LABEL = "label"  # nothing changes where each is one more
    BEGIN = "begin"  # less is kept where it is greater
    END = "end"
    OTHER = "other"


@dataclass(frozen=True)
class Drawn:
    """An input that was drawn, and how, in words."""

    declared: Input
    array: Array
    how: str

    def __str__(self) -> str:
        return f"{self.declared.show()}: {self.how}"


def drawn(variant: Variant, problem: Problem, seed: int, given: Mapping[str, Any]) -> dict[str, Drawn]:
    """Each input of a dense problem that isn't given."""
    wanted = [item for item in variant.inputs if item.name not in given]
    if not wanted:
        return {}
    sized, rng = _sized(variant, problem), np.random.default_rng(seed)
    sorts = synthetic.sorts_of(sized, problem, problem.kv_len)
    looks, segments = _Looks(sized, problem, sorts), Segments.of(problem, np.random.default_rng(seed))
    found = {}
    for item in wanted:
        own = sized.input(item.name)
        array, how = _drawn(own, looks, segments, synthetic.draw(sized, own, problem, sorts[item.name], rng), rng)
        found[item.name] = Drawn(item, array.astype(numpy_dtype(INPUT_DTYPES[item.dtype])), how)
    return found


def arrays(variant: Variant, problem: Problem, seed: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are given, and the others as `drawn`."""
    return {name: item.array for name, item in drawn(variant, problem, seed, given).items()} | dict(given)


def of_mask(variant: Variant, problem: Problem, seed: int, given: Mapping[str, Any]) -> dict[str, Drawn]:
    """Of the inputs that the keep lines read those that aren't given.

    AttnccError A630 where they would have more than `MOST_DRAWN` entries together.
    """
    mask = mask_alone(variant)
    sized = _sized(mask, problem)
    entries = {item.name: prod(synthetic.input_shape(item, problem)) for item in sized.inputs if item.name not in given}
    if sum(entries.values()) > MOST_DRAWN:
        raise _too_large(mask, entries, problem)
    return drawn(mask, problem, seed, given)


def _too_large(mask: Variant, entries: Mapping[str, int], problem: Problem) -> AttnccError:
    largest = max(entries, key=entries.__getitem__)
    count, total = len(entries), sum(entries.values())
    inputs = f"{count} inputs that the mask reads have" if count > 1 else "an input that the mask reads has"
    shape = ", ".join(map(str, synthetic.input_shape(mask.input(largest), problem)))
    return AttnccError(
        Diagnostic(
            "A630",
            f"{inputs} {total:,} entries, too many to draw",
            mask.input(largest).span,
            notes=(
                f"at most {MOST_DRAWN:,} are drawn at random; `{largest}` alone has {entries[largest]:,}: [{shape}]",
            ),
            help="ask about shorter lengths or fewer heads and sequences, or give arrays",
        )
    )


# -------------------------------------------------------------------- axes of any length


def _sized(variant: Variant, problem: Problem) -> Variant:
    """The variant with lengths for axes `_`: as long as the indices go, where that is known and not too long."""
    sizes = {name: getattr(problem, name) for name in ("q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim")}
    lengths = {"b": problem.batch, "h": problem.num_heads, "kv_h": problem.num_kv_heads}
    lengths |= {"q_idx": problem.q_len, "kv_idx": problem.kv_len}
    known = {name: Range(size, size) for name, size in sizes.items()}
    known |= {name: Range(0, max(length, 1) - 1) for name, length in lengths.items()}
    ahead = problem.kv_len - problem.q_len
    known["q_pos"] = Range(ahead, max(problem.kv_len - 1, ahead))
    ranges = StaticRanges(variant, known)
    return replace(variant, inputs=tuple(_with_lengths(item, variant, ranges, problem) for item in variant.inputs))


def _with_lengths(declared: Input, variant: Variant, ranges: StaticRanges, problem: Problem) -> Input:
    axes = list(declared.axes)
    for place, axis in enumerate(axes):
        if axis.tag is None and axis.length is None:
            most = max((ranges.of(load.indices[place]).high for load in _loads(variant, declared.name)), default=0)
            axes[place] = Axis(length=most + 1)
    longer = replace(declared, axes=tuple(axes))
    fits = prod(synthetic.input_shape(longer, problem)) <= _MOST_ENTRIES
    return longer if fits else declared


def _loads(variant: Variant, name: str) -> list[Load]:
    roots = [item.condition if hasattr(item, "condition") else item.value for item in variant.statements]
    return [node for node in walk(*roots) if isinstance(node, Load) and node.input == name]


# -------------------------------------------------------------------- what an input is for


class _Looks:
    """What the mask keeps at random pairs of the first rows, by the values of one input."""

    def __init__(self, variant: Variant, problem: Problem, sorts: Mapping[str, float]) -> None:
        self.problem = replace(problem, q_len=min(problem.q_len, _ROWS))
        self._variant, self._rng = variant, np.random.default_rng(0)
        self._own = by_input(variant) if len(variant.inputs) > synthetic.MOST_TOGETHER else {}
        probe = synthetic.Probe(variant, self.problem, self._rng)
        self._inputs = {item.name: probe.drawn(item, dict(sorts)) for item in variant.inputs}
        self._pairs = probe.pairs() if 0 not in (problem.batch, problem.q_len, problem.kv_len) else None

    def at_positions(self, declared: Input) -> bool:
        """Whether the last axis has no tag and only positions index it, as imported mods have it."""
        places = [load.indices[-1] for load in _loads(self._variant, declared.name)]
        untagged = declared.axes[-1].tag is None and bool(places)
        return untagged and all(isinstance(place, Symbol) and place.name in _POSITIONS for place in places)

    def kept(self, name: str, change: Any) -> Array:
        """bool at each pair, where an input's array became `change` of it."""
        if self._pairs is None:
            return np.zeros(1, np.bool_)
        array = self._inputs[name]
        changed = np.broadcast_to(change(array), array.shape).astype(array.dtype)
        own = self._own.get(name, self._variant)
        values = {item.name: self._inputs[item.name] for item in own.inputs} | {name: changed}
        return np.asarray(synthetic.Probe(own, self.problem, self._rng).seen(values, self._pairs) != -np.inf)

    def role(self, name: str) -> Role:
        least, most = (self.kept(name, lambda _, value=value: value).mean() for value in (0, self.problem.kv_len))
        if most != least:
            return Role.END if most > least else Role.BEGIN
        same = (self.kept(name, lambda array: array + 1) == self.kept(name, lambda array: array)).all()
        differs = (self.kept(name, lambda array: array * 0) != self.kept(name, lambda array: array)).any()
        return Role.LABEL if same and differs else Role.OTHER


# -------------------------------------------------------------------- arrays


@dataclass(frozen=True)
class Segments:
    """Documents: of each sequence, for every position, int64 [batch, kv_len]."""

    number: Array
    begin: Array
    end: Array

    @classmethod
    def of(cls, problem: Problem, rng: np.random.Generator) -> Segments:
        """Their lengths vary, and add up to kv_len."""
        length, places = problem.kv_len, np.arange(problem.kv_len)
        count = min(max(length // SEGMENT, 2), _MOST_SEGMENTS)
        shares = rng.dirichlet(np.full(count, 3.0), problem.batch)
        ends = np.maximum.accumulate(np.rint(np.cumsum(shares, axis=1) * length).astype(np.int64), axis=1)
        ends[:, -1] = length
        number = np.array([np.searchsorted(row, places, side="right") for row in ends]).reshape(problem.batch, length)
        begins = np.concatenate([np.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
        return cls(number, *(np.take_along_axis(of, number, axis=1) for of in (begins, ends)))

    def lengths(self) -> str:
        sizes = (self.end - self.begin).ravel()
        count = len(np.unique(self.number))
        return f"{count} of {sizes.min()} to {sizes.max()} positions"


def _drawn(
    declared: Input, looks: _Looks, segments: Segments, array: Array, rng: np.random.Generator
) -> tuple[Array, str]:
    """An input's array and how it was drawn; `array`: what `synthetic` has."""
    tags = [axis.tag for axis in declared.axes]
    by_position = bool(tags) and ((all(tags) and tags[-1] in POSITION_TAGS) or looks.at_positions(declared))
    if declared.type is Type.FLOAT:
        return array, "floats at random" if array.ndim else f"{array.item():.4g}"
    if declared.type is Type.BOOL:
        return (
            _flags(looks, array, rng, declared) if by_position else (array, f"true at {array.mean():.0%} of the places")
        )
    role = looks.role(declared.name)
    if by_position and role is not Role.OTHER:
        return _spans(declared, segments, array.shape, role), f"{_WORDS[role]} {segments.lengths()}"
    if all(tags) and not set(tags) & set(POSITION_TAGS) and role in (Role.BEGIN, Role.END):
        return _lengths(array, looks.problem.kv_len, rng)
    if declared.axes[-1:] == (Axis(length=2),):
        return np.sort(array, axis=-1), f"{_ends(array)}, pairs in order"
    return array, _ends(array)


_WORDS = {Role.LABEL: "the numbers of segments,", Role.BEGIN: "where segments begin,", Role.END: "where segments end,"}


def _spans(declared: Input, segments: Segments, shape: tuple[int, ...], role: Role) -> Array:
    """What each position has of its segment, in the axes of the input: batch and heads before positions."""
    of = {Role.LABEL: segments.number, Role.BEGIN: segments.begin, Role.END: segments.end}[role]
    of = of[:, of.shape[1] - shape[-1] :]
    tags = [axis.tag for axis in declared.axes[:-1]]
    of = of if "batch" in tags else of[:1]
    place = tags.index("batch") if "batch" in tags else 0
    aligned = [1] * len(tags)
    if tags:
        aligned[place] = len(of)
    return np.broadcast_to(of.reshape(*aligned, shape[-1]), shape)


def _lengths(array: Array, kv_len: int, rng: np.random.Generator) -> tuple[Array, str]:
    low, high = kv_len // 16, max(kv_len // 4, kv_len // 16 + 1)
    found = np.asarray(rng.integers(low, high, array.shape))
    return found, _ends(found)


def _ends(array: Array) -> str:
    if array.size < 2:
        return ", ".join(map(str, array.ravel()))
    return f"ints from {array.min()} to {array.max()}"


def _flags(looks: _Looks, array: Array, rng: np.random.Generator, declared: Input) -> tuple[Array, str]:
    """True nearly everywhere where nothing is kept without; else at few positions."""
    length = max(array.shape[-1], 1)
    if not looks.kept(declared.name, lambda _: False).any():
        ends = rng.integers(length - length // 4, length + 1, (*array.shape[:-1], 1))
        found = np.arange(array.shape[-1]) < ends
        return found, f"true at the first {ends.min(initial=length)} to {ends.max(initial=0)} positions"
    count = max(length // _GLOBAL, 1)
    places = rng.permuted(np.broadcast_to(np.arange(array.shape[-1]), array.shape), axis=-1)
    return places < count, f"true at {count} of {length} positions"
