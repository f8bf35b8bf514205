# Written by attncc 0.2.0 from specs/alibi_documents.attn. Do not edit: `attncc build` writes this file anew.
"""Causal attention over packed documents with ALiBi, a window, a soft cap and dropout.

variant alibi_documents
  const width = 1024
  input slope: f32[head]
  input doc: i32[batch, pos] nondecreasing
  input cap: f32
  let distance = q_pos - kv_idx
  keep if distance >= 0
  keep if window(width)
  keep if same_document(doc)
  score = score - slope[h] * distance
  score = cap * tanh(score / cap)
  dropout 0.1

Kernels:
    forward bf16, head dim 128, sm_90a: q_outer, tiles of 128 x 64

Without decode (calls with few queries run the forward kernel), serving (block_table,
shared_prefix and k_new raise A505 on a GPU) and backward (gradients of arrays on a GPU
raise A520); `attncc build FILE --decode --serving --backward` makes them.
"""

from __future__ import annotations

from attncc.runtime.package import Array, Package, Scalar, Stream, Unknown, given as _given

_package = Package(__file__)


@_package.exported(
    configurations=(
        ("bf16", 128, 128),
    )
)
def alibi_documents(
    q: Array,
    k: Array,
    v: Array,
    *,
    slope: Array,  # f32[head]
    doc: Array,  # i32[batch, pos] nondecreasing
    cap: Scalar,  # f32
    scale: float | None = None,
    layout: str = "bhsd",
    cu_seqlens_q: Array | None = None,
    cu_seqlens_kv: Array | None = None,
    kv_lens: Array | None = None,
    block_table: Array | None = None,
    q_offset: Scalar | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    shared_prefix: int = 0,
    seed: Scalar | None = None,
    out: Array | None = None,
    return_lse: bool = False,
    stream: Stream | None = None,
    k_new: Array | None = None,
    v_new: Array | None = None,
    rotary: tuple[Array, Array] | None = None,
    interleaved: bool = False,
    **_unknown: Unknown,  # refused by the kernel, with the name that was meant
) -> Array:
    """Causal attention over packed documents with ALiBi, a window, a soft cap and dropout.

    q: [batch, heads, q_len, head dim]
    k, v: [batch, kv heads, kv_len, head dim]; heads is a multiple of kv heads
    slope: f32[head]
    doc: i32[batch, pos] nondecreasing
    cap: f32, a number or a 0-d array
    scale: what q·k is multiplied by; 1 / sqrt(head dim), if not given
    layout: "bhsd" as above, or "bshd": [batch, length, heads, head dim]
    cu_seqlens_q, cu_seqlens_kv: int32 [batch + 1], the starts of the sequences of a packed
        batch and its end; q, k, v and out have no batch axis, rows of no sequence are undefined
        then
    kv_lens: int32 [batch], on the device: how many keys each sequence has, where k and v have
        room for more (a cache). Rows behind them may hold anything
    block_table: int32 [batch, max_blocks]: k and v are pools of pages, [pages, kv_heads, page,
        head dim] in layout bhsd, [pages, page, kv_heads, head dim] in bshd, and key j of
        sequence b is row j % page of page block_table[b, j // page]. Needs kv_lens; entries
        behind these are never read
    q_offset: an int, or int32 [batch] or 0-d on the device: q_pos = q_idx + q_offset. If not
        given, the last query is at the last key
    k_scale: float32 [batch, kv_heads], or [pages, kv_heads] with block_table: what k is
        multiplied by, where k and v are e4m3 or int8 and q has 16 bits; 1 if not given
    v_scale: float32 [batch, kv_heads], or [pages, kv_heads] with block_table: what v is
        multiplied by, where k and v are e4m3 or int8 and q has 16 bits; 1 if not given
    shared_prefix: how many keys all sequences share: the first of each, the same rows in the
        pages that block_table names first, or equal ones in k and v. Keys of sequence 0 are
        then read for all. Each sequence has these, and one for each query behind them. Needs
        kv_lens; results are as without it
    seed: an int or a 0-d int64 array: the same seed drops the same pairs; of torch tensors
        drawn by torch, if not given
    out: where the result is written, if given: memory that q, k and v don't share
    return_lse: also return the log-sum-exp of each row's scores, fp32 [batch, heads, q_len]; of
        packed batches [heads, all rows]
    stream: where the work is queued; the current stream of the arrays' framework, if not given
    k_new: [batch, kv heads, n, head dim]: new keys, written into the cache first, where the
        last n of each sequence's kv_lens keys stand. Needs v_new and kv_lens; nothing has
        gradients then
    v_new: new values, as k_new
    rotary: (cos, sin), each [positions, rotary dim / 2]: k_new and q are rotated at their
        positions (RoPE). Needs k_new
    interleaved: column 2i is rotated with 2i + 1 (GPT-J) instead of i with i + rotary dim / 2

    Arrays of int32 may come as int64, with numbers that fit in int32: each call copies them.
    The CPU refuses other numbers; a GPU takes their low 32 bits.

    Returns out [batch, heads, q_len, value head dim] in q's dtype and framework, with
    return_lse (out, lse). A row that keeps no key is 0, its lse -inf. On a GPU the call returns
    at once; NumPy arrays and CPU tensors run on the CPU executor. Raises attncc.AttnccError
    before any launch if an argument doesn't suit.

    Torch tensors that require a gradient are recorded by autograd;
    `alibi_documents.backward(dout, q, k, v, out, lse, ...)` gives the gradients of any arrays:
    on a GPU where the package was built with --backward.
    """
    if k_new is not None or v_new is not None or rotary is not None or interleaved is not False:
        _new = k_new, v_new, rotary, interleaved
        _where = kv_lens, block_table, cu_seqlens_q, q_offset, layout, stream, k_scale, v_scale
        q = _package.kernel.appended(q, k, v, _new, *_where)
    _inputs = {
        "slope": slope,
        "doc": doc,
        "cap": cap,
        **_unknown,
    }
    if slope is None or doc is None or cap is None:
        _inputs = _given(**_inputs)
    return _package.kernel.called(
        (
            q,
            k,
            v,
            _inputs,
            scale,
            layout,
            cu_seqlens_q,
            cu_seqlens_kv,
            kv_lens,
            block_table,
            q_offset,
            k_scale,
            v_scale,
            shared_prefix,
            seed,
            out,
            return_lse,
        ),
        stream,
    )
