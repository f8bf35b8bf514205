"""Objects, dicts, defaults, and functions behind an `if`."""

from __future__ import annotations

import os
from functools import partial

import torch
from torch import nn

WIDTHS = {"local": 3, "global": 9}
SHARED = {0: 2, 1: 5}
FAST = bool(os.environ.get("FAST"))

if FAST or torch.cuda.is_available():

    def distance(q_idx, kv_idx):
        return (q_idx - kv_idx).abs()

    kernels = "fast"
else:
    kernels = "plain"


def by_name(name, unit=2):
    width = WIDTHS[name] * unit

    def mask_mod(b, h, q_idx, kv_idx, *, slack=SHARED.get(1, 7), more=SHARED.get(2, 1)):  # noqa: B008
        return q_idx - kv_idx < width + slack - more

    return mask_mod


class Window:
    def __init__(self, size, causal=True):
        self.size = size
        self.causal = causal

    def inside(self, distance):
        return (distance < self.size) & (distance > -self.size)

    def mask(self, b, h, q_idx, kv_idx):
        near = self.inside(q_idx - kv_idx)
        return near & (q_idx >= kv_idx) if self.causal else near


class Wide(Window):
    factor = 2

    def inside(self, distance):
        return distance < self.size * self.factor


class Bias(nn.Module):
    def __init__(self, heads, reach):
        super().__init__()
        self.reach = reach
        self.table = nn.Parameter(torch.linspace(-1, 1, heads * 8).reshape(heads, 8))

    def forward(self, score, b, h, q_idx, kv_idx):
        return score + self.table[h, torch.clamp(q_idx - kv_idx, 0, self.reach)]


def maybe(limits):
    """Its mask, or none."""
    if limits is None or os.environ.get("DENSE"):
        return None

    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < limits[b]

    return mask_mod


def by_batch(starts):
    """Other masks for one sequence and for several."""
    batch, length = starts.shape
    if batch == 1:
        first = starts[0]

        def mask_mod(b, h, q_idx, kv_idx):
            return kv_idx >= first[q_idx]

        return mask_mod
    ends = length - starts

    def mask_mod(b, h, q_idx, kv_idx):
        return kv_idx < ends[b, q_idx]

    return mask_mod


biased = partial(Bias.forward, Bias(4, 7))
