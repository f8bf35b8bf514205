"""Ways of writing: combinators of one's own, partial, loops, defaults, branches on what is known, local helpers."""

# ruff: noqa: SIM108

from functools import partial, reduce

import torch

from .shapes import half_plane, inside_square


def my_and(*mask_mods):
    def combined(b, h, q_idx, kv_idx):
        result = b.new_ones((), dtype=torch.bool)
        for mask_mod in mask_mods:
            result = result & mask_mod(b, h, q_idx, kv_idx)
        return result

    return combined


def windowed(b, h, q_idx, kv_idx, *, window, both_ways=False):
    """Both ways or backwards."""
    distance = q_idx - kv_idx
    if both_ways:
        distance = distance.abs()
    else:
        distance = torch.where(distance < 0, window, distance)
    return distance < window


local = partial(windowed, window=5, both_ways=True)
backwards = partial(windowed, window=5)
masks = [local, lambda b, h, q, k: k % 2 == 0]
masks.append(half_plane)
combined = my_and(*masks)


def by_reduce(b, h, q_idx, kv_idx):
    return reduce(lambda x, y: x | y, [mask(b, h, q_idx, kv_idx) for mask in (local, half_plane, inside_square)])


def factory(kind="causal", limit=None):
    if kind == "causal":

        def mask(b, h, q_idx, kv_idx):
            return q_idx >= kv_idx

    elif kind == "full":

        def mask(b, h, q_idx, kv_idx):
            return torch.ones_like(q_idx, dtype=torch.bool)

    else:
        raise ValueError(kind)

    if limit is None:
        return mask

    def limited(b, h, q_idx, kv_idx):
        return mask(b, h, q_idx, kv_idx) and kv_idx < limit

    return limited


def heads(num_global: int, stride: int):
    """Heads of two sorts."""

    def mask(b, h, q_idx, kv_idx):
        strided = (q_idx - kv_idx) % stride == 0
        near = torch.abs(q_idx - kv_idx) < stride
        return torch.where(h < num_global, True, strided | near)

    return mask


def casts(threshold):
    def mask(b, h, q_idx, kv_idx):
        third = (kv_idx / 3).int()
        weight = (q_idx >= kv_idx).float() + (third % 2 == 1).to(torch.float32) * 0.5
        steps = -((q_idx - kv_idx).to(torch.float32) // 4) + (q_idx.float() % 2.5)
        back = (-kv_idx / 2).long()
        return (weight + steps > threshold[h]) ^ (back + q_idx > 3) | (2**h == 2)

    return mask


def both(window: int):
    """A factory of a mask and of a score, together."""

    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < window

    def score_mod(score, b, h, q_idx, kv_idx):
        return score / (1 + (q_idx - kv_idx).abs()) ** 0.5

    return mask_mod, score_mod
