# attncc import-flex A712_inputs.py:make --input dok:i32[batch,pos]
# ruff: noqa
def make(doc):
    def mask(b, h, q_idx, kv_idx):
        return doc[b, q_idx] == doc[b, kv_idx]

    return mask
