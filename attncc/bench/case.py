"""One problem that candidates are timed on: a variant, sizes, random arrays in torch."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch

from ..evaluate import Array
from ..ir import Variant
from ..problem import Problem, Sequence
from ..problem.arrays import environment
from ..problem.facts import KERNEL_DTYPES
from ..runtime.cuda.timing import copies_beyond_cache
from ..statements import effective_scale
from .flex_text import FlexText, flex_text

Tensor: TypeAlias = torch.Tensor
Mod = Callable[..., Tensor]
Mods = tuple[Mod | None, Mod | None]
Tensors = tuple[Tensor, Tensor, Tensor]

PASSES = ("forward", "backward", "both")
DTYPES = ("fp16", "bf16", "fp32")

_PAIRS = 2**24  # that a mask is evaluated for at a time


@dataclass(frozen=True)
class Case:
    """`inputs` are NumPy arrays, scalars 0-d. q, k, v and dout are normal; dropout takes `seed`."""

    variant: Variant
    problem: Problem
    dtype: str
    pass_name: str
    inputs: Mapping[str, Array]
    seed: int = 0
    device: str = "cuda"

    @cached_property
    def scale(self) -> float:
        """What q.k is multiplied by."""
        sequence = Sequence.whole(0, self.problem.q_len, self.problem.kv_len)
        bare = environment(self.variant, self.problem, sequence, self.inputs, np.float64)
        return effective_scale(self.variant, bare, None)

    @property
    def group(self) -> slice:
        """The query heads of the last key head."""
        return slice(self.problem.num_heads - self.problem.group, self.problem.num_heads)

    @cached_property
    def text(self) -> FlexText:
        """The variant as FlexAttention's functions."""
        return flex_text(self.variant, self.problem, self.inputs, self.scale)

    def mods(self, floats: torch.dtype = torch.float32) -> Mods:
        """mask_mod and score_mod; floats that they compute are of this type."""
        if floats not in self._mods:
            self._mods[floats] = self._made_mods(floats)
        return self._mods[floats]

    @cached_property
    def _mods(self) -> dict[torch.dtype, Mods]:
        return {}

    def _made_mods(self, floats: torch.dtype) -> Mods:
        name = f"<{self.variant.name} as FlexAttention's functions>"
        lines = self.text.text.splitlines(keepends=True)
        linecache.cache[name] = (len(self.text.text), None, lines, name)  # torch.compile and tracebacks look it up
        space: dict[str, Any] = {"torch": torch}
        exec(compile(self.text.text, name, "exec"), space)
        found: Mods = space["mods"](floats, *(self._captured(item, floats) for item in self.text.inputs))
        return found

    def _captured(self, name: str, floats: torch.dtype) -> Tensor:
        tensor = self.tensor(self.inputs[name])
        return tensor.to(floats) if tensor.is_floating_point() and floats == torch.float64 else tensor

    def tensor(self, array: Array) -> Tensor:
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(self.device)
        return torch.from_numpy(np.array(array)).to(self.device)

    def given(self) -> dict[str, Any]:
        """The keyword arguments of attncc's kernel."""
        given = {name: array.item() if array.ndim == 0 else self.tensor(array) for name, array in self.inputs.items()}
        return given | ({} if self.variant.dropout is None else {"seed": self.seed})

    def kept_pairs(self) -> int:
        """Over all sequences and heads."""
        problem, (mask_mod, _) = self.problem, self.mods()
        total = problem.batch * problem.num_heads
        if mask_mod is None:
            return total * problem.q_len * problem.kv_len
        batch = problem.batch if self.text.by_batch else 1
        heads = problem.num_heads if self.text.by_head else 1
        kept = sum(int(kept.sum()) for b in range(batch) for h in range(heads) for _, kept in self.masked(b, h))
        return kept * (total // (batch * heads))

    def masked(self, b: int, h: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Some query rows [n] after the other, and what one head of one sequence keeps there: bool [n, kv_len]."""
        mask_mod, keys = self.mods()[0], torch.arange(self.problem.kv_len, device=self.device)
        at_b, at_h = (torch.tensor(index, device=self.device) for index in (b, h))
        for rows in self.row_pieces():
            kept = torch.ones((), dtype=torch.bool, device=self.device)
            if mask_mod is not None:
                kept = mask_mod(at_b, at_h, rows[:, None], keys)
            yield rows, kept.expand(len(rows), len(keys))

    def row_pieces(self, heads: int = 1) -> Iterator[Tensor]:
        """All query rows, so many at a time as bound the pairs."""
        size = max(_PAIRS // (self.problem.kv_len * heads), 1)
        yield from torch.arange(self.problem.q_len, device=self.device).split(size)

    def useful_flops(self, kept_pairs: int) -> float:
        """Of the products that each kept pair needs: S and O forwards; S, dP, dV, dQ and dK backwards."""
        keys, values = self.problem.head_dim, self.problem.value_head_dim
        forward, backward = 2 * (keys + values), 2 * (3 * keys + 2 * values)
        each = {"forward": forward, "backward": backward, "both": forward + backward}[self.pass_name]
        return float(each) * kept_pairs


@dataclass(frozen=True)
class Arrays:
    """q, k, v [batch, heads, length, head dim] as often as it takes to be beyond the L2 cache when a copy comes up
    again, and the gradient of out."""

    copies: tuple[Tensors, ...]
    dout: Tensor

    @classmethod
    def of(cls, case: Case) -> Arrays:
        problem, generator = case.problem, torch.Generator(case.device).manual_seed(case.seed)
        dtype = getattr(torch, KERNEL_DTYPES[case.dtype])

        def normal(heads: int, length: int, head_dim: int) -> Tensor:
            shape = problem.batch, heads, length, head_dim
            return torch.randn(shape, generator=generator, device=case.device).to(dtype)

        def operands() -> Tensors:
            keys, values, kv_heads = problem.head_dim, problem.value_head_dim, problem.num_kv_heads
            kv_len = problem.kv_len
            return (
                normal(problem.num_heads, problem.q_len, keys),
                normal(kv_heads, kv_len, keys),
                normal(kv_heads, kv_len, values),
            )

        first = operands()
        others = (operands() for _ in range(copies_needed(sum(item.nbytes for item in first), case.device) - 1))
        return cls((first, *others), normal(problem.num_heads, problem.q_len, problem.value_head_dim))


def copies_needed(operand_bytes: int, device: str) -> int:
    if device == "cpu":
        return 1
    return copies_beyond_cache(operand_bytes, torch.cuda.get_device_properties().L2_cache_size)
