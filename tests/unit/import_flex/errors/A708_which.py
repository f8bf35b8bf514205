# attncc import-flex A708_which.py
# ruff: noqa
def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def full(b, h, q_idx, kv_idx):
    return True
