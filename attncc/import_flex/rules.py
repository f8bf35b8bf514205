"""The rules by which a machine reads Python, put together."""

from __future__ import annotations

from . import calls, expressions, statements
from .machine import Rules

RULES = Rules(expressions.RULES, expressions.unknown, statements.RULES, statements.unknown, calls.call)
