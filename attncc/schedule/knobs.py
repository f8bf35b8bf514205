"""The judgement of one `knob = value` line of a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, Label, did_you_mean, suggested
from .choice import KNOBS, Knob, Value
from .target import target_help

if TYPE_CHECKING:
    from ..syntax import ast


def unknown_target(name: ast.Name, targets: Iterable[str]) -> Diagnostic:
    help = target_help(name.name)
    diagnostic = _unknown("A403", "target", name, targets)
    return replace(diagnostic, help=help or "choose another target", edit=suggested(help, name.span))


def judge(setting: ast.Setting, before: Mapping[str, ast.Setting]) -> list[Diagnostic]:
    """What is wrong with one line; `before` are the lines above it by knob."""
    name = setting.knob.name
    knob = KNOBS.get(name)
    if knob is None:
        return [_unknown("A401", "knob", setting.knob, KNOBS)]
    twice = [_twice(setting, before[name])] if name in before else []
    again = [value for index, value in enumerate(setting.values) if value in setting.values[:index]]
    twice += [_repeated(setting, value) for value in dict.fromkeys(again)]
    bad = [value for value in dict.fromkeys(setting.values) if not knob.allows(value)]
    return twice + [_bad_value(setting, knob, value) for value in bad]


_KNOBS_ELSEWHERE = {"block_m": "write `block_q`", "block_n": "write `block_kv`"}


def _unknown(code: str, what: str, name: ast.Name, known: Iterable[str]) -> Diagnostic:
    names = tuple(known)
    guess = _KNOBS_ELSEWHERE.get(name.name.lower()) or did_you_mean(name.name, names)
    return Diagnostic(
        code,
        f"there is no {what} `{name.name}`",
        name.span,
        notes=(f"there are {', '.join(names)}",),
        help=guess or f"choose another {what}",
        edit=suggested(guess, name.span),
    )


def _twice(setting: ast.Setting, first: ast.Setting) -> Diagnostic:
    return Diagnostic(
        "A404",
        f"`{setting.knob.name}` is set twice",
        setting.span,
        labels=(Label(first.span, "set here first"),),
        help="keep one line; several candidates stand in braces, and the first is used: {64, 128}",
    )


def _repeated(setting: ast.Setting, value: Value) -> Diagnostic:
    name = setting.knob.name
    return Diagnostic("A404", f"{value} stands twice among the candidates of `{name}`", setting.span, help="remove one")


def _bad_value(setting: ast.Setting, knob: Knob, value: Value) -> Diagnostic:
    guess = did_you_mean(value, knob.words) if isinstance(value, str) else ""
    return Diagnostic(
        "A402",
        f"`{setting.knob.name}` can't be {value}",
        setting.span,
        label=f"expected {knob.values}",
        notes=(f"{setting.knob.name}: {knob.doc}",),
        help=guess or f"write {knob.values}",
    )
