# attncc import-flex A710_loops.py:make
# ruff: noqa
import torch


def make(blocks, count: int):
    def mask(b, h, q_idx, kv_idx):
        for i in range(count):
            found = blocks[i] == kv_idx
        for i in range(100):
            found = found | (blocks[i] == kv_idx)
        for i in range(4):
            if i == 2:
                break
        return found | any(blocks[i] == q_idx for i in range(count))

    return mask
