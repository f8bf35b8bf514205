"""The file with a schedule in place; nothing else in it changes."""

from __future__ import annotations

from ..schedule.schedule import Schedule, ends
from ..source import SourceFile
from ..syntax import ast
from ..syntax.formatter import format_source
from ..syntax.parser import parse


def written(source: SourceFile, schedule: Schedule) -> str:
    """The file's text with this schedule, one value for each knob: in place of that for the same variant, pass, target
    and lengths, or at the end. All else stays as it is; where the file is laid out as `attncc fmt` does it, it stays.
    """
    changed = SourceFile(source.path, _spliced(source, schedule))
    return format_source(changed) if format_source(source) == source.text else changed.text


def _spliced(source: SourceFile, schedule: Schedule) -> str:
    node = next((item for item in parse(source).items if _is_for(item, schedule)), None)
    lines = {name: f"{name} = {value}" for name, value in schedule.chosen.items()}
    if not isinstance(node, ast.Schedule):
        pass_name = "" if schedule.pass_name == "forward" else f" {schedule.pass_name}"
        lengths = "" if schedule.lengths is None else " for lengths {}..{}".format(*schedule.lengths)
        head = f"schedule {schedule.name} for {schedule.variant}{pass_name} on {schedule.target}{lengths}"
        body = "".join(f"    {line}\n" for line in lines.values())
        return f"{source.text.rstrip()}\n\n{head} {{\n{body}}}\n"
    text = source.text
    new = [line for name, line in lines.items() if name not in {setting.knob.name for setting in node.settings}]
    brace = node.span.end - 1
    text = text[:brace].rstrip(" ") + "".join(f"    {line}\n" for line in new) + text[brace:]
    for setting in reversed(node.settings):
        text = text[: setting.span.start] + lines[setting.knob.name] + text[setting.span.end :]
    return text


def _is_for(item: ast.Item, schedule: Schedule) -> bool:
    if not isinstance(item, ast.Schedule):
        return False
    pass_name = "forward" if item.pass_name is None else item.pass_name.name
    found = (item.variant.name, pass_name, item.target.name, None if item.lengths is None else ends(item.lengths))
    return found == (schedule.variant, schedule.pass_name, schedule.target, schedule.lengths)
