"""Names of Python as names of `.attn`: what is taken there, or isn't written so, is changed a little."""

from __future__ import annotations

import re

from ..semantics.names import reserved
from ..syntax.grammar import keywords

_LONGEST = 32


class Naming:
    """Gives every declaration of a variant a name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set(keywords())

    def fresh(self, wanted: str, kind: str) -> str:
        """The name that is wanted, if it can be had; `kind` is that of `semantics.names.reserved`."""
        name = legal(wanted)
        if name in keywords() or reserved(name, kind):
            name += "_"
        free, count = name, 1
        while free in self._taken or (count > 1 and reserved(free, kind)):
            count += 1
            free = f"{name.rstrip('_')}_{count}"
        self._taken.add(free)
        return free


def legal(wanted: str) -> str:
    """Letters, digits and single `_`, a letter first: `table.shape[1]` becomes `table_shape_1`."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", wanted.removeprefix("self.")).strip("_")
    if len(name) > _LONGEST:
        name = name[:_LONGEST].rsplit("_", 1)[0]
    return name if name[:1].isalpha() else f"x_{name}".rstrip("_")


def variant_name(wanted: str) -> str:
    name = legal(wanted)
    return f"{name}_" if name in keywords() or reserved(name, "variant") else name
