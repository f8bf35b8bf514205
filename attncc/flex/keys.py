"""What a function is, as a key: its code, its defaults, and all that its cells, globals and attributes hold.

Two functions of one key trace to the same text. Tensors count by dtype and rank, numbers and texts by value, functions
by what they are in turn. The tensors are listed in the order in which they are met, so a function of the same key has
them in the same places: that is how a later call finds them without a trace.
"""

from __future__ import annotations

import dis
import enum
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_MOST_ITEMS = 4096
_MOST_BYTES = 1 << 16
_SIMPLE = (type(None), bool, int, str, bytes, complex, type(...), torch.dtype, torch.device, torch.layout)
_LIBRARIES = frozenset({"builtins", "functools", "itertools", "math", "numpy", "operator", "torch", "types", "typing"})
_PROTOCOL = ("__call__", "__getitem__", "__iter__", "__len__", "__contains__", "__bool__")


class Same:
    """An object by its identity; it stays alive as long as its key."""

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.item is other.item

    def __hash__(self) -> int:
        return id(self.item)


class Contents:
    """The key of some functions, and the tensors that they hold with the names that they have there.

    `known` is False where they hold something that can't be seen through, so that the key doesn't tell what they do.
    """

    def __init__(self, *functions: Any) -> None:
        self.tensors: list[Any] = []
        self.names: list[str] = []
        self.known = True
        self._places: dict[int, int] = {}
        self._entered: dict[int, int] = {}
        self.key = tuple(self._of(function, "", frozenset()) for function in functions)

    def place(self, tensor: Any) -> int | None:
        """Where a tensor stands in `tensors`."""
        return self._places.get(id(tensor))

    # ---------------------------------------------------------------- values

    def _of(self, value: Any, name: str, attributes: frozenset[str]) -> Hashable:
        """The key of a value that is called `name`, of which code reads these attributes at most."""
        rule, has_parts = _rule_of(type(value))
        if has_parts:
            if id(value) in self._entered:
                return "again", self._entered[id(value)]
            self._entered[id(value)] = len(self._entered)
        return rule(self, value, name, attributes)

    def _builtin(self, function: Any, name: str, attributes: frozenset[str]) -> Hashable:
        """A function that is no Python, or a method of a value."""
        owner = function.__self__
        if owner is None or isinstance(owner, ModuleType | type):
            return Same(function)
        return function.__name__, self._of(owner, name, attributes)

    def _method(self, method: MethodType, name: str, attributes: frozenset[str]) -> Hashable:
        function = method.__func__
        read = _reads(function.__code__).attributes if isinstance(function, FunctionType) else frozenset()
        return self._of(function, name, attributes), self._of(method.__self__, name, attributes | read)

    def _partial(self, value: Any, name: str, attributes: frozenset[str]) -> Hashable:
        given = self._items(value.args, name, attributes), self._mapping(value.keywords, "", attributes)
        return self._of(value.func, name, attributes), given

    def _simple(self, value: Any, name: str, attributes: frozenset[str]) -> Hashable:
        return type(value), value

    def _float(self, value: float, name: str, attributes: frozenset[str]) -> Hashable:
        return float, value.hex()

    def _tensor(self, value: Any, name: str, attributes: frozenset[str]) -> Hashable:
        place = self._places.setdefault(id(value), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(value)
            self.names.append(name)
        own = self._named(vars(value), attributes) if vars(value) else None
        return "tensor", place, value.dtype, value.ndim, value.device, value.requires_grad, type(value), own

    def _numbers(self, value: Any, name: str, attributes: frozenset[str]) -> Hashable:
        value = np.asarray(value)
        if value.nbytes > _MOST_BYTES or value.dtype.hasobject:
            return self._unknown()
        return np.ndarray, str(value.dtype), value.shape, value.tobytes()

    def _items(self, values: Iterable[Any], name: str, attributes: frozenset[str]) -> Hashable:
        items = list(values)
        if len(items) > _MOST_ITEMS:
            return self._unknown()
        return self._kind(values, attributes), tuple(self._of(item, name, attributes) for item in items)

    def _set(self, values: Iterable[Any], name: str, attributes: frozenset[str]) -> Hashable:
        return self._kind(values, attributes), self._items(sorted(values, key=repr), name, attributes)

    def _mapping(self, values: Mapping[Any, Any], name: str, attributes: frozenset[str]) -> Hashable:
        if len(values) > _MOST_ITEMS:
            return self._unknown()
        return self._kind(values, attributes), tuple(
            (self._of(key, "", attributes), self._of(item, str(key), attributes)) for key, item in values.items()
        )

    def _kind(self, values: Any, attributes: frozenset[str]) -> Hashable:
        """The type of a collection, and its attributes where that is a class of the user's."""
        if not hasattr(values, "__dict__"):
            return Same(type(values))
        return self._named(vars(values), attributes), self._class(type(values), "", attributes)

    def _unknown(self) -> Hashable:
        self.known = False
        return None

    # ---------------------------------------------------------------- what has names in it

    def _function(self, function: FunctionType, name: str, attributes: frozenset[str]) -> Hashable:
        reads = _reads(function.__code__)
        attributes |= reads.attributes
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        found = [self._cell(cell, called, attributes) for called, cell in cells]
        found.append(self._items(function.__defaults__ or (), function.__name__, attributes))
        found.append(self._mapping(function.__kwdefaults__ or {}, "", attributes))
        if not _is_library(function.__module__):
            space = function.__globals__
            found += [self._of(space[item], item, attributes) for item in reads.globals if item in space]
            found += [self._of(item, key, attributes) for key, item in vars(function).items() if key in attributes]
            if reads.imports:
                self.known = False
        return function.__code__, tuple(found)

    def _cell(self, cell: Any, name: str, attributes: frozenset[str]) -> Hashable:
        try:
            return self._of(cell.cell_contents, name, attributes)
        except ValueError:
            return "empty"

    def _module(self, module: ModuleType, name: str, attributes: frozenset[str]) -> Hashable:
        if _is_library(module.__name__):
            return Same(module)
        return Same(module), self._named(vars(module), attributes)

    def _class(self, kind: type, name: str, attributes: frozenset[str]) -> Hashable:
        if _is_library(kind.__module__):
            return Same(kind)
        read = {name: found for name in sorted(attributes) if (found := _static(kind, name)) is not None}
        return Same(kind), self._named(read, attributes)

    def _object(self, value: Any, name: str, attributes: frozenset[str]) -> Hashable:
        """An instance of a Python class, by those of its attributes that code reads: the mod's, and its methods'."""
        kind = type(value)
        is_module = isinstance(value, torch.nn.Module)
        if callable(value) and not is_module and _static(kind, "__call__") is None:  # functions that are no Python
            return Same(value), self._of(getattr(value, "__wrapped__", None), "", attributes)
        changed = not _defined(kind).isdisjoint(("__getattr__", "__getattribute__"))
        if not hasattr(value, "__dict__") or (changed and not is_module):
            return self._unknown()
        attributes |= {*_PROTOCOL, *(("forward",) if is_module else ())}
        attributes = _with_methods(kind, attributes)
        held: dict[str, Any] = dict(vars(value))
        if is_module:
            held |= {**value._parameters, **value._buffers, **value._modules}
            attributes |= held.keys() if _is_library(kind.__module__) else frozenset()
        return self._named(held, attributes), self._class(kind, "", attributes)

    def _named(self, values: Mapping[str, Any], attributes: frozenset[str]) -> Hashable:
        return tuple(
            (name, self._of(_function_of(values[name]), name, attributes))
            for name in sorted(attributes)
            if name in values
        )


class _Reads:
    """The names that a function's code reads, with those of the functions in it."""

    globals: tuple[str, ...]
    attributes: frozenset[str]

    def __init__(self, code: CodeType) -> None:
        globals_: dict[str, None] = {}
        attributes: set[str] = set()
        self.imports = False
        for item in dis.get_instructions(code):
            if item.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                globals_[item.argval] = None
            elif item.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes.add(item.argval)
            elif item.opname == "IMPORT_NAME":
                self.imports |= not _is_library(item.argval)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                reads = _reads(inner)
                globals_ |= dict.fromkeys(reads.globals)
                attributes |= reads.attributes
                self.imports |= reads.imports
        self.globals, self.attributes = tuple(globals_), frozenset(attributes)


@cache
def _reads(code: CodeType) -> _Reads:
    return _Reads(code)


def _is_library(module: str | None) -> bool:
    """Whether what a module holds is taken not to change."""
    return (module or "").partition(".")[0] in _LIBRARIES


def _static(kind: type, name: str) -> Any:
    """An attribute of a Python class, as it stands there; None if none of its own classes has it."""
    return next(
        (vars(base)[name] for base in kind.__mro__ if name in vars(base) and not _is_library(base.__module__)), None
    )


def _defined(kind: type) -> set[str]:
    return {name for base in kind.__mro__ if not _is_library(base.__module__) for name in vars(base)}


def _function_of(value: Any) -> Any:
    """The function behind a property or a static method."""
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


def _with_methods(kind: type, attributes: frozenset[str]) -> frozenset[str]:
    """These attributes, and those that methods among them read."""
    while True:
        functions = [_function_of(_static(kind, name)) for name in attributes]
        more = attributes.union(*(_reads(f.__code__).attributes for f in functions if isinstance(f, FunctionType)))
        if more == attributes:
            return attributes
        attributes = more


_Rule = Callable[[Contents, Any, str, frozenset[str]], Hashable]

# By types, the first that fits, and whether a value has parts in which it may itself be found again.
_RULES: tuple[tuple[Any, _Rule, bool], ...] = (
    (torch.Tensor, Contents._tensor, False),
    (_SIMPLE, Contents._simple, False),
    (float, Contents._float, False),
    (enum.Enum, Contents._simple, False),
    ((np.ndarray, np.generic), Contents._numbers, False),
    (BuiltinFunctionType, Contents._builtin, False),
    (FunctionType, Contents._function, True),
    (MethodType, Contents._method, True),
    (ModuleType, Contents._module, True),
    (functools.partial, Contents._partial, True),
    ((tuple, list), Contents._items, True),
    ((set, frozenset), Contents._set, True),
    (Mapping, Contents._mapping, True),
    (type, Contents._class, True),
    (object, Contents._object, True),
)


_by_type: dict[type, tuple[_Rule, bool]] = {}


def _rule_of(kind: type) -> tuple[_Rule, bool]:
    if kind not in _by_type:
        _by_type[kind] = next((rule, has_parts) for types, rule, has_parts in _RULES if issubclass(kind, types))
    return _by_type[kind]
