# Written by attncc 0.1.0 from specs/sta_3d.attn. Do not edit: `attncc build` writes this file anew.
"""Sliding tile attention on a video (Zhang et al. 2025), with text after it: as `sta_2d`, with
time as the slowest axis of the tiles. Canvas and kernel are counted in tiles, here of 4 x 4
x 4 latent pixels.

variant sta_3d
  const tile = 64
  const across = 6
  const down = 6
  const long = 6
  const kernel_across = 3
  const kernel_down = 3
  const kernel_long = 3
  const frame = 36
  const video = 13824
  input text_len: i32
  let q_tile: int = (q_pos // 64)
  let kv_tile: int = (kv_idx // 64)
  let q_y: int = ((q_tile % 36) // 6)
  let kv_y: int = ((kv_tile % 36) // 6)
  let neighborhood__center: int = min(max((q_tile % 6), 1), 4)
  let x: bool = (((neighborhood__center - 1) <= (kv_tile % 6)) and ((kv_tile % 6) <= (neighborhood__center + 1)))
  let neighborhood__center__2: int = min(max(q_y, 1), 4)
  let y: bool = (((neighborhood__center__2 - 1) <= kv_y) and (kv_y <= (neighborhood__center__2 + 1)))
  let neighborhood__center__3: int = min(max((q_tile // 36), 1), 4)
  let t: bool = (((neighborhood__center__3 - 1) <= (kv_tile // 36)) and ((kv_tile // 36) <= (neighborhood__center__3 + 1)))
  keep if (kv_idx < (13824 + text_len))
  keep if ((q_pos >= 13824) or (kv_idx >= 13824) or (x and y and t))

Kernels:
    forward bf16, head dim 128, sm_80: q_outer, tiles of 64 x 32
"""

from __future__ import annotations

from attncc.runtime.package import Array, Package, Scalar, Stream

_package = Package(__file__)


def sta_3d(
    q: Array,
    k: Array,
    v: Array,
    *,
    text_len: Scalar,  # i32
    scale: float | None = None,
    layout: str = "bhsd",
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    seed: Scalar | None = None,
    out: Array | None = None,
    return_lse: bool = False,
    stream: Stream | None = None,
) -> Array:
    """Sliding tile attention on a video (Zhang et al. 2025), with text after it: as `sta_2d`, with
    time as the slowest axis of the tiles. Canvas and kernel are counted in tiles, here of 4 x 4
    x 4 latent pixels.

    q: [batch, heads, q_len, head dim]
    k, v: [batch, kv heads, kv_len, head dim]; heads is a multiple of kv heads
    text_len: i32, a number or a 0-d array
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
        text_len=text_len,
        scale=scale,
        layout=layout,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_kv=cu_seqlens_kv,
        seed=seed,
        out=out,
        return_lse=return_lse,
        stream=stream,
    )
