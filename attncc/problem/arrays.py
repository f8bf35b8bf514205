"""Calls with NumPy arrays: their facts, the rows of one sequence, and what expressions of that sequence read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..descales import descaled
from ..evaluate import Environment
from ..ir import OFFSET_SYMBOL, Input, Variant
from ..statements import effective_scale
from .bind import bind
from .call_arguments import ARGUMENTS, Arguments
from .facts import ArrayFacts, Signature
from .inputs import POSITION_TAGS, expected_length, merged, passed_axes
from .kept import Kept
from .overlap import elements_meet, shares_memory
from .problem import Problem, Sequence
from .quantized import kv_dtype, scales_of_keys
from .refusal import is_masked, masked, not_an_array, refused
from .shared_prefix import check_prefix
from .strides import zeros_like
from .values import check_arrays, check_values, know_sequences, saturated

Array = NDArray[Any]


@dataclass(frozen=True)
class BoundCall:
    """A checked call with NumPy arrays, and its problem (cu_seqlens known)."""

    variant: Variant
    problem: Problem
    q: Array
    k: Array
    v: Array
    inputs: Mapping[str, Array]
    given: Arguments  # all else, as it came
    shared: frozenset[str] = frozenset()  # of "k", "v": those of batch 1 that serve all sequences, repeated here
    _kept: dict[Variant, Kept] = field(default_factory=dict, init=False, compare=False, repr=False)

    def kept(self, variant: Variant) -> Kept:
        """What a mask keeps of this call: the variant's, or that of a kernel for some of its keys."""
        if variant not in self._kept:
            self._kept[variant] = Kept(variant)
        return self._kept[variant]

    @property
    def seed(self) -> int:
        return 0 if self.given.seed is None else int(self.given.seed)

    def rows(self, array: Array, b: int, start: int, length: int) -> Array:
        """A view [heads, length, head dim] of one sequence's rows of q, k, v or out."""
        whole: Array = array if array.ndim == 3 else array[b]
        heads_first = whole if self.problem.layout == "bhsd" else whole.swapaxes(0, 1)
        return heads_first[:, start : start + length]

    def operand(self, name: str, sequence: Sequence, compute: DTypeLike) -> Array:
        """The rows of q, k or v of one sequence as the numbers that they stand for: [heads, length, head dim]."""
        start, length = (sequence.q_start, sequence.q_len) if name == "q" else (sequence.kv_start, sequence.kv_len)
        array = getattr(self, name)
        if name != "q" and self.problem.page is not None:
            rows = self._paged(array, self.problem.page, sequence).astype(compute)
        else:
            rows = self.rows(array, sequence.b, start, length).astype(compute)
        if name in ("k", "v") and self.kv_dtype is not None:
            return self._dequantized(name, sequence, rows)
        if not descaled(self.variant):
            return rows
        factors = self.inputs[f"{name}_descale"][sequence.b].astype(compute)
        each: Array = np.repeat(factors, len(rows) // len(factors))[:, None, None]
        return np.asarray(rows * each)

    @property
    def kv_dtype(self) -> str | None:
        """`e4m3` or `int8` of a cache of 8 bits beside q of more."""
        return kv_dtype(*(array_facts(name, getattr(self, name)) for name in ("q", "k")))

    def _dequantized(self, name: str, sequence: Sequence, rows: Array) -> Array:
        """Rows [kv_heads, kv_len, head dim] of k or v times their scales, in the rows' precision."""
        scale = self.given.k_scale if name == "k" else self.given.v_scale
        if scale is None:
            return rows
        each = scales_of_keys(scale, self.problem, sequence, self.given.block_table, len(getattr(self, name)))
        return np.asarray(rows * each.astype(rows.dtype)[..., None])

    def _paged(self, pool: Array, page: int, sequence: Sequence) -> Array:
        """The rows of k or v of a sequence, from its pages: [kv_heads, kv_len, head dim]."""
        assert self.given.block_table is not None
        pages = self.given.block_table[sequence.b, : -(-sequence.kv_len // page)]
        found = pool[pages] if self.problem.layout == "bhsd" else pool[pages].swapaxes(1, 2)
        joined: Array = found.swapaxes(0, 1).reshape(found.shape[1], -1, found.shape[-1])
        return joined[:, : sequence.kv_len]

    def gradient(self, name: str, each: Array) -> Array:
        """The gradient of k or v, of those of all sequences: their sum in fp32 or wider, if they share the operand."""
        if name not in self.shared:
            return each
        total = zeros_like((1, *each.shape[1:]), each.dtype, getattr(self, name)[:1])
        total[...] = each.astype(np.promote_types(each.dtype, np.float32)).sum(axis=0, keepdims=True)
        return total

    def lse_rows(self, lse: Array, sequence: Sequence) -> Array:
        """A view [heads, q_len] of one sequence's part of lse."""
        whole: Array = lse if self.problem.packed else lse[sequence.b]
        return whole[:, sequence.q_start : sequence.q_start + sequence.q_len]

    def environment(self, sequence: Sequence, float_dtype: DTypeLike) -> Environment:
        """What expressions of one sequence read, but for positions: `h` and `kv_h` have shape [num_heads, 1, 1]."""
        inputs = sequence_inputs(self.variant, self.problem, sequence, self.inputs)
        bare = environment(self.variant, self.problem, sequence, inputs, float_dtype)
        return bare.with_symbols(scale=effective_scale(self.variant, bare, self.given.scale))


def bind_arrays(
    signature: Signature, q: Array, k: Array, v: Array, taken: Collection[str] = ARGUMENTS, /, **keywords: Any
) -> BoundCall:
    """Checks a call with NumPy arrays, contents of cu_seqlens and numbers included. AttnccError A6xx.

    The keywords are the variant's inputs, and the arguments that are `taken`: of kernels unless said otherwise.
    """
    given = Arguments.of(q, k, v, keywords, taken)
    inputs, seed = given.inputs, given.seed
    call = given.facts(array_facts, facts)
    problem = bind(signature, call)
    if given.out is not None:
        _check_out(given.out, {"q": q, "k": k, "v": v, **inputs})
    check_arrays(signature, {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)})
    numbers = {name: plain(value) for name, value in inputs.items() if not isinstance(value, np.ndarray)}
    check_values(signature, numbers, seed=None if seed is None else plain(seed), scale=given.scale)
    problem = know_sequences(signature, call, problem, given)
    check_prefix(problem, k, v, given.block_table)
    shared = _shared(problem, {"k": k, "v": v})
    k, v = (np.broadcast_to(x, (problem.batch, *x.shape[1:])) if n in shared else x for n, x in (("k", k), ("v", v)))
    arrays = _defaults(signature.variant, problem) | {name: _as_array(value) for name, value in inputs.items()}
    return BoundCall(signature.variant, problem, q, k, v, arrays, given, shared)


def _shared(problem: Problem, operands: Mapping[str, Array]) -> frozenset[str]:
    """Those of k and v that serve all sequences, though they have one."""
    if problem.packs_keys or problem.page is not None or problem.batch == 1:
        return frozenset()
    return frozenset(name for name, array in operands.items() if array.shape[0] == 1)


def _defaults(variant: Variant, problem: Problem) -> dict[str, Array]:
    """The inputs that a call may leave out, all their entries the default."""
    return {
        item.name: np.broadcast_to(
            np.float32(item.default), [expected_length(problem, item, axis) or 1 for axis in item.axes]
        )
        for item in variant.inputs
        if item.default is not None
    }


def _as_array(value: Any) -> Array:
    """An input as expressions read it; a number for a float input may be an int that fits no int64."""
    fits = not isinstance(value, int) or -(2**63) <= value < 2**63
    return np.asarray(value if fits else saturated(value))


def _check_out(out: Array, read: Mapping[str, Any]) -> None:
    if not out.flags.writeable:
        raise refused("A617", "`out` is read-only", expected="an array that can be written", came="a read-only array")
    for name, array in read.items():
        if isinstance(array, np.ndarray) and elements_meet(out, array):
            raise shares_memory(name)


def array_facts(name: str, value: Any) -> ArrayFacts:
    """The facts of a NumPy array; A622 for anything else, and for a masked one."""
    if not isinstance(value, np.ndarray):
        raise not_an_array(name, type(value), "an array, as q is")
    if is_masked(value):
        raise masked(name)
    strides = tuple(stride // max(value.itemsize, 1) for stride in value.strides)
    return ArrayFacts(value.shape, strides, str(value.dtype), "cpu")


def facts(name: str, value: Any) -> ArrayFacts | type:
    """The facts of an array, or the Python type of a number (NumPy scalars count as numbers); of anything else its
    type too, which `bind` refuses."""
    return array_facts(name, value) if isinstance(value, np.ndarray) else type(plain(value))


def plain(value: Any) -> Any:
    """A NumPy scalar as the Python number it is; anything else as it came."""
    return value.item() if isinstance(value, np.generic) else value


def sequence_inputs(
    variant: Variant, problem: Problem, sequence: Sequence, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """The inputs as one sequence sees them: a packed axis cut to it, with `batch` put back as a repeated axis."""
    seen = dict(inputs)
    for declared in variant.inputs:
        if merged(declared, problem):
            seen[declared.name] = _unpacked(declared, problem, sequence, inputs[declared.name])
    return seen


def _unpacked(declared: Input, problem: Problem, sequence: Sequence, array: Array) -> Array:
    own = own_part(declared, problem, sequence, array)
    return repeat_axis(own, [axis.tag for axis in declared.axes].index("batch"), problem.batch)


def own_part(declared: Input, problem: Problem, sequence: Sequence, array: Array) -> Array:
    """A view of the part of an input's array that one sequence indexes: all of it, unless packing merges its axes."""
    if not merged(declared, problem):
        return array
    axes = passed_axes(declared, problem)
    position = next(i for i, axis in enumerate(axes) if axis.tag in POSITION_TAGS)
    of_q = axes[position].tag == "q"
    start, length = (sequence.q_start, sequence.q_len) if of_q else (sequence.kv_start, sequence.kv_len)
    return array[(slice(None),) * position + (slice(start, start + length),)]


def repeat_axis(array: Array, axis: int, length: int) -> Array:
    """The array with a new axis along which it repeats (a view)."""
    repeated = np.expand_dims(array, axis)
    return np.broadcast_to(repeated, (*array.shape[:axis], length, *array.shape[axis:]))


def environment(
    variant: Variant, problem: Problem, sequence: Sequence, inputs: Mapping[str, Array], float_dtype: DTypeLike
) -> Environment:
    """An environment without positions and without `scale`; inputs as `sequence_inputs` gives them."""
    h = np.arange(problem.num_heads)[:, None, None]
    symbols: dict[str, Any] = {
        "b": sequence.b,
        "h": h,
        "kv_h": h // problem.group,
        "q_len": sequence.q_len,
        "kv_len": sequence.kv_len,
        "q_start": sequence.q_start,
        "kv_start": sequence.kv_start,
        OFFSET_SYMBOL: sequence.q_offset,
        "num_heads": problem.num_heads,
        "num_kv_heads": problem.num_kv_heads,
        "head_dim": problem.head_dim,
    }
    for name, array in inputs.items():
        symbols.update({f"{name}__size{axis}": size for axis, size in enumerate(array.shape)})
    return Environment(symbols, inputs, variant.lets, float_dtype)


def at_positions(environment: Environment, q_idx: Array, kv_idx: Array) -> Environment:
    """The environment at [len(q_idx), len(kv_idx)] pairs of 1-D positions."""
    rows = q_idx[:, None]
    return environment.with_symbols(q_idx=rows, q_pos=rows + environment.symbols[OFFSET_SYMBOL], kv_idx=kv_idx)
