"""The problem behind a mask or a tile map: lengths are given, batch and heads are given or read from the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from ..diagnostics import AttnccError, Diagnostic
from ..evaluate import Array, Environment
from ..ir import MAX_LENGTH, Expr, Variant, reads
from ..statements import MASK_FLOAT, effective_scale
from .arrays import environment, facts
from .call_arguments import Call
from .facts import ArrayFacts, Signature
from .inputs import check_inputs
from .problem import Problem, Sequence
from .refusal import refused
from .values import check_ranges

# The sizes that must be known for a built-in name, and the size that an axis tag tells.
_SIZES_OF_NAME = {
    "b": ("batch",),
    "h": ("num_heads",),
    "num_heads": ("num_heads",),
    "kv_h": ("num_heads", "num_kv_heads"),
    "num_kv_heads": ("num_kv_heads",),
    "head_dim": ("head_dim",),
}
_NEVER_ZERO = ("num_kv_heads", "head_dim", "block_q", "block_kv")
_SIZE_OF_TAG = {"batch": "batch", "head": "num_heads", "kv_head": "num_kv_heads"}


@dataclass(frozen=True)
class BoundMask:
    """A checked call for a mask. `batch` and `heads` are 1 where the keep lines don't depend on them."""

    variant: Variant
    problem: Problem
    inputs: Mapping[str, Array]
    batch: int
    heads: int

    def environments(self) -> Iterator[Environment]:
        """What the keep lines read, one environment for each of `batch`; `h` has shape [heads, 1, 1]."""
        reads_scale = _reads_scale(self.variant)
        for b in range(self.batch):
            sequence = Sequence.whole(b, self.problem.q_len, self.problem.kv_len)
            bare = environment(self.variant, self.problem, sequence, self.inputs, MASK_FLOAT)
            bare = bare.with_symbols(**{name: bare.symbols[name][: self.heads] for name in ("h", "kv_h")})
            scale = effective_scale(self.variant, bare, None) if reads_scale else None
            yield bare if scale is None else bare.with_symbols(scale=scale)


def bind_mask(
    variant: Variant, q_len: int, kv_len: int, inputs: Mapping[str, Any], sizes: Mapping[str, int | None]
) -> BoundMask:
    """Checks what the mask of a variant needs. `sizes` holds `batch`, `num_heads`, `num_kv_heads` and `head_dim`, None
    where not given. Inputs that the keep lines don't read may be left out.

    AttnccError A6xx for a bad input; A615 for a size that can't be; A620 for a size that is needed and unknown.
    """
    q_len, kv_len = size_of("q_len", q_len), size_of("kv_len", kv_len)
    sizes = {name: None if size is None else size_of(name, size) for name, size in sizes.items()}
    needed = reads(variant, *_roots(variant))
    known = {name: _known_size(variant, name, size, inputs) for name, size in sizes.items()}
    for name in sorted(needed & _SIZES_OF_NAME.keys()):
        for size in _SIZES_OF_NAME[name]:
            if known[size] is None:
                raise _unknown_size(name, size)
    problem = _mask_problem(q_len, kv_len, known)
    nothing = ArrayFacts((), (), "float64")
    call = Call(nothing, nothing, nothing, tuple((name, facts(name, value)) for name, value in inputs.items()))
    signature = Signature(variant)
    check_inputs(signature, call, problem, needed)
    check_ranges(signature, {name: value for name, value in inputs.items() if isinstance(value, int)})
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    batch = problem.batch if "b" in needed else 1
    heads = problem.num_heads if needed & {"h", "kv_h"} else 1
    return BoundMask(variant, problem, arrays, batch, heads)


def _reads_scale(variant: Variant) -> bool:
    return "scale" in reads(variant, *(keep.condition for keep in variant.keeps))


def _roots(variant: Variant) -> list[Expr]:
    """The keep conditions, and the scale line where they read `scale`."""
    conditions = [keep.condition for keep in variant.keeps]
    return [*conditions, variant.scale] if _reads_scale(variant) and variant.scale is not None else conditions


def _known_size(variant: Variant, name: str, given: int | None, inputs: Mapping[str, Any]) -> int | None:
    """A size as given, else as the axes of the inputs tell it."""
    if given is not None:
        return given
    for declared in variant.inputs:
        array = inputs.get(declared.name)
        missing = (0,) * len(declared.axes)  # or no array: `check_inputs` says so
        shape: tuple[int, ...] = array.shape if isinstance(array, np.ndarray) else missing
        for axis, length in zip(declared.axes, shape, strict=False):
            if _SIZE_OF_TAG.get(axis.tag or "") == name:
                return length
    return None


def size_of(name: str, value: Any) -> int:
    """A length or another size as an int. AttnccError A615 for what can't be one."""
    least = 1 if name in _NEVER_ZERO else 0
    try:
        size = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        size = -1
    if not least <= size <= MAX_LENGTH:
        raise refused(
            "A615", f"`{name}` can't be used", expected=f"an int from {least} to {MAX_LENGTH}", came=repr(value)
        )
    return size


def _mask_problem(q_len: int, kv_len: int, known: Mapping[str, int | None]) -> Problem:
    given = {name: size for name, size in known.items() if size is not None}
    num_kv_heads = given.get("num_kv_heads", 1)
    num_heads = given.get("num_heads", num_kv_heads)
    if num_heads % num_kv_heads:
        came = f"num_heads {num_heads}, num_kv_heads {num_kv_heads}"
        what = "`num_heads` is not a multiple of `num_kv_heads`"
        raise refused("A602", what, expected="as many query heads as key heads, or a multiple", came=came)
    head_dim = given.get("head_dim", 1)
    return Problem(given.get("batch", 1), num_heads, num_kv_heads, q_len, kv_len, head_dim, head_dim)


def _unknown_size(name: str, size: str) -> AttnccError:
    return AttnccError(
        Diagnostic(
            "A620",
            f"the mask depends on `{name}`, but `{size}` is unknown",
            notes=(f"no input that was given has an axis that tells `{size}`",),
            help=f"pass {size}=…",
        )
    )
