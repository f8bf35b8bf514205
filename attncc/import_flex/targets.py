"""What the user asks for: `FILE.py:function`, `FILE.py:factory(1024)`, `FILE.py:factory.inner`, `FILE.py`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics import AttnccError, Diagnostic, did_you_mean
from ..source import SourceFile, Span
from .branches import name_in
from .calls import execute, given
from .machine import Machine
from .terms import Captured
from .text import TARGET, parse_python
from .values import Class, Function, Given, Module, Scope, Value, noun, parts

MASK_PARAMETERS, SCORE_PARAMETERS = 4, 5  # required ones; FlexAttention tells the two apart by them too

_TARGET = re.compile(r"(?P<file>.*?\.py)(?::(?P<expression>.+))?", re.DOTALL)
_FACTORY_WORDS = re.compile(r"^(generate|make|create|get|build)_|_(mask_mod|score_mod|mod)$")


@dataclass(frozen=True)
class Mod:
    """A function that FlexAttention would take, and the target that named it. `span` is its place in the target."""

    function: Function
    target: str
    name: str
    span: Span

    @property
    def is_mask(self) -> bool:
        return self.function.required == MASK_PARAMETERS


def find_mods(machine: Machine, target: str) -> tuple[Mod, ...]:
    """The mods that a target names: one, or those that a factory returns together.

    AttnccError A701, A702 for the file and for the text of the target, A708 where there is no mod.
    """
    match = _TARGET.fullmatch(target)
    if match is None:
        raise AttnccError(
            Diagnostic("A701", f"{target} names no function of a Python file", help="write FILE.py:function")
        )
    module = machine.modules.read(Path(match["file"]))
    written = match["expression"] or _only_mod(module, match["file"])
    text = parse_python(SourceFile(TARGET, written), expression=True)
    assert isinstance(text.tree, ast.Expression)
    scope = Scope(text, module)
    span = text.span(text.tree.body)
    named = _value(machine, text.tree.body, scope)
    value = _called(machine, named, span)
    machine.found.raise_errors()
    mods = [item for item in parts(value) if isinstance(item, Function) and _is_mod(item)]
    if not mods:
        raise AttnccError(_no_mod(named, value, module, span))
    return tuple(Mod(mod, target, _name(text.tree.body), span) for mod in mods)


def _is_mod(function: Function) -> bool:
    return function.required in (MASK_PARAMETERS, SCORE_PARAMETERS)


def _only_mod(module: Scope, file: str) -> str:
    found = [name for name in _candidates(module) if _is_mod_name(module, name)]
    if len(found) == 1:
        return found[0]
    some = f"it has {', '.join(_candidates(module)) or 'no functions'}"
    raise AttnccError(Diagnostic("A708", f"which function of {file}?", notes=(some,), help="write FILE.py:function"))


def _is_mod_name(module: Scope, name: str) -> bool:
    value = module.names[name]
    return isinstance(value, Function) and _is_mod(value)


def _candidates(scope: Scope) -> list[str]:
    return [name for name, value in scope.names.items() if isinstance(value, Function | Class)]


# -------------------------------------------------------------------- from the expression to a value


def _value(machine: Machine, node: ast.expr, scope: Scope) -> Value:
    """As in Python, and `factory.inner` is a name in the body of a function."""
    if isinstance(node, ast.Attribute) and (inner := _names_in(machine, node.value, scope)) is not None:
        found = machine.modules.resolve(name_in(inner, node.attr))
        machine.found.raise_errors()
        if found is None:
            raise AttnccError(_unknown(node.attr, inner, scope.text.span(node)))
        return found
    if isinstance(node, ast.Name) and scope.find(node.id) is None:
        raise AttnccError(_unknown(node.id, scope.root, scope.text.span(node)))
    return machine.evaluate(node, scope)


def _names_in(machine: Machine, node: ast.expr, scope: Scope) -> Scope | None:
    """The names inside of the function, the class or the module that an expression names."""
    span = scope.text.span(node)
    if isinstance(node, ast.Call):
        function = _value(machine, node.func, scope)
        if isinstance(function, Function):
            return execute(machine, function, given(machine, node, scope))[1]
    value = _value(machine, node, scope)
    if isinstance(value, Function):
        return execute(machine, value, Given((), {}, span))[1]
    return value.scope if isinstance(value, Class | Module) else None


def _called(machine: Machine, value: Value, span: Span) -> Value:
    """What a factory returns where one is named; a mod itself returns no function."""
    if not isinstance(value, Function):
        return value
    result = execute(machine, value, Given((), {}, span))[0]
    returns_mods = any(isinstance(item, Function) for item in parts(result))
    return result if returns_mods or not _is_mod(value) else value


def _name(node: ast.expr) -> str:
    """A name for the variant: `sliding_window` of `generate_sliding_window(1024)`, `BlockSparse` of its `mask_mod`."""
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return _name(node.value) if _short(node.attr) in _MEANINGLESS else _short(node.attr)
    return _short(node.id) if isinstance(node, ast.Name) else "imported"


def _short(name: str) -> str:
    short = _FACTORY_WORDS.sub("", name)
    return name if short in _MEANINGLESS else short


_MEANINGLESS = ("", "mask", "score", "mod", "mask_mod", "score_mod", "inner")


# -------------------------------------------------------------------- problems


def _unknown(name: str, scope: Scope, span: Span) -> Diagnostic:
    where = f"in {scope.label}" if scope.label else "there"
    known = _candidates(scope) or [item for item in scope.names if not item.startswith("__")]
    notes = (f"there are: {', '.join(known)}",) if known else ()
    help = did_you_mean(name, known) or "write FILE.py:function, or FILE.py:factory.inner for a function in another"
    return Diagnostic("A708", f"there is no `{name}` {where}", span, notes=notes, help=help)


def _no_mod(named: Value, result: Value, module: Scope, span: Span) -> Diagnostic:
    """Why a target is none of FlexAttention's functions: what it names, and what that gives."""
    if isinstance(result, Captured) and result.why is not None:
        return result.why
    what = noun(named)
    if isinstance(named, Function):
        plural = "" if named.required == 1 else "s"
        what = f"a function of {named.required} argument{plural} that returns no such function"
    message = f"`{span.text}` is no mask_mod and no score_mod: it is {what}"
    notes = (f"{module.label}.py has {', '.join(_candidates(module))}",)
    help = "name a mask_mod(b, h, q_idx, kv_idx), a score_mod(score, b, h, q_idx, kv_idx), or what returns one"
    return Diagnostic("A708", message, span, notes=notes, help=help)
