"""Plans as JSON values and back: a built package carries its plans."""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from .. import ir
from ..analysis import rules
from ..analysis.grid_2d import Grid2D
from .choice import OPTIONAL
from .plan import KernelPlan

_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        KernelPlan, Grid2D, ir.Variant, rules.TileRules, rules.QBounds, rules.MinMaxTable, ir.Axis, ir.Input, ir.Let,
        ir.Keep, ir.Score, ir.Const, ir.Symbol, ir.Local, ir.Load, ir.Search, ir.Apply,
    )
}  # fmt: skip


def to_json(value: Any) -> Any:
    """A plan, or any part of one, as JSON values; spans are left out. Inverse of `from_json`.

    An expression that was written before is `{"same": number}`: operators and loads are numbered as they end. Tile
    rules share so much that they would be a hundred times as long without.
    """
    return _to_json(value, {})


def _to_json(value: Any, written: dict[ir.Expr, int]) -> Any:
    if isinstance(value, ir.Type):
        return {"type": value.value}
    if isinstance(value, tuple):
        return [_to_json(item, written) for item in value]
    if is_dataclass(value):
        return _class_json(value, written)
    assert value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)), value
    return value


def _class_json(value: Any, written: dict[ir.Expr, int]) -> dict[str, Any]:
    if _is_numbered(value) and value in written:
        return {"same": written[value]}
    shown = {f.name: _to_json(getattr(value, f.name), written) for f in fields(value) if _is_told(f, value)}
    if _is_numbered(value):
        written[value] = len(written)
    return {"class": type(value).__name__, **shown}


def _is_told(item: Field[Any], value: Any) -> bool:
    return item.compare and not (OPTIONAL in item.metadata and getattr(value, item.name) == item.default)


def _is_numbered(value: Any) -> bool:
    return isinstance(value, ir.Apply | ir.Load | ir.Search)


def from_json(value: Any) -> Any:
    """Rebuilds what `to_json` wrote, with every field of the type that it has. ValueError on anything else."""
    try:
        return _from_json(value, [])
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _from_json(value: Any, read: list[Any]) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(item, read) for item in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"type"}:
        return ir.Type(value["type"])
    if set(value) == {"same"} and type(value["same"]) is int and value["same"] in range(len(read)):
        return read[value["same"]]
    cls = _CLASSES.get(name) if isinstance(name := value.get("class"), str) else None
    if cls is None:
        raise ValueError(f"not part of a plan: {value!r:.80}")
    rebuilt = _rebuilt(cls, {key: _from_json(item, read) for key, item in value.items() if key != "class"})
    if _is_numbered(rebuilt):
        read.append(rebuilt)
    return rebuilt


def _rebuilt(cls: type, given: dict[str, Any]) -> Any:
    hints = _hints(cls)
    left_out = {item.name for item in fields(cls) if OPTIONAL in item.metadata}
    if not set(hints) - left_out <= set(given) <= set(hints):
        raise ValueError(f"{cls.__name__} has the fields {', '.join(hints)}")
    for name, item in given.items():
        if not _fits(item, hints[name]):
            raise ValueError(f"{cls.__name__}.{name} can't be {item!r:.80}")
    return cls(**given)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """The types of the fields that are written."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls) if item.compare and item.init}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, as fields declare it."""
    parts = get_args(hint)
    if isinstance(hint, UnionType):
        return any(_fits(value, part) for part in parts)
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(wanted) == len(value) and all(map(_fits, value, wanted))
    return type(value) is hint if hint in (bool, int, float, str) else isinstance(value, hint)
