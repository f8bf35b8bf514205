"""Kernels as functions of JAX.

    kernel = attncc.compile("alibi", dtype="bf16", head_dim=128)
    attention = attncc.jax.wrap(kernel)
    out = jax.jit(attention)(q, k, v, slope=slope)          # and under grad, vmap, shard_map

Read `wrap` here, then `attention` (what a call checks, and its gradients), `primitives` (what JAX's programs hold),
`calls` and `on_device` (what runs), `xla_ffi` (how XLA calls Python).
"""

from .attention import Attention, wrap
from .calls import register

__all__ = ["Attention", "wrap"]

register()
