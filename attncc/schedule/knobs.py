"""The settings that a schedule may make, and the judgement of one `knob = value` line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, Label, did_you_mean, suggested
from .families import KINDS
from .plan import LOOPS, MAX_SPLITS
from .target import target_help

if TYPE_CHECKING:
    from ..syntax import ast

Value = int | str


@dataclass(frozen=True, slots=True)
class Knob:
    """What a knob may be: some words, and ints from the least to the greatest.

    `default`: what runs where a schedule is silent, unless that follows from the tiles or the pass.
    """

    doc: str
    words: tuple[str, ...] = ()
    numbers: tuple[int, int] | None = None
    default: Value | None = None

    def allows(self, value: Value) -> bool:
        if isinstance(value, str):
            return value in self.words
        return self.numbers is not None and self.numbers[0] <= value <= self.numbers[1]

    @property
    def values(self) -> str:
        """`auto`, or an int from 1 to 256."""
        words = [f"`{word}`" for word in self.words]
        numbers = [f"an int from {self.numbers[0]} to {self.numbers[1]}"] if self.numbers else []
        return " or ".join([*words, *numbers])


KNOBS: dict[str, Knob] = {
    "family": Knob(
        "the kernels: portable ones, wide ones for head dims above 256, or hopper and hopper_wide: TMA and wgmma", KINDS
    ),
    "loop": Knob("the outer loop: q_outer is FlashAttention-2, kv_outer FlashAttention-1", LOOPS),
    "block_q": Knob("rows of a tile", numbers=(16, 512)),
    "block_kv": Knob("keys of a tile", numbers=(16, 512)),
    "stages": Knob("K/V tiles in flight", numbers=(1, 8)),
    "warps": Knob("warps of a thread block", numbers=(1, 16)),
    "split_kv": Knob("thread blocks that share the keys of a row", ("auto",), (1, MAX_SPLITS)),
    "skip": Knob(
        "whether tiles are skipped by what is proven of the mask, and where single tiles are tested",
        ("auto", "always", "never", "lists", "in_kernel"),
        default="auto",
    ),
}


TILE_KNOBS = ("block_q", "block_kv", "warps")


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


def _unknown(code: str, what: str, name: ast.Name, known: Iterable[str]) -> Diagnostic:
    names = tuple(known)
    guess = did_you_mean(name.name, names)
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
