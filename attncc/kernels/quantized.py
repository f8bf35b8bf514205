"""Caches of 8 bits: what kernels are told of their scales (`problem.quantized` says what these are)."""

from __future__ import annotations

from collections.abc import Iterator

from ..problem import ArrayFacts, Problem
from ..problem.quantized import scales_by_page
from .parameters import Parameter, ints, pointers

_STEPS = ("row", "head")  # of scales: from sequence to sequence or page to page, from key head to key head


def scale_parameters() -> Iterator[Parameter]:
    """A scale that the call leaves out is null. `scales_of_pages`: rows of scales belong to pages."""
    yield from pointers("const float", "k_scale", "v_scale")
    yield from (Parameter(f"{name}_scale_stride_{step}", "long long") for name in ("k", "v") for step in _STEPS)
    yield from ints("scales_of_pages")


def scale_fields(scale: ArrayFacts, name: str, problem: Problem, pages: int) -> dict[str, int]:
    """The fields of one scale but its pointer; a single row serves all."""
    steps = [0 if size <= 1 else stride for size, stride in zip(scale.shape, scale.strides, strict=True)]
    strides = {f"{name}_stride_{step}": stride for step, stride in zip(_STEPS, steps, strict=True)}
    return (
        strides if scale.shape[0] == 1 else {**strides, "scales_of_pages": int(scales_by_page(scale, problem, pages))}
    )
