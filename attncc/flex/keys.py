"""What a function is, as a key: its code, its defaults, and all that its cells, globals and attributes hold.

Two functions of one key trace to the same text. Tensors count by dtype and rank, numbers and texts by value, functions
by what they are in turn. The tensors are listed in the order in which they are met, so a function of the same key has
them in the same places: that is how a later call finds them without a trace.

Of an object the key holds what code may read: each attribute that some function here names, wherever that function
stands, since an object may be handed to any of them. A function that reads by names which it computes (`getattr`) hides
what it reads, so that such a mod is traced in every call.
"""

from __future__ import annotations

import dis
import enum
import functools
import operator
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import numpy as np
import torch

_PLAIN = frozenset({tuple, list, dict, set, frozenset, OrderedDict, defaultdict, Counter})
_MOST_ITEMS = 4096
_MOST_BYTES = 1 << 16
_SIMPLE = (type(None), bool, int, str, bytes, complex, type(...), torch.dtype, torch.device, torch.layout)
_MOST_STARTS = 1024
_LIBRARIES = frozenset({
    "abc", "argparse", "attncc", "builtins", "enum", "functools", "itertools", "math", "numpy", "operator", "torch",
    "types", "typing",
})  # fmt: skip
# What reads attributes by names that code computes, or reads all of them.
_BY_NAME = (getattr, hasattr, vars, dir, globals, eval, exec, __import__)
_BY_NAME_NAMES = frozenset(item.__name__ for item in _BY_NAME)
_BY_NAME_TYPES = (operator.attrgetter, operator.methodcaller)
# Special methods that are called where an object is made, changed, copied or gone, and those that code has to ask for.
_MAKERS = frozenset({"__init__", "__new__", "__post_init__"})
_ASKED_FOR = frozenset({
    *_MAKERS, "__eq__", "__ne__", "__hash__", "__repr__", "__str__", "__format__", "__del__", "__init_subclass__",
    "__class_getitem__", "__set_name__", "__setattr__", "__delattr__", "__set__", "__delete__", "__getstate__",
    "__setstate__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__copy__", "__deepcopy__", "__replace__",
})  # fmt: skip
_FORMATS = frozenset({"__repr__", "__str__", "__format__"})
_FORMATTERS = frozenset({"str", "repr", "format", "print", "ascii"})


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
        start = tuple(map(_code_of, functions))
        self._attributes = set(_starts.get(start, ()))
        before, self.known = -1, True
        while self.known and before != len(self._attributes):  # an object may be met before the function that reads it
            before = len(self._attributes)
            self._look(functions)
        if len(_starts) >= _MOST_STARTS:
            _starts.clear()
        _starts[start] = frozenset(self._attributes)

    def _look(self, functions: Iterable[Any]) -> None:
        self.tensors: list[Any] = []
        self.names: list[str] = []
        self.known = True
        self._places: dict[int, int] = {}
        self._entered: dict[int, int] = {}
        self._sorted = sorted(self._attributes)
        self.key = tuple(self._of(function, "") for function in functions)

    def place(self, tensor: Any) -> int | None:
        """Where a tensor stands in `tensors`."""
        return self._places.get(id(tensor))

    # ---------------------------------------------------------------- values

    def _of(self, value: Any, name: str) -> Hashable:
        """The key of a value that is called `name`."""
        rule, has_parts = _rule_of(type(value))
        if has_parts:
            if id(value) in self._entered:
                return "again", self._entered[id(value)]
            if len(self._entered) >= _MOST_ITEMS:  # a library that nobody has named is being looked through
                return self._unknown()
            self._entered[id(value)] = len(self._entered)
        return rule(self, value, name)

    def _builtin(self, function: Any, name: str) -> Hashable:
        """A function that is no Python, or a method of a value."""
        if function in _BY_NAME:
            return self._unknown()
        owner = function.__self__
        if owner is None or isinstance(owner, ModuleType | type):
            return Same(function)
        return function.__name__, self._of(owner, name)

    def _method(self, method: MethodType, name: str) -> Hashable:
        return self._of(method.__func__, name), self._of(method.__self__, name)

    def _partial(self, value: Any, name: str) -> Hashable:
        return self._of(value.func, name), self._items(value.args, name), self._mapping(value.keywords, "")

    def _simple(self, value: Any, name: str) -> Hashable:
        return type(value), value

    def _float(self, value: float, name: str) -> Hashable:
        return float, value.hex()

    def _tensor(self, value: Any, name: str) -> Hashable:
        place = self._places.setdefault(id(value), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(value)
            self.names.append(name)
        own = self._named(vars(value)) if vars(value) else None
        return "tensor", place, value.dtype, value.ndim, value.device, value.requires_grad, type(value), own

    def _numbers(self, value: Any, name: str) -> Hashable:
        value = np.asarray(value)
        if value.nbytes > _MOST_BYTES or value.dtype.hasobject:
            return self._unknown()
        return np.ndarray, str(value.dtype), value.shape, value.tobytes()

    def _items(self, values: Iterable[Any], name: str) -> Hashable:
        items = list(values)
        if len(items) > _MOST_ITEMS:
            return self._unknown()
        return self._kind(values), tuple(self._of(item, name) for item in items)

    def _set(self, values: Iterable[Any], name: str) -> Hashable:
        return self._kind(values), self._items(sorted(values, key=repr), name)

    def _mapping(self, values: Mapping[Any, Any], name: str) -> Hashable:
        if len(values) > _MOST_ITEMS:
            return self._unknown()
        return self._kind(values), tuple(
            (self._of(key, ""), self._of(item, str(key)))
            for key, item in list(values.items())  # it may be one that grows meanwhile: sys.modules
        )

    def _kind(self, values: Any) -> Hashable:
        """The type of a collection, and its attributes where that is a class of the user's."""
        kind = type(values)
        return Same(kind) if kind in _PLAIN else (self._named(getattr(values, "__dict__", {})), self._class(kind, ""))

    def _by_name(self, value: Any, name: str) -> Hashable:
        return self._unknown()

    def _unknown(self) -> Hashable:
        self.known = False
        return None

    # ---------------------------------------------------------------- what has names in it

    def _function(self, function: FunctionType, name: str) -> Hashable:
        reads = _reads(function.__code__)
        self._attributes |= reads.attributes
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        found = [self._cell(cell, called) for called, cell in cells]
        found.append(self._items(function.__defaults__ or (), function.__name__))
        found.append(self._mapping(function.__kwdefaults__ or {}, ""))
        space = function.__globals__
        if not _is_library(space.get("__name__")):
            found += [self._of(space[item], item) for item in reads.globals if item in space]
            found.append(self._named(vars(function)))
            if reads.hides or any(item not in space for item in _BY_NAME_NAMES.intersection(reads.globals)):
                self.known = False
        return function.__code__, tuple(found)

    def _cell(self, cell: Any, name: str) -> Hashable:
        try:
            return self._of(cell.cell_contents, name)
        except ValueError:
            return "empty"

    def _module(self, module: ModuleType, name: str) -> Hashable:
        if module is operator and not self._attributes.isdisjoint(item.__name__ for item in _BY_NAME_TYPES):
            return self._unknown()
        if _is_library(module.__name__):
            return Same(module)
        return Same(module), self._named(vars(module))

    def _constructor(self, kind: type, name: str) -> Hashable:
        """A class that a function may make an object of."""
        return self._unknown() if kind in _BY_NAME_TYPES else self._class(kind, name, _MAKERS)

    def _class(self, kind: type, name: str, more: Iterable[str] = ()) -> Hashable:
        """A Python class by what code reads of it and of its bases (`super()`), and by methods that syntax calls."""
        if _is_library(kind.__module__):
            return Same(kind)
        read = sorted({*self._attributes, *_called_by_syntax(kind), *more})
        found = [
            (name, tuple(self._of(_function_of(item), name) for item in items))
            for name in read
            if (items := _statics(kind, name))
        ]
        return Same(kind), tuple(found), self._class(type(kind), "")

    def _object(self, value: Any, name: str) -> Hashable:
        """An instance of a Python class, by those of its attributes that code reads: the mod's, and its methods'."""
        kind = type(value)
        is_module = isinstance(value, torch.nn.Module)
        if callable(value) and not is_module and not _statics(kind, "__call__"):  # functions that are no Python
            return Same(value), self._of(getattr(value, "__wrapped__", None), "")
        changed = not _defined(kind).isdisjoint(("__getattr__", "__getattribute__"))
        if not hasattr(value, "__dict__") or (changed and not is_module):
            return self._unknown()
        held: dict[str, Any] = dict(vars(value))
        if is_module:
            held |= {**value._parameters, **value._buffers, **value._modules}
        own = held if is_module and _is_library(kind.__module__) else ()
        return self._named(held, own), self._class(kind, "", ("forward",) if is_module else ())

    def _named(self, values: Mapping[str, Any], more: Iterable[str] = ()) -> Hashable:
        if not values:
            return ()
        names = sorted({*self._sorted, *more}) if more else self._sorted
        return tuple((name, self._of(values[name], name)) for name in names if name in values)


class _Reads:
    """The names that a function's code reads, with those of the functions in it."""

    globals: tuple[str, ...]
    attributes: frozenset[str]

    def __init__(self, code: CodeType) -> None:
        globals_: dict[str, None] = {}
        attributes: set[str] = set()
        self.hides = False  # what it reads
        for item in dis.get_instructions(code):
            if item.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                globals_[item.argval] = None
                attributes |= _FORMATS if item.argval in _FORMATTERS else frozenset()
            elif item.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes.add(item.argval)
            elif item.opname == "IMPORT_NAME":
                self.hides |= not _is_library(item.argval) or item.argval in ("builtins", "operator")
            elif item.opname == "MATCH_CLASS":
                self.hides = True
            elif item.opname.startswith("FORMAT_"):
                attributes |= _FORMATS
            elif item.opname in ("COMPARE_OP", "CONTAINS_OP"):
                attributes |= {"__eq__", "__ne__"}
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                reads = _reads(inner)
                globals_ |= dict.fromkeys(reads.globals)
                attributes |= reads.attributes
                self.hides |= reads.hides
        self.globals, self.attributes = tuple(globals_), frozenset(attributes)


_starts: dict[Hashable, frozenset[str]] = {}  # attributes that were found for functions of the same code: one look then


def _code_of(function: Any) -> Hashable:
    code: Hashable = getattr(function, "__code__", None)
    return code or cast(Hashable, type(function))


@cache
def _reads(code: CodeType) -> _Reads:
    return _Reads(code)


def _is_library(module: Any) -> bool:
    """Whether what a module of that name holds is taken not to change. Classes that are no Python may bear no name."""
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def _statics(kind: type, name: str) -> list[Any]:
    """An attribute of a Python class, as it stands there and in each of its bases that is Python too."""
    return [vars(base)[name] for base in kind.__mro__ if name in vars(base) and not _is_library(base.__module__)]


def _called_by_syntax(kind: type) -> frozenset[str]:
    """The special methods of a class that code calls without their names: by operators, `with`, `int(x)`."""
    special = {name for name in _defined(kind) if name.startswith("__") and name.endswith("__")} - _ASKED_FOR
    return frozenset(name for name in special if any(map(callable, _statics(kind, name))))


def _defined(kind: type) -> set[str]:
    return {name for base in kind.__mro__ if not _is_library(base.__module__) for name in vars(base)}


def _function_of(value: Any) -> Any:
    """The function behind a property or a static method."""
    if isinstance(value, functools.cached_property):
        return value.func
    return value.fget if isinstance(value, property) else getattr(value, "__func__", value)


_Rule = Callable[[Contents, Any, str], Hashable]

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
    ((functools.partial, functools.partialmethod), Contents._partial, True),
    (_BY_NAME_TYPES, Contents._by_name, False),
    ((tuple, list), Contents._items, True),
    ((set, frozenset), Contents._set, True),
    (Mapping, Contents._mapping, True),
    (type, Contents._constructor, True),
    (object, Contents._object, True),
)


_by_type: dict[type, tuple[_Rule, bool]] = {}


def _rule_of(kind: type) -> tuple[_Rule, bool]:
    if kind not in _by_type:
        _by_type[kind] = next((rule, has_parts) for types, rule, has_parts in _RULES if issubclass(kind, types))
    return _by_type[kind]
