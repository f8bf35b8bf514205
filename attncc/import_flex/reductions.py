"""`any(... for i in range(n))` inside a mod, likewise `all` and `sum`: loops that `.attn` has too, kept as loops."""

from __future__ import annotations

import ast

from .fold import known
from .machine import Machine
from .terms import Reduce, Term, Variable
from .values import BAD, Library, Scope, Value

_REDUCERS = tuple(Library(f"builtins.{name}") for name in ("any", "all", "sum"))


def reduction(machine: Machine, node: ast.Call, scope: Scope) -> Value | None:
    """The value of such a call; None for any other call."""
    generator = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if not (machine.inside and isinstance(node.func, ast.Name) and isinstance(generator, ast.GeneratorExp)):
        return None
    loop = generator.generators[0]
    target = loop.target
    if len(generator.generators) > 1 or loop.ifs or not isinstance(target, ast.Name):
        return None
    count = _count(machine, loop.iter, scope)
    if count is None or machine.evaluate(node.func, scope) not in _REDUCERS:
        return None
    inner = Scope(scope.text, scope, scope.label)
    variable = Variable(name=target.id, span=machine.span(target, scope))
    inner.names[target.id] = variable
    with machine.nameless():
        body = machine.number(machine.evaluate(generator.elt, inner), machine.span(generator.elt, scope))
    if body is None:
        return BAD
    return Reduce(function=node.func.id, body=body, variable=variable, count=count, span=machine.span(node, scope))


def _count(machine: Machine, node: ast.expr, scope: Scope) -> Term | None:
    """The known n of `range(n)`."""
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords):
        return None
    if machine.evaluate(node.func, scope) != Library("builtins.range"):
        return None
    count = machine.evaluate(node.args[0], scope)
    return count if isinstance(count, Term) and isinstance(known(count), int) else None
