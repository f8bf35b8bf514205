# Written by attncc 0.1.0 from specs/selected_attention.attn. Do not edit: `attncc build` writes this file anew.
"""Attention over a pool of selected keys and a window of local ones, in one softmax with a
sink (DeepSeek's compressed sparse attention is of this kind). The keys are the pool's
`pool_len`, then the local sequence, whose last q_len positions are the queries. A query
sees the keys of the pool that its row of `selected` names (-1 names none; what is named n
times weighs n times, as if it stood there n times), and of the local keys exactly `width`
up to its own, in its own document. `doc` counts all keys, the pool's included, whose
entries aren't read. The sink's logit takes part in the softmax and has no value; no
document limits what is selected.

variant selected_attention
  const width = 128
  const count = 16
  input pool_len: i32
  input selected: i32[batch, q, 16]
  input doc: i32[batch, pos]
  input sink_logit: f32[head] learnable
  let pooled = kv_idx < pool_len
  let copies = sum(1 if selected[b, q_idx, i] == kv_idx else 0 for i in range(count))
  let named = any(selected[b, q_idx, i] == kv_idx for i in range(count))
  keep if named if pooled else window(width) and same_document(doc)
  score = score + log(copies) if pooled else score
  sink sink_logit

Kernels:
    forward bf16, head dim 128, sm_80: q_outer, tiles of 32 x 32

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
def selected_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    pool_len: Scalar,  # i32
    selected: Array,  # i32[batch, q, 16]
    doc: Array,  # i32[batch, pos]
    sink_logit: Array,  # f32[head] learnable
    scale: float | None = None,
    layout: str = "bhsd",
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    seed: Scalar | None = None,
    out: Array | None = None,
    return_lse: bool = False,
    stream: Stream | None = None,
) -> Array:
    """Attention over a pool of selected keys and a window of local ones, in one softmax with a
    sink (DeepSeek's compressed sparse attention is of this kind). The keys are the pool's
    `pool_len`, then the local sequence, whose last q_len positions are the queries. A query
    sees the keys of the pool that its row of `selected` names (-1 names none; what is named n
    times weighs n times, as if it stood there n times), and of the local keys exactly `width`
    up to its own, in its own document. `doc` counts all keys, the pool's included, whose
    entries aren't read. The sink's logit takes part in the softmax and has no value; no
    document limits what is selected.

    q: [batch, heads, q_len, head dim]
    k, v: [batch, kv heads, kv_len, head dim]; heads is a multiple of kv heads
    pool_len: i32, a number or a 0-d array
    selected: i32[batch, q, 16]
    doc: i32[batch, pos]
    sink_logit: f32[head] learnable
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

    Torch tensors that require a gradient are recorded by autograd;
    `selected_attention.backward(dout, q, k, v, out, lse, ...)` gives the gradients of any
    arrays: on a GPU where the package was built with --backward.
    """
    return _package.kernel.called(
        (
            q,
            k,
            v,
            {
                "pool_len": pool_len,
                "selected": selected,
                "doc": doc,
                "sink_logit": sink_logit,
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
