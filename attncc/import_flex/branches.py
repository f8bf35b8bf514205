"""An `if` outside of mods that isn't decided: both branches are read, each with names of its own.

What a branch alone defines has that value wherever it is read, as Python would have no value else. What both give in
different ways isn't known, and an error where it matters.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..diagnostics import Diagnostic
from .fold import known
from .machine import Machine
from .terms import Captured, Term
from .values import NOTHING, Instance, Scope, Value, Way


def either(machine: Machine, branches: Sequence[Sequence[ast.stmt]], scope: Scope, why: Diagnostic) -> Value | None:
    """Reads all branches. Their names become those of the scope; one of the results, if no branch goes on."""
    going: list[Scope] = []
    for branch in branches:
        own = Scope(scope.text, scope, scope.label)
        result = machine.run(branch, own)
        scope.left += own.left
        if result is None:
            going.append(own)
        else:
            scope.left.append(Way(result, own.names, why))
    for branch in branches:
        forget(branch, scope)
    for name in dict.fromkeys(name for own in going for name in own.names):
        ways = [own.names.get(name, scope.names.get(name)) for own in going]
        scope.names[name] = _one_of(name, [value for value in ways if value is not None], why)
    return None if going else scope.left[-1].result


def forget(nodes: Sequence[ast.AST], scope: Scope) -> None:
    """Objects that statements may change in ways that aren't followed: they set attributes or items, or call something
    for its effect."""
    below = [item for node in nodes for item in ast.walk(node)]
    stores = any(isinstance(item, ast.Attribute | ast.Subscript) and isinstance(item.ctx, ast.Store) for item in below)
    if stores or any(isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) for item in below):
        for item in below:
            if isinstance(item, ast.Name) and isinstance(found := scope.find(item.id), Instance):
                found.forget()


def returned(scope: Scope, last: Value) -> Value:
    """What a function returns that has several ways out. Where it may return None, something else was asked for."""
    values = [value for value in (*(way.result for way in scope.left), last) if value is not NOTHING]
    return _one_of(scope.label, values, scope.left[0].why) if values else NOTHING


def name_in(scope: Scope, name: str) -> Value | None:
    """A name in a function that was read to its end, or to one of its ends."""
    values = [scope.names.get(name), *(way.names.get(name) for way in scope.left)]
    bound = [value for value in values if value is not None]
    return _one_of(name, bound, scope.left[0].why) if scope.left and bound else scope.names.get(name)


def _one_of(name: str, values: Sequence[Value], why: Diagnostic) -> Value:
    """The value that all ways give; a captured one where they differ."""
    if all(_same(value, values[0]) for value in values[1:]):
        return values[0]
    assert why.span is not None
    return Captured(name, why.span, f"set in line {why.span.line}", why=why)


def _same(one: Value, other: Value) -> bool:
    if one is other or (not isinstance(one, Term) and one == other):
        return True
    value = known(one) if isinstance(one, Term) else None
    return value is not None and isinstance(other, Term) and known(other) == value
