# attncc import-flex A707_axes.py:make
# ruff: noqa
import torch

TABLE = torch.zeros(4, 100)
OTHER = torch.zeros(4, 3)


def make(tiles, stops):
    def mask(b, h, q_idx, kv_idx):
        unknown = (tiles[b, h] == kv_idx).any(-1)
        unsure = (tiles[b, h] == kv_idx.unsqueeze(-1)).any(-1)
        steps = torch.bucketize(q_idx, stops)
        whole = TABLE[b] > kv_idx
        long = (TABLE[b] > kv_idx).any()
        unequal = (TABLE[b] == OTHER[h]).any()
        return unknown & unsure & (steps > 1) & whole & long & unequal

    return mask
