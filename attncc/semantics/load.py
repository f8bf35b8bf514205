"""Source text to checked variants: parse, import, resolve, type, lower."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import ir
from ..diagnostics import Diagnostic, Label, did_you_mean
from ..source import SourceFile, read_text
from ..syntax import ast
from ..syntax.parser import parsed
from . import builtins, constants, limits, names
from .constants import NO_DEFINES, Defines
from .imports import Imports, Reader
from .lower import check_masks, lower
from .names import Mask
from .reach import Folders, Reach
from .report import Report
from .workspace import MAX_DEPTH, Workspace

CALLS_A_LEVEL = 32  # of an expression, in later phases: Python's own limit is for programs that never end


@dataclass(frozen=True)
class Program:
    """What one `.attn` file says. The schedules name variants of the file; their knobs aren't judged yet."""

    variants: tuple[ir.Variant, ...]
    schedules: tuple[ast.Schedule, ...]
    warnings: tuple[Diagnostic, ...]

    def show(self) -> str:
        """The variants as they are computed, for goldens."""
        return "\n\n".join(variant.show_lowered() for variant in self.variants)


def load(
    source: SourceFile, defines: Defines = NO_DEFINES, allow_imports: Folders = (), read: Reader = read_text
) -> Program:
    """Everything that a file declares, with the masks that it imports written into its variants.

    `defines` override consts by name (`-D name=value`); `allow_imports` are folders besides its own and the library
    whose files it may import, `read` gives the text of one. Raises AttnccError with every syntax error, or else with
    every other error that was found, warnings among them.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), CALLS_A_LEVEL * MAX_DEPTH))
    report = Report()
    module = parsed(source)
    limits.check_module(module)
    path = Path(source.path)
    visible = Imports(report, Reach.of(path, allow_imports), read).masks(module, path)
    constants.check_defines(defines, module, report)
    check_masks(visible, report)
    variants = _lowered(_variants(module, report), visible, defines, report)
    schedules = tuple(item for item in module.items if isinstance(item, ast.Schedule))
    _check_schedules(schedules, {variant.name for variant in variants}, report)
    found = report.in_order()
    found.raise_errors()
    limits.check_parts(variants, schedules)
    return Program(tuple(variants), schedules, tuple(found.items))


def _lowered(
    nodes: Iterable[ast.Variant], visible: Mapping[str, Mask], defines: Defines, report: Report
) -> list[ir.Variant]:
    variants: list[ir.Variant] = []
    steps = 0
    for node in nodes:
        workspace = Workspace()
        variants.append(lower(node, visible, defines, report, workspace))
        steps += workspace.steps
        limits.check_steps(steps, node)
    return variants


def _variants(module: ast.Module, report: Report) -> list[ast.Variant]:
    variants: dict[str, ast.Variant] = {}
    for node in module.items:
        if not isinstance(node, ast.Variant):
            continue
        first = variants.setdefault(node.name.name, node)
        if first is not node:
            report.error(
                "A103",
                f"there is already a variant `{node.name.name}`",
                node.name.span,
                labels=[Label(first.name.span, "declared here")],
                help="choose another name",
            )
    return list(variants.values())


def _check_schedules(schedules: tuple[ast.Schedule, ...], variants: set[str], report: Report) -> None:
    """Each schedule is for a variant of the file and a pass, and the only one for these, its target and its lengths."""
    first: dict[tuple[str, str, str], list[ast.Schedule]] = {}
    passes = {name: name for name in builtins.PASSES}
    for node in schedules:
        _check_names_of_schedule(node, variants, report)
        name = "forward" if node.pass_name is None else names.one_of(node.pass_name, passes, "a pass", report)
        if node.lengths is not None:
            names.one_of(node.lengths.word, {"lengths": None}, "what a schedule may be for", report)
        before = first.setdefault((node.variant.name, name or "", node.target.name), [])
        other = next((item for item in before if _overlap(item.lengths, node.lengths)), None)
        before.append(node)
        if other is not None and name is not None:
            lengths = "" if node.lengths is None else f" for some of the lengths {node.lengths.range}"
            report.error(
                "A112",
                f"`{node.variant.name}` has another schedule for the {name} pass on {node.target.name}{lengths}",
                node.name.span,
                labels=[Label(other.name.span, "the first")],
                help="remove one" if node.lengths is None else "let ranges end before others begin",
            )


def _check_names_of_schedule(node: ast.Schedule, variants: set[str], report: Report) -> None:
    if reason := names.reserved(node.name.name, "schedule"):
        report.error(
            "A104",
            f"`{node.name.name}` can't be the name of a schedule: {reason}",
            node.name.span,
            help="choose another name",
        )
    if node.variant.name not in variants:
        known = ", ".join(sorted(variants)) or "none"
        advice = did_you_mean(node.variant.name, variants) or "a schedule stands in the file of its variant"
        report.error(
            "A111",
            f"there is no variant `{node.variant.name}` in this file",
            node.variant.span,
            notes=[f"its variants: {known}"],
            help=advice,
            instead=node.variant.span,
        )


def _overlap(one: ast.Lengths | None, other: ast.Lengths | None) -> bool:
    """Whether two schedules are for the same calls. One for all lengths serves those that no range holds."""
    if one is None or other is None:
        return one is other
    last, others_last = (ir.MAX_LENGTH if item.last is None else item.last for item in (one, other))
    return one.first <= others_last and other.first <= last
