"""What is kept of mods that were traced: the text, its kernels, and how a call's inputs are found."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..api import compile
from ..problem.facts import KERNEL_DTYPES
from .inputs import found
from .text import NO_SETTINGS, Settings, Traced

DTYPES = {getattr(torch, name): short for short, name in KERNEL_DTYPES.items() if short != "e4m3"}
_KINDS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}  # of a sink
_NARROW = frozenset({torch.int8, torch.uint8, torch.int16})


@dataclass
class Entry:
    """What is kept for one key: a traced text, and its kernels."""

    traced: Traced
    kernels: dict[Hashable, Any] = field(default_factory=dict)

    def kernel(self, query: Any, value: Any) -> Any:
        """The kernel for these dtypes and head dims."""
        form = query.dtype, int(query.shape[-1]), int(value.shape[-1])
        if form not in self.kernels:
            dtype = DTYPES[query.dtype]
            self.kernels[form] = compile(self.traced.text, dtype=dtype, head_dim=form[1], value_head_dim=form[2])
        return self.kernels[form]

    def inputs(self, tensors: Sequence[Any], number: Callable[[Any, bool], Any]) -> dict[str, Any] | None:
        """The inputs of a call, None where the entry doesn't hold for their shapes.

        `number` gives a captured tensor without axes as the kernel takes it, and is told whether it is learnable.
        """
        recipe = self.traced.recipe
        if not (self.traced.inputs or recipe.shapes):  # as of most masks, which hold no tensor
            return {}
        made = recipe.run(tensors) if recipe.steps else ()
        if recipe.shapes and not recipe.fits(tensors, made):
            return None
        return {
            name: _given(found(source, tensors, made), learns, number)
            for name, (source, learns) in self.traced.inputs.items()
        }


def _given(value: Any, learnable: bool, number: Callable[[Any, bool], Any]) -> Any:
    """A captured value as the kernel takes it: narrow ints as int32; what no score line reads gives no gradient."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim == 0:
        value = number(value, learnable)
        if not isinstance(value, torch.Tensor):
            return value
    if value.requires_grad and not learnable:
        value = value.detach()
    return value.to(torch.int32) if value.dtype in _NARROW else value


def score_dtype_of(query: Any) -> Any:
    """The dtype in which mods see scores."""
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def settings_of(sink: Any = None, dropout: float | None = None) -> Settings:
    """What a variant has beside its mods, where a call brings these logits of a sink and this rate."""
    if sink is None and dropout is None:
        return NO_SETTINGS
    return Settings("" if sink is None else _KINDS[sink.dtype], dropout is not None)


def inputs_of_settings(traced: Traced, sink: Any = None, dropout: float | None = None) -> dict[str, Any]:
    """The arguments of a call for a sink and for dropout, which draws its seed itself."""
    given: dict[str, Any] = {traced.sink: sink} if traced.sink else {}
    return given | ({traced.dropout: dropout} if traced.dropout else {})
