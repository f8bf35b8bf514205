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
  let q_tile = q_pos // tile
  let kv_tile = kv_idx // tile
  let q_y = q_tile % frame // across
  let kv_y = kv_tile % frame // across
  let x = neighborhood(q_tile % across, kv_tile % across, across, kernel_across // 2, (kernel_across - 1) // 2)
  let y = neighborhood(q_y, kv_y, down, kernel_down // 2, (kernel_down - 1) // 2)
  let t = neighborhood(q_tile // frame, kv_tile // frame, long, kernel_long // 2, (kernel_long - 1) // 2)
  keep if prefix(video + text_len)
  keep if q_pos >= video or kv_idx >= video or x and y and t

Kernels:
    forward bf16, head dim 128, sm_80: q_outer, tiles of 64 x 32

Without decode (calls with few queries run the forward kernel) and backward (gradients of
arrays on a GPU raise A520); `attncc build FILE --decode --backward` makes them.
"""

from __future__ import annotations

from attncc.runtime.package import Array, Package, Scalar, Stream

_package = Package(__file__)


@_package.exported(
    configurations=(
        ("bf16", 128, 128),
    )
)
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
        batch and its end; q, k, v and out have no batch axis, rows of no sequence are undefined
        then
    seed: not used
    out: where the result is written, if given: memory that q, k and v don't share
    return_lse: also return the log-sum-exp of each row's scores, fp32 [batch, heads, q_len]; of
        packed batches [heads, all rows]
    stream: where the work is queued; the current stream of the arrays' framework, if not given

    Returns out [batch, heads, q_len, value head dim] in q's dtype and framework, with
    return_lse (out, lse). A row that keeps no key is 0, its lse -inf. On a GPU the call returns
    at once; NumPy arrays and CPU tensors run on the CPU executor. Raises attncc.AttnccError
    before any launch if an argument doesn't suit.

    Torch tensors that require a gradient are recorded by autograd; `sta_3d.backward(dout, q, k,
    v, out, lse, ...)` gives the gradients of any arrays: on a GPU where the package was built
    with --backward.
    """
    return _package.kernel.called(
        (
            q,
            k,
            v,
            {
                "text_len": text_len,
            },
            scale,
            layout,
            cu_seqlens_q,
            cu_seqlens_kv,
            seed,
            out,
            return_lse,
        ),
        stream,
    )
