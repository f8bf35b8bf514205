"""Live mods on the CPU: the variant that they are traced to, and whether it agrees with torch at every pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from attncc.flex.attention import cache
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests.unit.import_flex.compared import by_torch, by_variant, is_mask

KINDS = {"bool": np.bool_, "i32": np.int32, "i64": np.int64, "f16": np.float16, "bf16": np.float32, "f32": np.float32}


def traced(*mods: Any) -> tuple[Any, str, dict[str, Any]]:
    """The variant that mods become, its text, and its inputs as arrays."""
    import torch

    scores = [mod for mod in mods if not is_mask(mod)]
    masks = [mod for mod in mods if is_mask(mod)]
    entry, inputs = cache.find(scores[0] if scores else None, masks, torch.device("cpu"), torch.float32)
    text = entry.traced.text
    variant = load(SourceFile("<traced>", text)).variants[0]
    arrays = {item.name: _array(inputs[item.name], item.dtype) for item in variant.inputs}
    return variant, text, arrays


def _array(value: Any, dtype: str) -> Any:
    value = value.detach().float().numpy() if dtype == "bf16" else value.detach() if hasattr(value, "detach") else value
    return np.asarray(value, KINDS[dtype])


def check(
    *mods: Any, sizes: tuple[int, int, int, int], loops: bool = False, seed: int = 0, exact: bool = False
) -> None:
    """Compares kept pairs, and scores of kept pairs; sizes are batch, heads, q_len and kv_len."""
    import torch

    variant, text, inputs = traced(*mods)
    drawn = np.random.default_rng(seed)
    score = (drawn.integers(-40, 40, sizes) if exact else drawn.normal(0, 4, sizes)).astype(np.float32)
    expected = by_torch(torch, mods, score, loops)
    kept, scores = by_variant(variant, inputs, score)
    np.testing.assert_array_equal(kept & (scores > -np.inf), expected > -np.inf, err_msg=text)
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 2e-5, "atol": 1e-5}
    live = expected > -np.inf
    np.testing.assert_allclose(scores[live], expected[live], **tolerance, err_msg=text)


def dense(q: Any, k: Any, v: Any, score_mod: Any = None, mask_mod: Any = None) -> Any:
    """Attention as torch's operators give it, with all scores in memory; autograd passes through it."""
    import torch

    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    score = q @ k.mT * q.shape[-1] ** -0.5
    sizes = (q.shape[0], *score.shape[1:])
    index = [
        torch.arange(n, device=q.device).reshape([-1 if i == axis else 1 for i in range(4)])
        for axis, n in enumerate(sizes)
    ]
    index = [item.expand(sizes) for item in index]
    if score_mod is not None:
        score = _everywhere(score_mod)(score, *index)
    if mask_mod is not None:
        score = score.masked_fill(~_everywhere(mask_mod)(*index), -torch.inf)
    lost = (score == -torch.inf).all(-1, keepdim=True)
    return torch.where(lost, 0.0, score.masked_fill(lost, 0.0).softmax(-1)).to(v.dtype) @ v


def _everywhere(mod: Any) -> Any:
    """A mod at every pair: torch's own four nested vmaps can't be differentiated in every version."""
    import torch

    for _ in range(4):
        mod = torch.vmap(mod)
    return mod
