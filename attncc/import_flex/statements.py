"""One rule for each sort of Python statement: `rule(machine, node, scope)` gives what it returns, None if nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..diagnostics import Diagnostic
from . import calls
from .binding import bind, iterate
from .branches import either, forget
from .expressions import binary, truth_of, undecided
from .fields import init_by_fields, is_made_by_fields, last_word
from .machine import Machine
from .terms import Captured, Term
from .values import BAD, NOTHING, Class, Function, Instance, Items, Later, Lookup, Module, Scope, Value

MAX_ROUNDS = 64  # of a loop inside a mod, which is written out

# Decorators that leave what a function computes as it is.
_TRANSPARENT = frozenset(
    {"compile", "wraps", "lru_cache", "cache", "staticmethod", "no_grad", "inference_mode", "disable", "allow_in_graph"}
)


def unknown(machine: Machine, node: ast.stmt, scope: Scope) -> Value | None:
    """A statement without a rule."""
    span = machine.span(node, scope)
    span = replace(span, end=span.start + len(span.text.split("\n")[0]))
    help = "write the mod as assignments and one `return`"
    return skip(
        machine, [node], scope, Diagnostic("A703", f"`{type(node).__name__.lower()}` can't be taken", span, help=help)
    )


def skip(machine: Machine, nodes: Sequence[ast.stmt], scope: Scope, why: Diagnostic) -> Value | None:
    """Statements that can't be followed: an error inside a mod. What they bind and return isn't known."""
    if machine.inside:
        machine.found.add(why)
    assert why.span is not None
    forget(nodes, scope)
    for name in _changed(nodes, scope):
        lost = Captured(name, why.span, f"set in line {why.span.line}", why=why)
        scope.names[name] = BAD if machine.inside else lost
    returns = any(isinstance(item, ast.Return) for item in _of_one_scope(nodes))
    if not returns:
        return None
    return BAD if machine.inside else Captured(scope.label, why.span, "one of several", why=why)


def _changed(nodes: Sequence[ast.stmt], scope: Scope) -> set[str]:
    """Every name that statements bind, and every list that they may change."""
    names: set[str] = set()
    for item in _of_one_scope(nodes):
        if isinstance(item, ast.FunctionDef | ast.ClassDef):
            names.add(item.name)
        elif isinstance(item, ast.Name) and (isinstance(item.ctx, ast.Store) or _is_list(scope, item.id)):
            names.add(item.id)
    return names


def _of_one_scope(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes below some statements, without the bodies of the functions and classes that they define."""
    for node in nodes:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _of_one_scope(list(ast.iter_child_nodes(node)))


def _is_list(scope: Scope, name: str) -> bool:
    return isinstance(scope.find(name), Items)


# -------------------------------------------------------------------- assignments


def _assign(machine: Machine, node: ast.Assign, scope: Scope) -> None:
    value = calls.hinted(machine.evaluate(node.value, scope), node.value)
    for target in node.targets:
        bind(machine, target, value, scope, renames=isinstance(node.value, ast.Call))


def _annotated(machine: Machine, node: ast.AnnAssign, scope: Scope) -> None:
    if node.value is not None:
        bind(machine, node.target, calls.hinted(machine.evaluate(node.value, scope), node.value), scope)


def _augmented(machine: Machine, node: ast.AugAssign, scope: Scope) -> None:
    if not isinstance(node.target, ast.Name):
        bind(machine, node.target, NOTHING, scope)
        forget([node], scope)
        return
    left = machine.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target), scope)
    bind(machine, node.target, binary(machine, node, left, machine.evaluate(node.value, scope), scope), scope)
    if isinstance(left, Term) and left.varies:  # a tensor is changed where it lies, so under all of its names
        for frame in machine.frames:
            frame.names.update({name: scope.names[node.target.id] for name, of in frame.names.items() if of is left})


def _function(machine: Machine, node: ast.FunctionDef, scope: Scope) -> None:
    unclear = [item for item in node.decorator_list if last_word(item) not in _TRANSPARENT]
    span = machine.span(node, scope)
    if unclear:
        decorator = machine.span(unclear[0], scope)
        message = f"`@{decorator.text}` may change what `{node.name}` does"
        why = Diagnostic("A706", message, decorator, help="call what it computes itself, as in torch.tanh(x)")
        scope.names[node.name] = Captured(node.name, span, f"decorated in line {decorator.line}", why=why)
    else:
        scope.names[node.name] = calls.function(machine, node.name, node, scope)


def _class(machine: Machine, node: ast.ClassDef, scope: Scope) -> None:
    body = Scope(scope.text, scope, node.name)
    bases = tuple(Later(partial(machine.evaluate, base, scope)) for base in node.bases)
    scope.names[node.name] = made = Class(node.name, body, bases)
    machine.run(node.body, body)
    if is_made_by_fields(node):
        init = init_by_fields(node)
        body.names["__init__"] = NOTHING if init is None else calls.function(machine, "__init__", init, body)
    static = {
        item.name
        for item in node.body
        if isinstance(item, ast.FunctionDef) and "staticmethod" in map(last_word, item.decorator_list)
    }
    for name, value in body.names.items():
        if isinstance(value, Function) and name not in static and value.parameters:
            anyone = Instance(made, {}, known=False)
            body.names[name] = replace(value, scope=scope, bound=(anyone,), of_instances=True)


def _import(machine: Machine, node: ast.Import, scope: Scope) -> None:
    for alias in node.names:
        if alias.asname is None:
            scope.names[alias.name.split(".")[0]] = machine.modules.imported(alias.name.split(".")[0], scope)
        else:
            scope.names[alias.asname] = machine.modules.imported(alias.name, scope)


def _import_from(machine: Machine, node: ast.ImportFrom, scope: Scope) -> None:
    module = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name != "*":
            scope.names[alias.asname or alias.name] = machine.modules.member(module, alias.name, scope)
            continue
        whole = machine.modules.resolve(machine.modules.imported(module, scope))
        if isinstance(whole, Module):
            scope.names.update({name: found for name, found in whole.scope.names.items() if name[0] != "_"})


# -------------------------------------------------------------------- control flow


def _return(machine: Machine, node: ast.Return, scope: Scope) -> Value:
    return NOTHING if node.value is None else machine.evaluate(node.value, scope)


def _if(machine: Machine, node: ast.If, scope: Scope) -> Value | None:
    test = machine.evaluate(node.test, scope)
    decided = truth_of(test)
    if decided is None and not machine.inside:
        decided = _other_branch_raises(node)
    if decided is not None:
        return machine.run(node.body if decided else node.orelse, scope)
    if test is BAD:
        return BAD
    at = machine.span(node.test, scope)
    why = undecided(at, at.text)
    if machine.inside:
        return skip(machine, [*node.body, *node.orelse], scope, why)
    return either(machine, [node.body, node.orelse], scope, why)


def _other_branch_raises(node: ast.If) -> bool | None:
    """Of two branches, one of which raises, the other is taken."""
    if any(isinstance(item, ast.Raise) for item in node.body):
        return False
    return True if any(isinstance(item, ast.Raise) for item in node.orelse) else None


def _for(machine: Machine, node: ast.For, scope: Scope) -> Value | None:
    """A loop over known items, written out."""
    span = machine.span(node.iter, scope)
    items = iterate(machine.evaluate(node.iter, scope))
    leaves = any(isinstance(item, ast.Break | ast.Continue) for part in node.body for item in ast.walk(part))
    if items is None or leaves or node.orelse or (machine.inside and len(items) > MAX_ROUNDS):
        why = Diagnostic("A710", "this loop can't be written out", span, help=_KNOWN_LOOP)
        return skip(machine, [node], scope, why)
    for item in items:
        bind(machine, node.target, item, scope)
        result = machine.run(node.body, scope)
        if result is not None:
            return result
    return None


_KNOWN_LOOP = "loop over `range(n)` or a list, at most 64 times, n known, without break and continue"


def _with(machine: Machine, node: ast.With, scope: Scope) -> Value | None:
    """Outside of mods: a device or no_grad; what `as` binds isn't known."""
    if machine.inside:
        return unknown(machine, node, scope)
    for item in node.items:
        if item.optional_vars is not None:
            bind(machine, item.optional_vars, machine.derive(machine.span(item.context_expr, scope)), scope)
    return machine.run(node.body, scope)


def _try(machine: Machine, node: ast.Try, scope: Scope) -> Value | None:
    """Outside of mods: as if nothing was raised."""
    return unknown(machine, node, scope) if machine.inside else machine.run([*node.body, *node.orelse], scope)


def _expression(machine: Machine, node: ast.Expr, scope: Scope) -> None:
    """A call for its effect: `masks.append(f)`, in a mod a method that works in place; others have no effect here."""
    value = node.value
    if not isinstance(value, ast.Call):
        return
    if not machine.inside and not _is_method_of_an_object(machine, value, scope):
        forget([node], scope)
    if not isinstance(value.func, ast.Attribute):
        return
    name, base = value.func.attr, value.func.value
    if isinstance(base, ast.Name) and isinstance(items := scope.find(base.id), Items | Lookup):
        span = machine.span(value, scope)
        if name == "append" and len(value.args) == 1 and isinstance(items, Items):
            scope.names[base.id] = Items((*items.items, machine.evaluate(value.args[0], scope)))
        else:
            why = Diagnostic("A703", f"`.{name}()` changes a list", span, help="write the whole list at once")
            scope.names[base.id] = machine.cannot(span, [items], why)
    elif machine.inside and name.endswith("_"):
        span = machine.span(value, scope)
        help = f"a mod has no side effects: write `x = x.{name.rstrip('_')}(...)`"
        machine.error("A703", f"`.{name}()` works in place", span, help=help)


def _is_method_of_an_object(machine: Machine, call: ast.Call, scope: Scope) -> bool:
    """Whether `self.prepare()` is such a call that was read, or `super().__init__()`, which leaves what is known."""
    if not isinstance(call.func, ast.Attribute):
        return False
    base = call.func.value
    if isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super":
        return True
    if not (isinstance(base, ast.Name) and isinstance(of := scope.find(base.id), Instance)):
        return False
    if not isinstance(calls.class_name(machine, of.of, call.func.attr), Function):
        return False
    machine.evaluate(call, scope)
    return True


def _nothing(machine: Machine, node: ast.stmt, scope: Scope) -> None:
    """`pass`, `assert`, `global`: nothing that a value depends on."""


RULES: dict[type[ast.stmt], Callable[[Machine, Any, Scope], Value | None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.FunctionDef: _function,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Return: _return,
    ast.If: _if,
    ast.For: _for,
    ast.With: _with,
    ast.Try: _try,
    ast.Expr: _expression,
    ast.Pass: _nothing,
    ast.Assert: _nothing,
    ast.Global: _nothing,
    ast.Nonlocal: _nothing,
}
