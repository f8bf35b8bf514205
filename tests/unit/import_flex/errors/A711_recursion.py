# attncc import-flex A711_recursion.py:mask
# ruff: noqa
def again(x):
    return again(x - 1)


def mask(b, h, q_idx, kv_idx):
    return again(q_idx) >= kv_idx
