"""The one shape of every refused argument: which argument, what is wrong, what was expected, what came, what to do."""

from __future__ import annotations

import sys
from types import NoneType
from typing import Any

from ..diagnostics import AttnccError, Diagnostic
from .facts import ArrayFacts

EXCHANGED = "exchange it without a copy: torch.from_dlpack, cupy.from_dlpack, numpy.from_dlpack"


def refused(code: str, what: str, *, expected: object, came: object, help: str = "") -> AttnccError:
    """The exception for one bad argument; `what` names it."""
    return AttnccError(Diagnostic(code, what, notes=(f"expected {expected}", f"came {came}"), help=help))


def type_text(kind: type) -> str:
    """`str`, `torch.Tensor`"""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def not_an_array(name: str, kind: type, expected: str) -> AttnccError:
    """A622 for what has this type in place of an array."""
    advice = f"pass {name}=…" if kind is NoneType else "convert it with numpy.asarray or torch.as_tensor"
    if kind.__module__.partition(".")[0] == "torch":  # NumPy's is what is asked for
        advice = f"convert it: {name}.cpu().numpy()"
    return refused("A622", f"`{name}` is not an array", expected=expected, came=type_text(kind), help=advice)


def mixed(name: str, kind: type) -> AttnccError:
    """A654 for an array, of this type, of another framework than q's."""
    return refused(
        "A654",
        f"`{name}` is an array of another framework than `q`",
        expected="arrays all of one framework, whose stream orders them on a GPU",
        came=type_text(kind),
        help=EXCHANGED,
    )


def is_masked(array: Any) -> bool:
    """Whether it is a masked array of NumPy. There is none where its module isn't loaded, which would take a
    quarter of a first call."""
    return isinstance(array, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def masked(name: str) -> AttnccError:
    """A622 for a masked array of NumPy: what it masks would take part."""
    return refused(
        "A622",
        f"`{name}` is a masked array, whose mask would be ignored",
        expected="a plain array",
        came="numpy.ma.MaskedArray",
        help=f"pass {name}.filled(…); what a call leaves out is said by the variant's keep lines",
    )


def check_device(q: ArrayFacts, what: str, facts: ArrayFacts) -> None:
    """A605 where an array isn't where q is."""
    if facts.device != q.device:
        raise refused(
            "A605",
            f"{what} is on another device than `q`",
            expected=q.device,
            came=facts.device,
            help="all arrays of a call live on one device",
        )


def shape_text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
