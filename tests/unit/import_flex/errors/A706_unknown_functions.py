# attncc import-flex A706_unknown_functions.py:make
# ruff: noqa
import torch
from elsewhere import their_mask


@torch.library.custom_op("mine::tanh", mutates_args=())
def fast_tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


class Fast(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return torch.tanh(x)


fast = Fast.apply


def make(inner):
    def mask(b, h, q_idx, kv_idx):
        theirs = their_mask(b, h, q_idx, kv_idx)
        given = inner(b, h, q_idx, kv_idx)
        decorated = fast_tanh(q_idx)
        applied = fast(q_idx)
        nowhere = not_defined(q_idx)
        return theirs & given & (decorated > applied) & nowhere

    return mask
