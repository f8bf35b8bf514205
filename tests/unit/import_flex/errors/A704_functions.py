# attncc import-flex A704_functions.py:score
# ruff: noqa
import torch
from torch import Tensor


def helper(x: Tensor, y: Tensor):
    return x + y


def score(score, b, h, q_idx, kv_idx):
    dropped = score * torch.bernoulli(torch.tensor(0.9))
    total = torch.cumsum(score, 0)
    rounded = score.logit()
    shaped = q_idx.reshape(1)
    missing = helper(q_idx)
    many = helper(q_idx, kv_idx, h)
    unknown = helper(q_idx, z=kv_idx)
    table = torch.zeros(kv_idx)
    return dropped + total + rounded
