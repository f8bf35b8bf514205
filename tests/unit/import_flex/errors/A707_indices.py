# attncc import-flex A707_indices.py:make
# ruff: noqa
import torch

ROWS = torch.zeros(6, 7)


def make(doc, table):
    def mask(b, h, q_idx, kv_idx):
        last = doc[-1]
        part = doc[q_idx:]
        vague = (doc + 1)[q_idx]
        one = table[b, q_idx]
        other = table[b]
        beyond = ROWS[2:5][-4, 0] + ROWS[:, 7] + ROWS[6:][h, 0]
        return (one > other) & (last == vague) & part & beyond

    return mask
