"""A mask over an image or a video in many words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attncc.evaluate import Array
from attncc.ir import Variant
from attncc.semantics.load import load
from attncc.source import SourceFile


@dataclass(frozen=True)
class Grid:
    """A mask of an image that is `width` wide, in several forms."""

    width: int
    kept: Callable[..., Array]  # whether a pair is, by q_idx and kv_idx; lengths are equal
    forms: Mapping[str, str]

    def variant(self, form: str) -> Variant:
        return variant_of(self.forms[form])


def variant_of(text: str) -> Variant:
    """A variant of the lines of a text; those that begin with `mask` stand before it."""
    lines = [line.strip() for line in text.strip().splitlines()]
    masks = [line for line in lines if line.startswith("mask ")]
    body = [line for line in lines if not line.startswith("mask ")]
    file = "\n".join(["attn 1", "import masks", *masks, "variant v {", *body, "}"])
    return load(SourceFile("forms.attn", file)).variants[0]
