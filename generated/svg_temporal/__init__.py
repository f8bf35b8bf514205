# Written by attncc 0.1.0 from specs/svg_temporal.attn. Do not edit: `attncc build` writes this file anew.
"""Sparse VideoGen's temporal heads (Xi et al. 2025): a prompt, then frames of `frame` tokens.
Every query sees the prompt, queries of the prompt see everything, and others those tokens
of every frame whose place in their frame is less than `band` away from the query's place in
its own. The band is width * frame // frames tokens; where that is 0 and there is no prompt,
nothing is kept. Places don't wrap around: a frame's first token is far from its last.

variant svg_temporal
  const frame = 1350
  const frames = 13
  const width = 2
  const band = 207
  input prompt_len: i32
  let q_place = (q_pos - prompt_len) % frame
  let kv_place = (kv_idx - prompt_len) % frame
  keep if prefix(prompt_len) or q_pos < prompt_len or abs(q_place - kv_place) < band

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
def svg_temporal(
    q: Array,
    k: Array,
    v: Array,
    *,
    prompt_len: Scalar,  # i32
    scale: float | None = None,
    layout: str = "bhsd",
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    seed: Scalar | None = None,
    out: Array | None = None,
    return_lse: bool = False,
    stream: Stream | None = None,
) -> Array:
    """Sparse VideoGen's temporal heads (Xi et al. 2025): a prompt, then frames of `frame` tokens.
    Every query sees the prompt, queries of the prompt see everything, and others those tokens
    of every frame whose place in their frame is less than `band` away from the query's place in
    its own. The band is width * frame // frames tokens; where that is 0 and there is no prompt,
    nothing is kept. Places don't wrap around: a frame's first token is far from its last.

    q: [batch, heads, q_len, head dim]
    k, v: [batch, kv heads, kv_len, head dim]; heads is a multiple of kv heads
    prompt_len: i32, a number or a 0-d array
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

    Torch tensors that require a gradient are recorded by autograd; `svg_temporal.backward(dout,
    q, k, v, out, lse, ...)` gives the gradients of any arrays: on a GPU where the package was
    built with --backward.
    """
    return _package.kernel.called(
        (
            q,
            k,
            v,
            {
                "prompt_len": prompt_len,
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
