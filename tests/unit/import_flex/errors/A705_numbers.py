# attncc import-flex A705_numbers.py:make.score
# ruff: noqa
import torch

BIG = 2**80


def make(table):
    def score(score, b, h, q_idx, kv_idx):
        by_float = table[q_idx / 2]
        bits = score & 1
        power = score**q_idx
        early = torch.tanh(torch.where(q_idx >= kv_idx, score, -float("inf")))
        both = score and q_idx
        return by_float + bits + power + early + both + BIG

    return score
