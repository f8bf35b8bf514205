# attncc import-flex A708_no_such_name.py:make.iner
# ruff: noqa
def make(window):
    def inner(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < window

    return inner
