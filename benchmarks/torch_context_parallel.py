"""PyTorch's context parallel, to compare `attncc.distributed.shard` with: rings of SDPA, FlexAttention with all K, V.

Its interfaces are experimental. What a release of torch lacks raises here, and is told in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

Tensor = Any


Given = tuple[Callable[..., Any], list[Tensor]]  # a function of own rows, and these rows


@contextmanager
def sdpa(mesh: Any, whole: list[Tensor], *, causal: bool, backend: Any) -> Iterator[Given]:
    """K has as many heads as Q: rings of SDPA know no groups."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import _cp_options
    from torch.nn.attention import sdpa_kernel

    _cp_options.enable_load_balance = causal
    q, *keys = (x.clone() for x in whole)
    buffers = [q, *(x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in keys)]

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    shared = context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2, 2, 2], no_restore_buffers=set(buffers))
    with shared, sdpa_kernel(backend):
        yield call, buffers


class _Flex(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, *, compiled: bool) -> None:
        super().__init__()
        from torch.nn.attention.flex_attention import flex_attention

        self._call = torch.compile(flex_attention, dynamic=False) if compiled else flex_attention

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **more: Any) -> Tensor:
        return self._call(q, k, v, **more)


def flex(mesh: Any, whole: list[Tensor], mask: Callable[..., Any], *, balance: str, compiled: bool) -> Given:
    """The same of FlexAttention. `balance`: "none", "head-tail", or "blocks" (by the work of blocks).

    What isn't `compiled` is right, and slow: for CPUs, where compiling takes minutes.
    """
    from torch.distributed.tensor.experimental import _attention as cp
    from torch.distributed.tensor.experimental._context_parallel import _attention as parts
    from torch.nn.attention.flex_attention import create_block_mask

    rows, device = whole[0].shape[2], whole[0].device
    blocks = create_block_mask(mask, 1, 1, rows, rows, device=device)
    if not compiled:
        parts._compiled_create_block_mask = create_block_mask
    balancer: Any = None
    if balance == "head-tail":
        balancer = cp._HeadTailLoadBalancer(rows, mesh.size(), device)
    elif balance == "blocks":
        balancer = cp._PTRRLoadBalancer(blocks, mesh.size())
    *own, own_blocks = cp._context_parallel_shard(mesh, [*whole, blocks], [2, 2, 2, 2], balancer)
    style = cp._ContextParallel(seq_dim=2, attention_type=cp._ContextParallel.AttentionType.FLEX)
    module = style._apply(_Flex(compiled=compiled), mesh)

    def call(*operands: Tensor) -> Tensor:
        return module(*operands, block_mask=own_blocks, enable_gqa=True)

    return call, [x.contiguous() for x in own]
