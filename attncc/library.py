"""The variants that ship with attncc, by name: `sliding_window` is the file `sliding_window.attn` of the wheel."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .diagnostics import did_you_mean
from .resources import folder

SUFFIX = ".attn"
MASKS = "masks"  # masks alone: to import, not to run
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@cache
def names() -> tuple[str, ...]:
    """All of them, sorted."""
    return tuple(sorted(path.stem for path in folder("specs").glob(f"*{SUFFIX}") if path.stem != MASKS))


def is_name(spec: object) -> bool:
    """Whether a spec is written as a name: without a suffix, a folder or a newline. `./causal` is a file."""
    return isinstance(spec, str) and _NAME.fullmatch(spec) is not None


def find(spec: object) -> Path | None:
    """The file of a variant's name; None if nothing of that name ships."""
    return folder("specs") / f"{spec}{SUFFIX}" if is_name(spec) and spec in names() else None


def advice(spec: object) -> str:
    """What to write in place of a name that nothing ships by, or of a path whose last part is such a name; empty for
    other paths."""
    if callable(spec):
        return "attncc.flex_attention takes FlexAttention's functions; `attncc import-flex` writes them as files"
    if isinstance(spec, str | Path) and Path(spec).suffix == SUFFIX and Path(spec).stem in names():
        return f"did you mean `{Path(spec).stem}`, the variant that ships, without a folder and a suffix?"
    if not is_name(spec):
        return ""
    return (
        did_you_mean(str(spec), names()) or "`attncc list` prints the variants that ship; a file has a suffix or folder"
    )
