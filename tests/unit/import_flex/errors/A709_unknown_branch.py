# attncc import-flex A709_unknown_branch.py:make
# ruff: noqa
import torch


def make(causal: bool, count: int):
    def mask(b, h, q_idx, kv_idx):
        if causal:
            limit = q_idx
        else:
            limit = q_idx + 1
        return limit >= kv_idx

    return mask
