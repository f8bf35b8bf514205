"""Random arrays that suit a variant's declarations: what `attncc run`, `attncc show` and the tests work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .evaluate import evaluate
from .ir import Input, Load, Type, Variant
from .problem.arrays import environment
from .problem.facts import INPUT_DTYPES, KERNEL_DTYPES, numpy_dtype
from .problem.inputs import merges, passed_axes
from .problem.problem import Problem, Sequence
from .statements import by_input, keep_condition, scored

Array = NDArray[Any]

FREE_AXIS = 64  # length of an axis `_`
SEGMENTS = 6  # a nondecreasing input has about so many different values


def input_shape(declared: Input, problem: Problem) -> tuple[int, ...]:
    """The shape that an input has in a call; a packed call merges `batch` with a position axis."""
    lengths = {
        None: FREE_AXIS,
        "batch": problem.batch,
        "head": problem.num_heads,
        "kv_head": problem.num_kv_heads,
        "q": problem.q_len,
        "kv": problem.kv_len,
        "pos": problem.kv_len,
    }
    return tuple(lengths[a.tag] if a.length is None else a.length for a in passed_axes(declared, problem))


def inputs(variant: Variant, problem: Problem, rng: np.random.Generator) -> dict[str, Array]:
    """One random array for each input of the variant, in its declared dtype; scalars are 0-d arrays.

    Of what an int may count (a few labels, places in a block, blocks, positions) and how often a bool may be true,
    that is taken which makes the most difference to the variant. Nondecreasing ints are where each of about six
    segments begins, or ends. Floats have magnitudes from 1/256 to 1, scalars from 1 to 16.
    """
    kv_len = longest(problem)
    sorts = sorts_of(variant, problem, kv_len)
    return {item.name: draw(variant, item, problem, sorts[item.name], rng) for item in variant.inputs}


def qkv(problem: Problem, dtype: str, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Normal q, k and v in the problem's layout and a kernel dtype such as `bf16`."""
    shapes = (
        problem.rows_shape(problem.num_heads, problem.q_len, problem.head_dim),
        problem.rows_shape(problem.num_kv_heads, problem.kv_len, problem.head_dim),
        problem.rows_shape(problem.num_kv_heads, problem.kv_len, problem.value_head_dim),
    )
    q, k, v = (rng.standard_normal(shape, np.float32).astype(numpy_dtype(KERNEL_DTYPES[dtype])) for shape in shapes)
    return q, k, v


def longest(problem: Problem) -> int:
    """The keys of the longest sequence; what is likely where only the device knows."""
    if not problem.packed:
        return problem.kv_len
    if problem.kv_starts is None:
        return -(-problem.kv_len // max(problem.batch, 1))
    return max((sequence.kv_len for sequence in problem.sequences()), default=0)


# -------------------------------------------------------------------- arrays

# Ints are drawn below a number, bools true with a probability; nondecreasing ints are segments' begins (0) or ends (1).
Sort = float


def draw(variant: Variant, declared: Input, problem: Problem, sort: Sort, rng: np.random.Generator) -> Array:
    shape = input_shape(declared, problem)
    if declared.dtype == "bool":
        values: Any = rng.random(shape) < sort
    elif declared.nondecreasing:
        values = _rising(declared, problem, shape, sort, rng)
    elif declared.dtype in ("i32", "i64"):
        values = rng.integers(0 if shape or sort == 1 else 1, int(sort), shape)
    else:
        values = _floats(variant, declared, shape, rng)
    return np.asarray(values).astype(numpy_dtype(INPUT_DTYPES[declared.dtype]))


def _rising(declared: Input, problem: Problem, shape: tuple[int, ...], sort: Sort, rng: np.random.Generator) -> Any:
    """For each entry of the last axis where its segment begins, or ends; a packed axis counts within each sequence."""
    length = shape[-1]
    places, first = np.arange(length), _first_of_sequence(declared, problem, length)
    begins = (rng.random(shape) < SEGMENTS / max(length, SEGMENTS)) | (places == first)
    if sort == 0:
        return np.maximum.accumulate(np.where(begins, places, 0), axis=-1) - first
    is_last = np.concatenate([begins[..., 1:], np.ones((*shape[:-1], min(length, 1)), bool)], axis=-1)
    ends = np.where(is_last, places + 1, length)
    return np.minimum.accumulate(ends[..., ::-1], axis=-1)[..., ::-1] - first


def _first_of_sequence(declared: Input, problem: Problem, length: int) -> Array:
    """For each entry of the last axis, the place of the first one of its sequence."""
    starts = problem.q_starts if declared.axes[-1].tag == "q" else problem.kv_starts
    if not (problem.packed and merges(declared) and starts):
        return np.zeros(length, np.int64)
    places = np.searchsorted(starts, np.arange(length), side="right") - 1
    return np.asarray(starts)[places]


def _floats(variant: Variant, declared: Input, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    if isinstance(variant.dropout, Load) and variant.dropout.input == declared.name:
        return 0.125
    if not shape:
        return np.exp2(rng.uniform(0, 4))
    return np.exp2(-rng.uniform(0, 8, shape)) * rng.choice((-1, 1), shape)


# -------------------------------------------------------------------- what makes a difference

_PROBES = 2048  # pairs at which a variant is looked at
_BLOCK = 64
_ROWS = 256  # query rows that suffice to choose
MOST_TOGETHER = 8  # open choices: of more, each is looked at by the lines that read its input


def sorts_of(variant: Variant, problem: Problem, kv_len: int) -> dict[str, Sort]:
    """For each input the sort of values for which another draw changes what is kept, or the scores, at most pairs."""
    choices = {item.name: _choices(item, kv_len) for item in variant.inputs}
    sorts = {name: choice[0] for name, choice in choices.items()}
    open_choices = [item for item in variant.inputs if len(choices[item.name]) > 1]
    if not open_choices or 0 in (problem.batch, problem.q_len, kv_len):
        return sorts
    small = Problem(problem.batch, problem.num_heads, problem.num_kv_heads, min(problem.q_len, _ROWS), kv_len, 64, 64)
    rng, alone = np.random.default_rng(0), by_input(variant) if len(open_choices) > MOST_TOGETHER else {}
    for item in open_choices * (1 + (len(open_choices) > 1)):  # twice: what matters may depend on the others
        probe = Probe(alone.get(item.name, variant), small, rng)
        effects = [probe.effect(item, {**sorts, item.name: sort}) for sort in choices[item.name]]
        sorts[item.name] = choices[item.name][int(np.argmax(effects))]
    return sorts


def _choices(declared: Input, kv_len: int) -> tuple[Sort, ...]:
    if declared.dtype == "bool":
        return (0.75, 0.25)
    if declared.nondecreasing:
        return (0, 1)
    if declared.type is Type.INT and declared.axes:
        return tuple(dict.fromkeys((kv_len + 1, kv_len // _BLOCK + 1, _BLOCK + 1, 3)))
    return (kv_len + 1,)


@dataclass(frozen=True)
class Probe:
    """Looks at random pairs of the first sequence of a dense problem."""

    variant: Variant
    problem: Problem
    rng: np.random.Generator

    def effect(self, declared: Input, sorts: dict[str, Sort]) -> float:
        """The share of pairs that change when one input is drawn again."""
        drawn = {item.name: self.drawn(item, sorts) for item in self.variant.inputs}
        pairs = self.pairs()
        before, after = (
            self.seen(values, pairs) for values in (drawn, {**drawn, declared.name: self.drawn(declared, sorts)})
        )
        return float(np.mean(before != after))

    def drawn(self, item: Input, sorts: dict[str, Sort]) -> Array:
        return draw(self.variant, item, self.problem, sorts[item.name], self.rng)

    def pairs(self) -> dict[str, Array]:
        lengths = {"q_idx": self.problem.q_len, "kv_idx": self.problem.kv_len, "h": self.problem.num_heads}
        return {name: self.rng.integers(0, length, _PROBES) for name, length in lengths.items()}

    def seen(self, drawn: dict[str, Array], pairs: dict[str, Array]) -> Array:
        """What becomes of a score of 1 at each pair: the new score, or -inf where it isn't kept."""
        problem = self.problem
        sequence = Sequence.whole(0, problem.q_len, problem.kv_len)
        bare = environment(self.variant, problem, sequence, drawn, np.float64)
        q_pos, kv_h = pairs["q_idx"] + problem.kv_len - problem.q_len, pairs["h"] // problem.group
        seen = bare.with_symbols(**pairs, q_pos=q_pos, kv_h=kv_h, scale=1.0)
        with np.errstate(all="ignore"):
            scores = np.nan_to_num(scored(self.variant, seen, np.ones(_PROBES)))
        condition = keep_condition(self.variant)
        return scores if condition is None else np.where(evaluate(condition, seen), scores, -np.inf)
