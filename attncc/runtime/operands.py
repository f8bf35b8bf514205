"""One call's arguments as launches take them: pointers and numbers, and a key that stands for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ..diagnostics import AttnccError
from ..ir import Variant
from ..problem import ArrayFacts, Call, Signature, check_values
from ..problem.bind import check_seed
from ..problem.inputs import check_dtype
from ..problem.refusal import refused
from .arrays import Array, DeviceFramework, Observer, framework_of

# The operands of every call, in order; the variant's inputs follow in theirs.
Q, K, V, OUT, LSE, COUNTER, CU_SEQLENS_Q, CU_SEQLENS_KV, SEED, SCALE, INPUTS = range(11)

_NUMBERS = frozenset({int, float, bool})
_PLAIN = _NUMBERS | {NoneType}
_EXTRAS = ("cu_seqlens_q", "cu_seqlens_kv", "seed", "scale")
_ALIGNMENT_MASK = 15  # bases are to be multiples of 16 bytes
_ARRAY = object()  # stands for an array where only numbers matter
_NO_EXTRAS = (None,) * len(_EXTRAS)


class Arguments(NamedTuple):
    """One call as the user made it, `stream` apart."""

    q: Array
    k: Array
    v: Array
    inputs: Mapping[str, Any]
    scale: Any
    layout: Any
    cu_seqlens_q: Array | None
    cu_seqlens_kv: Array | None
    seed: Any
    out: Array | None
    return_lse: bool


Given = tuple[Array, Array, Array, Mapping[str, Any], Any, Any, Array | None, Array | None, Any, Array | None, bool]


class HostNumber(NamedTuple):
    """A number that came in a 0-d array on the CPU, or as a NumPy scalar."""

    kind: type  # of Python's
    dtype: str | None  # None for a NumPy scalar, which is as good as a Python number

    @classmethod
    def of(cls, facts: ArrayFacts, value: Any) -> HostNumber:
        return cls(type(value.item()), None if isinstance(value, np.generic) else facts.dtype)


def misaligned(values: Sequence[Any]) -> tuple[str, ...]:
    """Which of q, k, v, out don't start at a multiple of 16 bytes."""
    operands = zip(("q", "k", "v", "out"), values, strict=False)
    return tuple(name for name, base in operands if base is not None and base & _ALIGNMENT_MASK)


def gather(
    framework: DeviceFramework, observe: Observer, names: tuple[str, ...], given: Given
) -> tuple[list[Any], tuple[Any, ...], Sequence[Any]]:
    """What changes from call to call, and the key of what seldom does, of a call whose q is on a GPU.

    Values are pointers and numbers by operand, None for what is absent. Equal keys: equal facts of all arrays, and
    numbers in the same places. The third result are cu_seqlens, seed, scale and the inputs as far as they came as
    numbers. `names` are the variant's inputs. AttnccError A622 or A654 for what isn't an array of the framework. Every
    call passes here, so it does little.
    """
    q, k, v, inputs, scale, layout, cu_seqlens_q, cu_seqlens_kv, seed, out, return_lse = given
    kind = type(q)
    if not kind is type(k) is type(v) or not (out is None or type(out) is kind):
        _check_frameworks(framework, Arguments(*given))
    arrays = [q, k, v] if out is None else [q, k, v, out]
    numbers: Sequence[Any] = _NO_EXTRAS
    kinds: tuple[Any, ...] = ()
    places: Sequence[int] = ()
    if inputs or names or not cu_seqlens_q is cu_seqlens_kv is seed is scale is None:
        # A missing input is a None here and a further one changes the count, so both miss every key of a good call.
        numbers = (cu_seqlens_q, cu_seqlens_kv, seed, scale, *map(inputs.get, names))
        kinds = tuple(map(type, numbers))
        if not _PLAIN.issuperset(kinds):
            extras = numbers
            numbers, kinds, places = _opened(framework, names, extras)
            arrays += map(extras.__getitem__, places)
    bases, forms = observe(arrays)
    unaligned = bases[Q] | bases[K] | bases[V]
    if out is None:
        values = [*bases[:OUT], None, None, None, *numbers]
    else:
        unaligned |= bases[OUT]
        values = [*bases[:LSE], None, None, *numbers]
    if places:
        for place, base in zip(places, bases[-len(places) :], strict=True):
            values[CU_SEQLENS_Q + place] = base
    aligned = misaligned(values) if unaligned & _ALIGNMENT_MASK else ()
    return values, (forms, layout, return_lse, out is None, len(inputs), aligned, kinds), numbers


def _opened(
    framework: DeviceFramework, names: tuple[str, ...], extras: Sequence[Any]
) -> tuple[Sequence[Any], tuple[Any, ...], Sequence[int]]:
    """The extras' numbers, also those in 0-d arrays that the CPU can read, their types, and where arrays stand."""
    numbers, kinds, places = list(extras), [], []
    for position, value in enumerate(extras):
        kind: Any = type(value)
        if kind not in _PLAIN:
            name = names[position - len(_EXTRAS)] if position >= len(_EXTRAS) else _EXTRAS[position]
            numbers[position], kind = _host_number(framework, name, value)
            if kind is _ARRAY:
                places.append(position)
        kinds.append(kind)
    return numbers, tuple(kinds), places


def _host_number(framework: DeviceFramework, name: str, value: Any) -> tuple[Any, Any]:
    """The number in a 0-d array that the CPU can read, and its types; `_ARRAY` twice for an array on a GPU."""
    own = framework_of(value, name)
    if own.ordinal(value) >= 0:
        if own is not framework:
            raise mixed(name, value)
        return _ARRAY, _ARRAY
    if value.shape:
        return 0, object()  # `bind` refuses it: no good call has this key
    return value.item(), HostNumber.of(own.facts(value), value)


def _check_frameworks(framework: DeviceFramework, call: Arguments) -> None:
    kind = type(call.q)
    for name, array in (("k", call.k), ("v", call.v), ("out", call.out)):
        if array is not None and type(array) is not kind and framework_of(array, name) is not framework:
            raise mixed(name, array)


def check_numbers(variant: Variant, numbers: Sequence[Any]) -> None:
    """Checks what `gather` found to be numbers: the seed, the scale and scalar inputs. AttnccError A6xx."""
    _, _, seed, scale, *inputs = numbers
    names = (item.name for item in variant.inputs)
    scalars = {name: number for name, number in zip(names, inputs, strict=True) if type(number) in _NUMBERS}
    check_values(Signature(variant), scalars, seed=seed, scale=scale)


def call_of(framework: DeviceFramework, call: Arguments) -> Call:
    """The facts of a call that `gather` took, for `bind`. AttnccError A622 for a number in place of an array."""
    return Call(
        framework.facts(call.q),
        framework.facts(call.k),
        framework.facts(call.v),
        tuple((name, _facts(name, value)) for name, value in call.inputs.items()),
        call.layout,
        _array_facts("cu_seqlens_q", call.cu_seqlens_q),
        _array_facts("cu_seqlens_kv", call.cu_seqlens_kv),
        None if call.seed is None else _facts("seed", call.seed),
        _array_facts("out", call.out),
        call.return_lse,
    )


def _facts(name: str, value: Any) -> ArrayFacts | type:
    if value is None or type(value) in _NUMBERS:
        return type(value)
    own = framework_of(value, name)
    if own.ordinal(value) < 0 and not value.shape:
        return type(value.item())
    return own.facts(value)


def check_host_numbers(signature: Signature, call: Arguments) -> None:
    """0-d arrays on the CPU have the types that they'd have on the GPU, though only the number in them is passed.

    AttnccError A604, A612 or A619.
    """
    for name, value in (("scale", call.scale), ("seed", call.seed), *call.inputs.items()):
        if value is None or type(value) in _NUMBERS or isinstance(value, np.generic) or value.shape:
            continue
        own = framework_of(value, name)
        facts = own.facts(value)
        if name == "scale":
            raise refused("A619", "`scale` can't be used", expected="a finite number, or None", came="a 0-d array")
        if name == "seed" and own.ordinal(value) < 0:
            check_seed(facts)
        elif name in signature.inputs and not signature.inputs[name].axes:
            check_dtype(signature, signature.inputs[name], facts)


def _array_facts(name: str, value: Any) -> ArrayFacts | None:
    if value is None:
        return None
    facts = _facts(name, value)
    if isinstance(facts, type):
        raise refused("A622", f"`{name}` is not an array", expected="an array on q's device", came=facts.__name__)
    return facts


def mixed(name: str, array: Array) -> AttnccError:
    """The exception for an array of another framework than q's."""
    return refused(
        "A654",
        f"`{name}` is an array of another framework than `q`",
        expected="arrays all of one framework, whose stream orders them on a GPU",
        came=f"{type(array).__module__}.{type(array).__qualname__}",
        help="exchange it without a copy: torch.from_dlpack, cupy.from_dlpack, numpy.from_dlpack",
    )
