# attncc import-flex A709_unknown_function.py:make
# ruff: noqa
def make(kind):
    if kind == "causal":
        return lambda b, h, q_idx, kv_idx: q_idx >= kv_idx
    return lambda b, h, q_idx, kv_idx: q_idx > kv_idx
