# Written by attncc 0.2.0 from specs/paged.attn. Do not edit: `attncc build` writes this file anew.
"""Causal attention on a pool of pages that is the K and V of all sequences (broadcast over the
batch): kv_idx counts the pool's slots, kv_len is its size. `logical_page[b, p]` is which
page of sequence b lies on page p of the pool, or negative where none of it does.
`length[b]` is how many tokens sequence b has; its last q_len are the queries. Slots beyond
a sequence's end, in its last page, come after every query and are never seen.

variant paged
  const page = 64
  input logical_page: i32[batch, _]
  input length: i32[batch]
  let own_page = logical_page[b, kv_idx // page]
  let position = own_page * page + kv_idx % page
  keep if own_page >= 0
  keep if position <= q_idx + length[b] - q_len

Kernels:
    forward bf16, head dim 128, sm_80: q_outer, tiles of 64 x 32
    decode bf16, head dim 128, sm_80: q_outer, tiles of 64 x 32

Without backward (gradients of arrays on a GPU raise A520); `attncc build FILE --backward`
makes them.
"""

from __future__ import annotations

from attncc.runtime.package import Array, Package, Scalar, Stream

_package = Package(__file__)


@_package.exported(
    configurations=(
        ("bf16", 128, 128),
    )
)
def paged(
    q: Array,
    k: Array,
    v: Array,
    *,
    logical_page: Array,  # i32[batch, _]
    length: Array,  # i32[batch]
    scale: float | None = None,
    layout: str = "bhsd",
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    seed: Scalar | None = None,
    out: Array | None = None,
    return_lse: bool = False,
    stream: Stream | None = None,
) -> Array:
    """Causal attention on a pool of pages that is the K and V of all sequences (broadcast over the
    batch): kv_idx counts the pool's slots, kv_len is its size. `logical_page[b, p]` is which
    page of sequence b lies on page p of the pool, or negative where none of it does.
    `length[b]` is how many tokens sequence b has; its last q_len are the queries. Slots beyond
    a sequence's end, in its last page, come after every query and are never seen.

    q: [batch, heads, q_len, head dim]
    k, v: [batch, kv heads, kv_len, head dim]; heads is a multiple of kv heads
    logical_page: i32[batch, _]
    length: i32[batch]
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

    Torch tensors that require a gradient are recorded by autograd; `paged.backward(dout, q, k,
    v, out, lse, ...)` gives the gradients of any arrays: on a GPU where the package was built
    with --backward.
    """
    return _package.kernel.called(
        (
            q,
            k,
            v,
            {
                "logical_page": logical_page,
                "length": length,
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
