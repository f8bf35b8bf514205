"""Random calls of random variants: sizes, and arrays in all memory layouts that calls may have."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncc.ir import Input, Variant
from attncc.problem import Problem
from attncc.problem.facts import INPUT_DTYPES, KERNEL_DTYPES
from attncc.problem.inputs import merges
from attncc.semantics.load import load
from attncc.source import SourceFile
from attncc.synthetic import input_shape
from tests.random_variants.variants import RandomVariant

Array = NDArray[Any]

HEADS = ((2, 2), (2, 1), (4, 2), (3, 1))
LENGTHS = (1, 7, 33, 64, 90, 130)
DRAWS, DRAWS_OF_FEW, FEW = 3, 12, 16
SCALES = (None, None, None, 0.3, -0.2, 0.0)


@dataclass(frozen=True)
class RandomCall:
    """The arrays and numbers of a forward call, and of the backward call behind it."""

    problem: Problem
    q: Array
    k: Array
    v: Array
    dout: Array
    dlse: Array | None
    inputs: dict[str, Array]
    scale: float | None
    seed: int
    cu: tuple[Array, Array] | None

    @property
    def arguments(self) -> dict[str, Any]:
        """As the reference and kernels take them, besides q, k and v."""
        given: dict[str, Any] = {"scale": self.scale, "seed": self.seed, **self.inputs}
        if self.cu is not None:
            given |= {"cu_seqlens_q": self.cu[0], "cu_seqlens_kv": self.cu[1]}
        return given


def parsed(variant: RandomVariant) -> Variant:
    (found,) = load(SourceFile(f"random_{variant.seed}.attn", variant.text)).variants
    return found


def random_problem(
    random: Random,
    head_dims: tuple[int, int],
    *,
    packs: bool,
    lengths: tuple[int, ...],
    kv_lengths: tuple[int, ...] | None = None,
    groups: tuple[tuple[int, int], ...] = HEADS,
) -> Problem:
    """`lengths` are those of queries, and where nothing else is given, of keys. `groups`: heads, and heads of keys."""
    heads, kv_lengths = random.choice(groups), kv_lengths or lengths
    if not packs:
        batch = random.choice((1, 2))
        q_len, kv_len = random.choice(lengths), random.choice(kv_lengths)
        q_len = kv_len if random.random() < 0.4 and kv_len in lengths else q_len
        return Problem(batch, *heads, q_len, kv_len, *head_dims)
    starts = [(0, 0)]
    for _ in range(random.choice((1, 2, 4))):
        own = random.choice((0, *lengths)) // 2, random.choice((0, *kv_lengths))
        starts.append((starts[-1][0] + own[0], starts[-1][1] + own[1]))
    q_starts, kv_starts = (tuple(starts[i][side] for i in range(len(starts))) for side in (0, 1))
    rows, keys = max(q_starts[-1], 1), max(kv_starts[-1], 1)
    return Problem(len(starts) - 1, *heads, rows, keys, *head_dims, packed=True, q_starts=q_starts, kv_starts=kv_starts)


def draws(problem: Problem) -> int:
    """How many draws of arrays show a defect of a kernel that no chance explains. The rule asks of a mean, which of one
    query or one key depends on few numbers, such as the rounding of a single probability."""
    return DRAWS_OF_FEW if min(problem.q_len, problem.kv_len) < FEW else DRAWS


def random_call(variant: Variant, problem: Problem, dtype: str, seed: int, draw: int = 0) -> RandomCall:
    """Draws of one seed differ in the values of arrays alone, so that a defect shows in all of them."""
    rng, once = np.random.default_rng((seed, draw)), np.random.default_rng(seed)
    kind = KERNEL_DTYPES[dtype]

    def normal(heads: int, length: int, columns: int) -> Array:
        made: Array = rng.standard_normal(problem.rows_shape(heads, length, columns), np.float32).astype(kind)
        return made

    q = normal(problem.num_heads, problem.q_len, problem.head_dim)
    k = normal(problem.num_kv_heads, problem.kv_len, problem.head_dim)
    v = normal(problem.num_kv_heads, problem.kv_len, problem.value_head_dim)
    dout = normal(problem.num_heads, problem.q_len, problem.value_head_dim)
    softmax = variant.normalize == "softmax"
    dlse = rng.standard_normal(problem.lse_shape).astype(np.float32) if softmax and once.random() < 0.5 else None
    scale = SCALES[once.integers(len(SCALES))]
    inputs = {item.name: _values(item, problem, rng, once) for item in variant.inputs}
    cu = None
    if problem.q_starts is not None and problem.kv_starts is not None:
        cu = np.asarray(problem.q_starts, np.int32), np.asarray(problem.kv_starts, np.int32)
    return RandomCall(problem, q, k, v, dout, dlse, inputs, scale, int(once.integers(2**40)), cu)


def _values(declared: Input, problem: Problem, rng: np.random.Generator, once: np.random.Generator) -> Array:
    """Floats of about 0.5, a rate of dropout, few labels, in order where that is declared, but not always."""
    shape = input_shape(declared, problem)
    if declared.name == "rate":
        values: Any = once.choice((0.0, 0.125, 0.4))
    elif declared.dtype == "bool":
        values = rng.random(shape) < 0.7
    elif declared.dtype in ("i32", "i64"):
        values = rng.integers(-1, 9, shape)
        values = np.sort(values, axis=-1) if declared.nondecreasing and once.random() < 0.8 else values
    else:
        values = 0.5 * rng.standard_normal(shape)
    array = np.asarray(values).astype(INPUT_DTYPES[declared.dtype])
    return array if declared.learnable or merges(declared) else _laid_out(array, once)


def _laid_out(array: Array, rng: np.random.Generator) -> Array:
    """The values in another order of memory, as every other entry, or with an axis that repeats one."""
    if array.ndim == 0 or rng.random() < 0.5:
        return array
    way = rng.integers(3)
    if way == 0:
        return np.asfortranarray(array)
    if way == 1:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    axis = int(rng.integers(array.ndim))
    return np.broadcast_to(array.take([0], axis), array.shape) if array.size else array


def sorts(random: Random) -> tuple[str, tuple[int, int]]:
    """A dtype and head dims."""
    return random.choice(("bf16", "fp16")), random.choice(((16, 16), (32, 32), (64, 64), (40, 24), (24, 72)))
