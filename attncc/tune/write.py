"""The file with a schedule in place; nothing else in it changes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..schedule.schedule import Schedule, ends
from ..source import SourceFile
from ..syntax import ast
from ..syntax.formatter import format_source
from ..syntax.parser import parse

_INDENT = "    "


def written(source: SourceFile, schedule: Schedule) -> str:
    """The file's text with this schedule, one value for each knob: in place of that for the same variant, pass, target
    and lengths, or at the end. All else stays as it is; where the file is laid out as `attncc fmt` does it, it stays.
    """
    changed = SourceFile(source.path, _spliced(source, schedule))
    return format_source(changed) if format_source(source) == source.text else changed.text


def _spliced(source: SourceFile, schedule: Schedule) -> str:
    text, newline = source.text, "\r\n" if "\r\n" in source.text else "\n"
    node = next((item for item in parse(source).items if _is_for(item, schedule)), None)
    lines = {name: f"{name} = {value}" for name, value in schedule.chosen.items()}
    if not isinstance(node, ast.Schedule):
        body = [f"{_INDENT}{line}" for line in lines.values()]
        return newline.join([text.rstrip(), "", _head(schedule), *body, "}", ""])
    new = [line for name, line in lines.items() if name not in {setting.knob.name for setting in node.settings}]
    if new:
        text = _with_lines(text, node, new, newline)
    for setting in reversed(node.settings):
        start, end = setting.span.start, setting.span.end
        comments = re.findall(r"#[^\r\n]*", text[start:end])  # those between the braces
        above = "".join(f"{comment}{newline}{_indent(text, start)}" for comment in comments)
        text = f"{text[:start]}{above}{lines[setting.knob.name]}{text[end:]}"
    return text


def _head(schedule: Schedule) -> str:
    pass_name = "" if schedule.pass_name == "forward" else f" {schedule.pass_name}"
    lengths = "" if schedule.lengths is None else " for lengths {}..{}".format(*schedule.lengths)
    return f"schedule {schedule.name} for {schedule.variant}{pass_name} on {schedule.target}{lengths} {{"


def _with_lines(text: str, node: ast.Schedule, new: Sequence[str], newline: str) -> str:
    """The text with settings added at the end of a schedule, laid out as the others of it are."""
    brace = node.span.end - 1
    head = text[:brace].rstrip(" \t")
    if "\n" not in text[node.span.start : brace]:  # a schedule of one line stays one
        return f"{head} {' '.join(new)} {text[brace:]}"
    indent = _indent(text, node.settings[-1].span.start) if node.settings else _INDENT
    above, own_line = (head[:-1].removesuffix("\r"), text[len(head) : brace]) if head.endswith("\n") else (head, "")
    added = "".join(f"{newline}{indent}{line}" for line in new)
    return f"{above}{added}{newline}{own_line}{text[brace:]}"


def _indent(text: str, place: int) -> str:
    """What stands before a setting in its line, if it is the first there."""
    before = text[text.rfind("\n", 0, place) + 1 : place]
    return before if not before.strip() else _INDENT


def _is_for(item: ast.Item, schedule: Schedule) -> bool:
    if not isinstance(item, ast.Schedule):
        return False
    pass_name = "forward" if item.pass_name is None else item.pass_name.name
    found = (item.variant.name, pass_name, item.target.name, None if item.lengths is None else ends(item.lengths))
    return found == (schedule.variant, schedule.pass_name, schedule.target, schedule.lengths)
