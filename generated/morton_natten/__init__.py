# Written by attncc 0.1.0 from specs/morton_natten.attn. Do not edit: `attncc build` writes this file anew.
"""`natten` on a square canvas of 2**bits x 2**bits pixels in Morton order (a Z-order curve):
the even bits of a position are x, the odd ones y, the lowest bit first. What a query sees
is the same as in `natten`; any aligned power of two of positions is a rectangle of pixels.
Keys beyond the canvas are folded back onto it: kv_len must not exceed 4**bits.

variant morton_natten
  const bits = 6
  const kernel = 13
  const kernel_width = 13
  const kernel_height = 13
  let q_x: int = ((((((q_pos >> 0) & 1) << 0) + (((q_pos >> 2) & 1) << 1)) + ((((q_pos >> 4) & 1) << 2) + (((q_pos >> 6) & 1) << 3))) + ((((q_pos >> 8) & 1) << 4) + (((q_pos >> 10) & 1) << 5)))
  let q_y: int = ((((((q_pos >> 1) & 1) << 0) + (((q_pos >> 3) & 1) << 1)) + ((((q_pos >> 5) & 1) << 2) + (((q_pos >> 7) & 1) << 3))) + ((((q_pos >> 9) & 1) << 4) + (((q_pos >> 11) & 1) << 5)))
  let kv_x: int = ((((((kv_idx >> 0) & 1) << 0) + (((kv_idx >> 2) & 1) << 1)) + ((((kv_idx >> 4) & 1) << 2) + (((kv_idx >> 6) & 1) << 3))) + ((((kv_idx >> 8) & 1) << 4) + (((kv_idx >> 10) & 1) << 5)))
  let kv_y: int = ((((((kv_idx >> 1) & 1) << 0) + (((kv_idx >> 3) & 1) << 1)) + ((((kv_idx >> 5) & 1) << 2) + (((kv_idx >> 7) & 1) << 3))) + ((((kv_idx >> 9) & 1) << 4) + (((kv_idx >> 11) & 1) << 5)))
  let neighborhood__center: int = min(max(q_x, 6), 57)
  keep if (((neighborhood__center - 6) <= kv_x) and (kv_x <= (neighborhood__center + 6)))
  let neighborhood__center__2: int = min(max(q_y, 6), 57)
  keep if (((neighborhood__center__2 - 6) <= kv_y) and (kv_y <= (neighborhood__center__2 + 6)))

Kernels:
    forward bf16, head dim 128, sm_80: q_outer, tiles of 64 x 32
"""

from __future__ import annotations

from attncc.runtime.package import Array, Package, Scalar, Stream

_package = Package(__file__)


def morton_natten(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    layout: str = "bhsd",
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    seed: Scalar | None = None,
    out: Array | None = None,
    return_lse: bool = False,
    stream: Stream | None = None,
) -> Array:
    """`natten` on a square canvas of 2**bits x 2**bits pixels in Morton order (a Z-order curve):
    the even bits of a position are x, the odd ones y, the lowest bit first. What a query sees
    is the same as in `natten`; any aligned power of two of positions is a rectangle of pixels.
    Keys beyond the canvas are folded back onto it: kv_len must not exceed 4**bits.

    q: [batch, heads, q_len, head dim]
    k, v: [batch, kv heads, kv_len, head dim]; heads is a multiple of kv heads
    scale: what q·k is multiplied by; 1 / sqrt(head dim), if not given
    layout: "bhsd" as above, or "bshd": [batch, length, heads, head dim]
    cu_seqlens_q, cu_seqlens_kv: int32 [batch + 1], the starts of the sequences of a packed
        batch and its end; q, k, v and out then have no batch axis
    seed: not used
    out: where the result is written, if given
    return_lse: also return the log-sum-exp of each row's scores, fp32 [batch, heads, q_len]
    stream: where the work is queued; the current stream of the arrays' framework, if not given

    Returns out [batch, heads, q_len, value head dim] in q's dtype and framework, with
    return_lse (out, lse). A row that keeps no key is 0, its lse -inf. On a GPU the call returns
    at once; NumPy arrays and CPU tensors run on the CPU executor. Raises attncc.AttnccError
    before any launch if an argument doesn't suit.
    """
    return _package.kernel(
        q,
        k,
        v,
        scale=scale,
        layout=layout,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_kv,
        seed=seed,
        out=out,
        return_lse=return_lse,
        stream=stream,
    )
