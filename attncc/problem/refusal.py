"""The one shape of every refused argument: which argument, what is wrong, what was expected, what came, what to do."""

from __future__ import annotations

from ..diagnostics import AttnccError, Diagnostic


def refused(code: str, what: str, *, expected: object, came: object, help: str = "") -> AttnccError:
    """The exception for one bad argument; `what` names it."""
    return AttnccError(Diagnostic(code, what, notes=(f"expected {expected}", f"came {came}"), help=help))


def shape_text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
