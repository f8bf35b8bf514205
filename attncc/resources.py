"""The one place that finds what ships beside the code: grammars, templates, specs."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def folder(name: str) -> Path:
    """The folder `grammars`, `templates` or `specs`: of the checkout if there is one, else of the installed wheel."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / name
    if (package.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return package / "_data" / name


def read(name: str, *parts: str) -> str:
    """The text of a shipped file, e.g. `read("grammars", "attn.lark")`."""
    return folder(name).joinpath(*parts).read_text(encoding="utf-8")
