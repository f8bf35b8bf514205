"""Names and the values they get: by assignments, and by loops over items that are known."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..diagnostics import Diagnostic
from ..source import Span
from .machine import Machine
from .terms import Captured, Role, Term
from .values import BAD, Instance, Items, Scope, Value


def bind(machine: Machine, target: ast.expr, value: Value, scope: Scope, renames: bool = False) -> None:
    """Gives a name, or several, their values. `renames`: also what has a name, that of a variable of a function."""
    span = machine.span(target, scope)
    match target:
        case ast.Name():
            new = machine.alias(value, target.id, span) if renames else value
            scope.names[target.id] = _named(machine, target.id, new, scope, span)
        case ast.Tuple() | ast.List():
            for item, part in zip(target.elts, _unpacked(machine, target.elts, value, scope), strict=True):
                bind(machine, item, part, scope, renames)
        case ast.Attribute(value=holder, attr=name) if isinstance(of := machine.evaluate(holder, scope), Instance):
            if machine.inside:
                machine.error("A703", f"`{span.text}` can't be assigned to", span, help=_NO_EFFECTS)
            of.names[name] = machine.named(value, name, span, Role.OUTER)
        case ast.Subscript(value=ast.Attribute(value=holder)) if isinstance(
            of := machine.evaluate(holder, scope), Instance
        ):
            of.forget()
        case _ if machine.inside:
            text = span.text
            machine.error("A703", f"`{text}` can't be assigned to", span, help=_NO_EFFECTS)
        case ast.Subscript(value=ast.Name(id=name)) if not isinstance(scope.find(name), Captured):
            why = Diagnostic("A703", f"an item of `{name}` is replaced", span, help="write the whole list at once")
            scope.names[name] = Captured(name, span, f"changed in line {span.line}", why=why)


_NO_EFFECTS = "a mod has no side effects: compute a new value under a new name"


def _named(machine: Machine, name: str, value: Value, scope: Scope, span: Span) -> Value:
    """A value under its name. In a score_mod, a new value of the parameter `score` is a line of the variant."""
    if name == scope.score and isinstance(value, Term):
        return machine.score_line(value)
    return machine.named(value, name, span, Role.LOCAL if machine.inside else Role.OUTER)


def _unpacked(machine: Machine, targets: Sequence[ast.expr], value: Value, scope: Scope) -> Sequence[Value]:
    """A value for each of several names."""
    if isinstance(value, Items) and len(value.items) == len(targets):
        return value.items
    span = machine.span(targets[0], scope)
    why = Diagnostic("A703", "what is unpacked here isn't known", span, help="assign each name by itself")
    whole = machine.cannot(span, [value], why)
    return [whole if whole is BAD else machine.derive(machine.span(item, scope), [value]) for item in targets]


def iterate(value: Value) -> tuple[Value, ...] | None:
    """The items that a loop goes through, if they are known."""
    return value.items if isinstance(value, Items) else None
