"""The page of an error code, as `attncc explain A203` prints it."""

from __future__ import annotations

import re

import click

from .. import resources
from .console import wrapped

_ITEM = re.compile(r"[-*] |\d+\. ")
_MESSAGE = re.compile(r"\s+(error\[|warning\[|= )")  # of an example: text, where code stays as it is to be copied


def error_page(code: str) -> str:
    """The text of `docs/errors/<code>.md`, its prose in lines of 80 columns; a usage error with the codes of the
    same phase if there is none."""
    pages = {path.stem: path for path in (resources.folder("docs") / "errors").glob("A*.md")}
    if code not in pages:
        near = sorted(name for name in pages if name[:2] == code[:2]) or sorted(pages)
        raise click.UsageError(f"there is no diagnostic {code}; there are {', '.join(near)}")
    return in_columns(pages[code].read_text(encoding="utf-8").rstrip())


def in_columns(text: str) -> str:
    """Markdown whose paragraphs, items and messages are filled anew. Lines of code are left alone."""
    filled: list[str] = []
    for line in text.split("\n"):
        goes_on = filled and _is_prose(filled[-1]) and _is_prose(line) and not _ITEM.match(line)
        if goes_on and not filled[-1].startswith("#"):
            filled[-1] = f"{filled[-1]} {line.strip()}"
        else:
            filled.append(line)
    return "\n".join(_filled(line) for line in filled)


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("    ")


def _filled(line: str) -> str:
    if not _is_prose(line):
        return wrapped(line, 3) if _MESSAGE.match(line) else line
    item = _ITEM.match(line)
    return wrapped(line, len(item[0]) if item else 0)
