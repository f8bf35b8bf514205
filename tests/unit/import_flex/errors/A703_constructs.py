# attncc import-flex A703_constructs.py:mask
# ruff: noqa
import torch

memo = {}


def mask(b, h, q_idx, kv_idx):
    memo[q_idx] = kv_idx
    q_idx.add_(1)
    while kv_idx < 3:
        kv_idx = kv_idx + 1
    with torch.no_grad():
        pass
    inside = q_idx in (1, 2)
    product = h @ b
    return inside & product & {h: True}
