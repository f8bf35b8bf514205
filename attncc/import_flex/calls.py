"""Calls: of the user's functions, which are read with their arguments in place, and of what libraries bring."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..diagnostics import Diagnostic, Label
from ..source import Span
from . import axes, hints, intrinsics, library
from .blocks import asked_of_shape
from .branches import returned
from .machine import Machine
from .terms import Captured, Element, Role, Score, Symbol
from .text import TARGET
from .values import BAD, NOTHING, Bad, Block, Class, Function, Given, Instance, Items, Library, Scope, Value, noun


def given(machine: Machine, node: ast.Call, scope: Scope) -> Given:
    """The arguments of a call, evaluated."""
    keywords = {
        item.arg: hinted(machine.evaluate(item.value, scope), item.value)
        for item in node.keywords
        if item.arg is not None
    }
    return Given(arguments(machine, node.args, scope), keywords, machine.span(node, scope))


def arguments(machine: Machine, nodes: Sequence[ast.expr], scope: Scope) -> tuple[Value, ...]:
    """The values of arguments or list items; `*items` are written out."""
    found: list[Value] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            found.append(hinted(machine.evaluate(node, scope), node))
            continue
        value = machine.evaluate(node.value, scope)
        if isinstance(value, Items):
            found += value.items
        else:
            span = machine.span(node, scope)
            why = Diagnostic("A703", "what `*` stands for isn't known", span, help="list the arguments")
            found.append(machine.cannot(span, [value], why))
    return tuple(found)


def hinted(value: Value, node: ast.expr) -> Value:
    """A captured value with what its definition shows of its dtype; one that a call made gets the name it is given."""
    if not isinstance(value, Captured) or not (value.auto or isinstance(node, ast.Call)):
        return value
    learnable = value.learnable or hints.is_parameter(node)
    return replace(value, dtype=hints.dtype(node) or value.dtype, learnable=learnable, auto=True)


def call(machine: Machine, function: Value, given: Given) -> Value:
    """What a call gives."""
    match function:
        case Bad():
            return BAD
        case Function():
            return execute(machine, function, given)[0]
        case Class():
            return _new(machine, function, given)
        case Library():
            return _library(machine, function, given)
    return machine.cannot(given.span, given.every, _not_a_function(function, given.span))


def _new(machine: Machine, of: Class, given: Given) -> Value:
    """An object of a class of the file: `__init__` gives its attributes (`fields` has that of a dataclass)."""
    made = Instance(of, {})
    init = class_name(machine, of, "__init__")
    if isinstance(init, Function):
        execute(machine, bound_to(made, init), given)
    elif given.every:
        return machine.cannot(given.span, given.every, _not_a_function(of, given.span))
    return made


def class_name(machine: Machine, of: Class, name: str) -> Value | None:
    """A name in the body of a class, or in one of the classes of the file that it is made from."""
    if name in of.scope.names:
        return machine.modules.resolve(of.scope.names[name])
    for base in map(machine.modules.resolve, of.bases):
        if isinstance(base, Class) and (found := class_name(machine, base, name)) is not None:
            return found
    return None


def bound_to(made: Instance, function: Function) -> Function:
    """A method of a class with its `self`."""
    if not function.of_instances:
        return function
    return replace(function, bound=(made, *function.bound[1:]))


def _not_a_function(value: Value, span: Span) -> Diagnostic:
    if not isinstance(value, Captured):
        what = "an instance of a class of the file" if isinstance(value, Class) else f"a call of {noun(value)}"
        return Diagnostic("A704", f"{what} can't be taken", span, help=library.BRING_IT)
    labels = (Label(value.span, "it comes from here"),)
    notes = (value.why.message,) if value.why else (f"`{value.name}` is {value.origin}",)
    help = "give the function in the call, as in FILE.py:factory(causal_mask), or write it out in this file"
    help = value.why.help if value.why and value.why.help else help
    return Diagnostic("A706", f"what `{value.name}` does isn't known", span, labels=labels, notes=notes, help=help)


def _library(machine: Machine, function: Library, given: Given) -> Value:
    intrinsic = intrinsics.INTRINSICS.get(function.path) or axes.INTRINSICS.get(function.path)
    if intrinsic is not None:
        return intrinsic(machine, given)
    explained = library.explanation(function.path, machine.torch)
    if explained is not None:
        return call(machine, machine.torch.names[explained], given)
    name = function.path.rpartition(".")[2]
    why = _unknown(f"`{function.short}`", name, given.span)
    if machine.inside and name in library.RANDOM:
        machine.found.add(why)
        return BAD
    if function.path.partition(".")[0] not in library.KNOWN:
        help = "copy it into this file, or put the file that defines it where Python would find it from here"
        why = Diagnostic("A706", f"what `{function.path}` does isn't known", given.span, help=help)
    shape = intrinsics.made_shape(name, given) if function.path == f"torch.{name}" else None
    return machine.cannot(given.span, given.every, why, shape)


def method(machine: Machine, receiver: Value, name: str, given: Given) -> Value:
    """What a method of a number, tensor or list gives."""
    explained = library.explanation(f"torch.Tensor.{name}", machine.torch)
    every = Given((receiver, *given.values), given.keywords, given.span)
    if isinstance(receiver, Captured | Block) and (told := asked_of_shape(machine, receiver, name, given)) is not None:
        return told
    if not machine.inside and isinstance(receiver, Captured):
        shape = machine.shape_of(receiver) if name in hints.KEEP_SHAPE else None
        return machine.derive(given.span, every.every, shape=shape)
    if explained is None or isinstance(receiver, Items):
        return machine.cannot(given.span, every.every, _unknown(f"`.{name}()`", name, given.span))
    return call(machine, machine.torch.names[explained], every)


def _unknown(what: str, name: str, span: Span) -> Diagnostic:
    return Diagnostic("A704", f"{what} can't be taken", span, help=library.ADVICE.get(name, library.BRING_IT))


# -------------------------------------------------------------------- functions of the file


def function(machine: Machine, name: str, node: ast.FunctionDef | ast.Lambda, scope: Scope) -> Function:
    """A function where it is defined: its defaults have their values now."""
    positional = [*node.args.posonlyargs, *node.args.args]
    with_default = positional[len(positional) - len(node.args.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [*zip(with_default, node.args.defaults, strict=True)]
    pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    defaults = {
        parameter.arg: machine.named(
            machine.evaluate(value, scope), parameter.arg, machine.span(parameter, scope), Role.OUTER
        )
        for parameter, value in pairs
        if value is not None
    }
    return Function(name, node, scope, defaults)


def execute(machine: Machine, function: Function, given: Given) -> tuple[Value, Scope]:
    """Reads a function with these arguments: what it returns, and its names."""
    scope = Scope(function.scope.text, function.scope, function.name)
    of_torch = function.scope.root is machine.torch
    with machine.placed(given.span if of_torch else None), machine.deeper() as allowed:
        if not allowed:
            return machine.stopped(given.span), scope
        if not _bind(machine, function, given, scope):
            return BAD, scope
        return body(machine, function, scope), scope


def bind_mod(machine: Machine, function: Function, is_mask: bool, span: Span) -> Scope:
    """The scope of a mod that is called for a pair."""
    scope = Scope(function.scope.text, function.scope, function.name)
    symbols: list[Value] = [Symbol(name=name, span=span) for name in ("b", "h", "q_idx", "kv_idx")]
    if not is_mask:
        symbols.insert(0, Score(version=len(machine.scores), span=span))
        scope.score = function.parameters[0].arg
    _bind(machine, function, Given(tuple(symbols), {}, span), scope)
    return scope


def body(machine: Machine, function: Function, scope: Scope) -> Value:
    """What a function returns, given the scope that holds its arguments."""
    if isinstance(function.node, ast.Lambda):
        return machine.evaluate(function.node.body, scope)
    machine.frames.append(scope)
    result = machine.run(function.node.body, scope)
    machine.frames.pop()
    last = NOTHING if result is None else result
    return returned(scope, last) if scope.left else last


def _bind(machine: Machine, function: Function, given: Given, scope: Scope) -> bool:
    """Gives the parameters their values; inside a mod and in a target, whether the arguments fit."""
    node = function.node.args
    every = _parameters(function)
    names = [parameter.arg for parameter in every]
    positional = len(names) - len(node.kwonlyargs)
    values = [*function.bound, *given.values]
    matched = {**function.defaults, **dict(zip(names[:positional], values, strict=False))}
    matched |= {name: value for name, value in given.keywords.items() if name in names}
    if problem := _misfit(function, given, matched, machine.inside):
        machine.error("A704", problem, given.span, help="give each parameter one argument")
        return False
    role = Role.ARGUMENT if machine.inside else Role.OUTER
    for parameter in every:
        at = machine.span(parameter, function.scope)
        value = matched[parameter.arg] if parameter.arg in matched else _unknown_parameter(function, parameter, at)
        scope.names[parameter.arg] = machine.named(value, parameter.arg, at, role)
    if node.vararg is not None:
        scope.names[node.vararg.arg] = Items(tuple(values[positional:]))
    if node.kwarg is not None:
        scope.names[node.kwarg.arg] = NOTHING
    return True


def _misfit(function: Function, given: Given, matched: Mapping[str, Value], inside: bool) -> str:
    """What is wrong with the arguments of a call, if anything is. What a target leaves out becomes an input."""
    if not inside and given.span.source.path != TARGET:
        return ""
    node = function.node.args
    names = [parameter.arg for parameter in _parameters(function)]
    missing = [name for name in names if name not in matched]
    if missing and inside:
        return f"`{function.name}` needs `{missing[0]}`, which isn't given"
    if len(given.values) > len(function.parameters) and node.vararg is None:
        return f"`{function.name}` takes {len(function.parameters)} arguments, and {len(given.values)} came"
    positional = names[: len(names) - len(node.kwonlyargs)]
    twice = [name for name in positional[: len(function.bound) + len(given.values)] if name in given.keywords]
    if twice:
        return f"`{function.name}` is given `{twice[0]}` twice"
    unknown = [name for name in given.keywords if name not in names]
    return f"`{function.name}` has no parameter `{unknown[0]}`" if unknown and node.kwarg is None else ""


def _parameters(function: Function) -> list[ast.arg]:
    node = function.node.args
    return [*node.posonlyargs, *node.args, *node.kwonlyargs]


_ANNOTATED = {"int": "i32", "float": "f32", "bool": "bool"}


def _unknown_parameter(function: Function, parameter: ast.arg, span: Span) -> Value:
    """A parameter of a factory that nobody gives: a number if it is annotated as one, else anything."""
    annotation = parameter.annotation.id if isinstance(parameter.annotation, ast.Name) else ""
    dtype = _ANNOTATED.get(annotation)
    learnable = hints.names_parameter(parameter.annotation)
    origin = f"a parameter of {function.name}"
    captured = Captured(parameter.arg, span, origin, dtype, plain=dtype is not None, learnable=learnable)
    return Element(captured=captured, span=span) if dtype else captured
