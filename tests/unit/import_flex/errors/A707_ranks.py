# attncc import-flex A707_ranks.py:make
# ruff: noqa
def make(doc, deep):
    def mask(b, h, q_idx, kv_idx):
        return (doc[b, q_idx] == doc[kv_idx]) & deep[b, h, q_idx, kv_idx, 0]

    return mask
