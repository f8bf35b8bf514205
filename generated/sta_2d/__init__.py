# Written by attncc 0.1.0 from specs/sta_2d.attn. Do not edit: `attncc build` writes this file anew.
"""Sliding tile attention on an image (Zhang et al. 2025), with text after it. The image's
pixels come tile by tile, row by row, `tile` to a tile; a tile sees the rectangle of
`kernel_across` x `kernel_down` tiles around its own, moved inwards at the borders, so that
whole tiles are kept or left out. An even kernel reaches one tile further left (up) than
right (down); one larger than the canvas covers it; one of 0 tiles keeps no image for image
queries. The `text_len` keys after the image are seen by all, and queries from there on see
the image and the text. Canvas and kernel are counted in tiles: divide pixels by the tile's
sides, which must divide them.

variant sta_2d
  const tile = 64
  const across = 8
  const down = 8
  const kernel_across = 3
  const kernel_down = 3
  const image = 4096
  input text_len: i32
  let q_tile = q_pos // tile
  let kv_tile = kv_idx // tile
  let x = neighborhood(q_tile % across, kv_tile % across, across, kernel_across // 2, (kernel_across - 1) // 2)
  let y = neighborhood(q_tile // across, kv_tile // across, down, kernel_down // 2, (kernel_down - 1) // 2)
  keep if prefix(image + text_len)
  keep if q_pos >= image or kv_idx >= image or x and y

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
def sta_2d(
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
    """Sliding tile attention on an image (Zhang et al. 2025), with text after it. The image's
    pixels come tile by tile, row by row, `tile` to a tile; a tile sees the rectangle of
    `kernel_across` x `kernel_down` tiles around its own, moved inwards at the borders, so that
    whole tiles are kept or left out. An even kernel reaches one tile further left (up) than
    right (down); one larger than the canvas covers it; one of 0 tiles keeps no image for image
    queries. The `text_len` keys after the image are seen by all, and queries from there on see
    the image and the text. Canvas and kernel are counted in tiles: divide pixels by the tile's
    sides, which must divide them.

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

    Torch tensors that require a gradient are recorded by autograd; `sta_2d.backward(dout, q, k,
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
