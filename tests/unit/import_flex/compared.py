"""What a mod keeps and scores at every pair of a grid: by torch, running the function, and by the variant it became."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from attncc.evaluate import Environment
from attncc.ir import Variant
from attncc.reference import mask
from attncc.statements import scored


def by_variant(variant: Variant, inputs: dict[str, Any], score: Any) -> tuple[Any, Any]:
    """What the variant keeps, and its scores."""
    batch, heads, q_len, kv_len = score.shape
    kept = mask(variant, q_len, kv_len, batch=batch, num_heads=heads, num_kv_heads=heads, **inputs)
    symbols = dict(zip(("b", "h", "q_idx", "kv_idx"), np.ogrid[:batch, :heads, :q_len, :kv_len], strict=True))
    environment = Environment(symbols, inputs, variant.lets)
    return np.broadcast_to(kept, score.shape), np.broadcast_to(scored(variant, environment, score), score.shape)


def by_torch(torch: Any, mods: tuple[Callable[..., Any], ...], score: Any, loops: bool) -> Any:
    """The scores after the mods; -inf where a mask_mod drops the pair."""
    result = torch.tensor(score)
    for mod in sorted(mods, key=is_mask):
        of_mask = is_mask(mod)
        value = (_one_by_one if loops else _vectorised)(torch, mod, of_mask, result)
        result = torch.where(value, result, -torch.inf) if of_mask else value
    return result.expand(score.shape).detach().numpy()


def is_mask(mod: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(mod).parameters)) != "score"


def _vectorised(torch: Any, mod: Callable[..., Any], of_mask: bool, score: Any) -> Any:
    """As FlexAttention evaluates it: four nested vmaps."""
    for place in (3, 2, 1, 0):
        axes = [0 if axis == place else None for axis in range(4)]
        mod = torch.vmap(mod, in_dims=tuple(axes if of_mask else [0, *axes]))
    indices = [torch.arange(size) for size in score.shape]
    return mod(*indices) if of_mask else mod(score, *indices)


def _one_by_one(torch: Any, mod: Callable[..., Any], of_mask: bool, score: Any) -> Any:
    """Pair by pair, with scalars: also what vmap refuses, as `any(...)` and `and`."""
    assert of_mask
    found = torch.zeros(score.shape, dtype=torch.bool)
    for place in product(*map(range, score.shape)):
        found[place] = bool(mod(*map(torch.tensor, place)))
    return found
