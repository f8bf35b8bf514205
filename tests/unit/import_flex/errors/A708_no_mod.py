# attncc import-flex A708_no_mod.py:helper
# ruff: noqa
def helper(x, y):
    return x + y


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
