"""One call's arguments as launches take them: pointers and numbers, and a key that stands for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from operator import itemgetter
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ...diagnostics import AttnccError
from ...ir import Variant
from ...problem import ArrayFacts, Call, Signature, check_values
from ...problem.bind import check_scalar
from ...problem.call_arguments import ARGUMENTS, ARRAYS, NUMBERS, SCALARS, Arguments, Given
from ...problem.inputs import check_dtype
from ...problem.refusal import mixed, refused
from ..frameworks.arrays import framework_of, is_array
from ..frameworks.framework import DeviceFramework
from .written_reader import ARRAY, Operand, Read, maker, taker

# The operands of every call, in order: what is tiled, arguments that are arrays, scalars or numbers, what no argument
# brings. The variant's inputs follow in theirs.
_TILED = ("q", "k", "v", "out")
_NAMES = (*_TILED, *ARRAYS, *SCALARS, *NUMBERS, "lse", "counter", "prefix_q")
OPERANDS = {name: number for number, name in enumerate(_NAMES)}
Q, K, V, OUT, LSE, COUNTER, PREFIX_Q = (OPERANDS[name] for name in (*_TILED, "lse", "counter", "prefix_q"))
CU_SEQLENS_Q, CU_SEQLENS_KV, SEED, SCALE = (OPERANDS[x] for x in ("cu_seqlens_q", "cu_seqlens_kv", "seed", "scale"))
Q_OFFSET = OPERANDS["q_offset"]
INPUTS = len(_NAMES)

_NUMBERS = frozenset({int, float, bool})
_PLAIN = _NUMBERS | {NoneType}
_ALIGNMENT_MASK = 15  # bases are to be multiples of 16 bytes
_MOST_ROLES = 256  # that are kept for one kernel; at one more all are dropped, to be made again as they come
# In place of a type: what is an array on a GPU, and what `bind` refuses: an array on the CPU that holds no number, or
# neither an array nor a number.
_ARRAY, _UNFIT = object(), object()

Key = tuple[Any, ...]  # of a form of call
Kinds = tuple[Any, ...]  # of a call's operands: the types of the arguments, or HostNumber, _ARRAY, _UNFIT


class Result(NamedTuple):
    """What a backward call has beside the operands of the forward call: its results, and gradients of these."""

    place: int  # among the operands
    name: str
    array: Any  # None where it isn't given


class HostNumber(NamedTuple):
    """A number that came in a 0-d array on the CPU, or as a NumPy scalar."""

    kind: type  # of Python's
    dtype: str | None  # None for a NumPy scalar, which is as good as a Python number

    @classmethod
    def of(cls, facts: ArrayFacts, value: Any) -> HostNumber:
        return cls(type(value.item()), None if isinstance(value, np.generic) else facts.dtype)


def misaligned(values: Sequence[Any]) -> tuple[str, ...]:
    """Which of q, k, v, out don't start at a multiple of 16 bytes."""
    operands = zip(_TILED, values, strict=False)
    return tuple(name for name, base in operands if base is not None and base & _ALIGNMENT_MASK)


class Roles:
    """What the arguments of a call are, as far as their types tell."""

    def __init__(self, kinds: Kinds, arrays: Sequence[int], doubtful: Sequence[int]) -> None:
        self.kinds, self.arrays = kinds, arrays
        self.tiled = slice(4 if OUT in arrays else 3)  # q, k, v and out, which are the first operands
        self.extras = [(operand, number) for number, operand in enumerate(arrays) if operand > OUT]
        self.doubtful = doubtful  # those whose array may hold a number, or be none of the framework
        self.numbers = [at for at, kind in enumerate(kinds) if kind in _NUMBERS or type(kind) is HostNumber]
        self.take_arrays = itemgetter(*arrays)
        self.take_numbers = itemgetter(*self.numbers) if self.numbers else None
        self.checked: Any = None  # the numbers that were found good last


class Reader:
    """Reads the calls of one kernel whose q is on a GPU, an array of this framework. Threads may share it.

    Every call passes here, but for those of a form that a function was `written` for, so it does little.
    """

    def __init__(self, framework: DeviceFramework, variant: Variant) -> None:
        self._framework, self._observer, self._signature = framework, framework.observer(), Signature(variant)
        inputs = tuple(item.name for item in variant.inputs)
        self._names = (*_NAMES, *inputs)
        self._take = taker(_NAMES, inputs)
        tensors = (INPUTS + number for number, item in enumerate(variant.inputs) if item.axes)
        self._tensors = frozenset({*(OPERANDS[name] for name in ARRAYS), *tensors})
        self._roles: dict[Kinds, Roles] = {}

    def read(self, given: Given) -> tuple[list[Any], Key, Roles]:
        """What changes from call to call, and the key of what seldom does.

        Values are pointers and numbers by operand, None for what is absent. Equal keys: equal facts of all arrays, and
        numbers in the same places. AttnccError A622 or A654 for what isn't an array of the framework.
        """
        # A missing input is a None here and a further one changes the count, so both miss every key of a good call.
        values, options, count = self._take(given)
        kinds = tuple(map(type, values))
        roles = self._roles.get(kinds)
        if roles is None:
            roles = self._learn(kinds, values)
        if roles.doubtful:
            roles = self._opened(kinds, roles.doubtful, values)
        bases, forms = self._observer.observe(roles.take_arrays(values))
        values[roles.tiled] = bases[roles.tiled]
        for operand, number in roles.extras:
            values[operand] = bases[number]
        unaligned = (values[Q] | values[K] | values[V] | (values[OUT] or 0)) & _ALIGNMENT_MASK
        aligned = misaligned(values) if unaligned else ()
        return values, (forms, roles, options, count, aligned), roles

    def written(
        self, given: Given, key: Key, roles: Roles, *, new: bool = False, results: Sequence[Result] = ()
    ) -> Read | None:
        """A function for calls of the form that this one has. None if nothing tells quickly which others have it; or
        not yet, unless it is to be a `new` one.

        It takes the `results` of a backward call beside the call, in their order.
        """
        values, options, count = self._take(given)
        arrays = [*roles.take_arrays(values), *(item.array for item in results if item.array is not None)]
        alike = self._observer.guard(arrays, new=new)
        numbers = (kind for number, kind in enumerate(roles.kinds) if number not in roles.arrays)
        if alike is None or key[-1] or not _PLAIN.issuperset(numbers):
            return None
        operands = [
            Operand(name, ARRAY if number in roles.arrays else kind.__name__, number >= INPUTS)
            for number, (name, kind) in enumerate(zip(self._names, roles.kinds, strict=True))
        ]
        for item in results:
            how = NoneType.__name__ if item.array is None else ARRAY
            operands[item.place : item.place + 1] = [Operand(item.name, how, is_result=True)]
        return maker(tuple(operands), _ALIGNMENT_MASK, len(alike.modes))(alike, count, options, self._framework.pointer)

    def check(self, roles: Roles, values: Sequence[Any]) -> None:
        """Checks the numbers of a call: the seed, the scale and scalar inputs. AttnccError A6xx."""
        scalars = {self._names[operand]: values[operand] for operand in roles.numbers if operand >= INPUTS}
        offset = values[Q_OFFSET] if Q_OFFSET in roles.numbers else None  # else an address
        check_values(self._signature, scalars, seed=values[SEED], scale=values[SCALE], q_offset=offset)
        if roles.take_numbers is not None:
            roles.checked = roles.take_numbers(values)

    def _learn(self, kinds: Kinds, values: Sequence[Any]) -> Roles:
        """The roles of arguments of these kinds. AttnccError A622 or A654 if k, v or out are no such arrays."""
        arrays = [Q, K, V]
        doubtful: list[int] = []
        if values[OUT] is not None:
            arrays.append(OUT)
        for operand in arrays:
            if not self._is_own(operand, values[operand]):
                raise mixed(self._names[operand], type(values[operand]))
        for operand, kind in enumerate(kinds[OUT + 1 :], OUT + 1):
            if kind not in _PLAIN and kind is not _UNFIT and type(kind) is not HostNumber:
                sure = kind is _ARRAY or (operand in self._tensors and self._is_own(operand, values[operand]))
                (arrays if sure else doubtful).append(operand)
        if len(self._roles) >= _MOST_ROLES:
            self._roles.clear()
        return self._roles.setdefault(kinds, Roles(kinds, arrays, doubtful))

    def _is_own(self, operand: int, array: Any) -> bool:
        return framework_of(array, self._names[operand]) is self._framework

    def _opened(self, raw: Kinds, doubtful: Sequence[int], values: list[Any]) -> Roles:
        """The roles of arguments once the numbers in 0-d arrays that the CPU can read stand among the values."""
        kinds = list(raw)
        for operand in doubtful:
            try:
                values[operand], kinds[operand] = self._host_number(self._names[operand], values[operand])
            except AttnccError:
                if is_array(values[operand]) or operand in self._tensors or self._names[operand] in NUMBERS:
                    raise
                values[operand], kinds[operand] = None, _UNFIT
        opened = tuple(kinds)
        return self._roles.get(opened) or self._learn(opened, values)

    def _host_number(self, name: str, value: Any) -> tuple[Any, Any]:
        """The number in a 0-d array that the CPU can read, and its types; an array on a GPU, and `_ARRAY`."""
        if name in NUMBERS and not is_array(value):
            return _real(name, value)
        own = framework_of(value, name)
        if own.ordinal(value) >= 0:
            if own is not self._framework:
                raise mixed(name, type(value))
            return value, _ARRAY
        if value.shape:
            return None, _UNFIT
        return value.item(), HostNumber.of(own.facts(value), value)


def _real(name: str, value: Any) -> tuple[float, HostNumber]:
    """A number of another type than Python's float and int, such as a fraction. The executor takes it too."""
    if not isinstance(value, Real):
        what = f"`{name}` can't be used"
        raise refused(ARGUMENTS[name].code, what, expected="a finite number, or None", came=repr(value))
    return float(value), HostNumber(float, None)


def call_of(framework: DeviceFramework, call: Arguments) -> Call:
    """The facts of a call that a `Reader` took, for `bind`. AttnccError A622 for a number in place of an array."""

    def array(name: str, value: Any) -> ArrayFacts:
        return framework.facts(value) if name in ("q", "k", "v") else _array_facts(name, value)

    return call.facts(array, _facts)


def _facts(name: str, value: Any) -> ArrayFacts | type:
    if value is None or type(value) in _NUMBERS or not is_array(value):
        return type(value)
    own = framework_of(value, name)
    if own.ordinal(value) < 0 and not value.shape:
        return type(value.item())
    return own.facts(value)


def check_host_numbers(signature: Signature, call: Arguments) -> None:
    """0-d arrays on the CPU have the types that they'd have on the GPU, though only the number in them is passed. An
    argument that is a number is no array: kernels would take its address for it.

    AttnccError A604, or that of an argument.
    """
    own = ((name, getattr(call, name)) for name in (*NUMBERS, *SCALARS))
    for name, value in (*own, *call.inputs.items()):
        if value is None or type(value) in _NUMBERS or isinstance(value, np.generic):
            continue
        if not is_array(value):
            continue
        if name in NUMBERS:
            what, came = f"`{name}` can't be used", "an array" if value.shape else "a 0-d array"
            raise refused(ARGUMENTS[name].code, what, expected="a finite number, or None", came=came)
        if value.shape:
            continue
        home = framework_of(value, name)
        facts = home.facts(value)
        if name in SCALARS and home.ordinal(value) < 0:
            check_scalar(ARGUMENTS[name], facts)
        elif name in signature.inputs and not signature.inputs[name].axes:
            check_dtype(signature, signature.inputs[name], facts)


def _array_facts(name: str, value: Any) -> ArrayFacts:
    facts = _facts(name, value)
    if isinstance(facts, type):
        raise refused("A622", f"`{name}` is not an array", expected="an array on q's device", came=facts.__name__)
    return facts
