"""Operators and functions by name: one record (`Operator`) each."""

from __future__ import annotations

from . import arithmetic, functions
from .record import Operator, Type

OPERATORS: dict[str, Operator] = {item.name: item for item in (*arithmetic.RECORDS, *functions.RECORDS)}

COMPARISONS = frozenset(item.name for item in arithmetic.COMPARED)

# Operator by the sign that it is written with.
WRITTEN: dict[str, str] = {item.infix: item.name for item in OPERATORS.values() if item.infix}

# Functions of one float that give a float, and those that give an int.
FLOAT_FUNCTIONS = tuple(name for name, item in OPERATORS.items() if item.is_float_function and item.gives is None)
WHOLE_FUNCTIONS = tuple(name for name, item in OPERATORS.items() if item.is_float_function and item.gives is Type.INT)

__all__ = ["COMPARISONS", "FLOAT_FUNCTIONS", "OPERATORS", "WHOLE_FUNCTIONS", "WRITTEN", "Operator"]
