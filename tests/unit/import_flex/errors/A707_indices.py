# attncc import-flex A707_indices.py:make
# ruff: noqa
import torch


def make(doc, table):
    def mask(b, h, q_idx, kv_idx):
        last = doc[-1]
        part = doc[q_idx:]
        vague = (doc + 1)[q_idx]
        one = table[b, q_idx]
        other = table[b]
        return (one > other) & (last == vague) & part

    return mask
