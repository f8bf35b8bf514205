"""`attncc.append`: the step before attention over a cache, in one launch."""

from __future__ import annotations

from typing import Any

from .machine_code import append_code
from .problem.appended import Append
from .runtime.call.appender import Appender

Array = Any  # of NumPy, CuPy or torch


def append(
    k_cache: Array,
    v_cache: Array,
    k_new: Array,
    v_new: Array,
    kv_lens: Array,
    *,
    block_table: Array | None = None,
    cu_seqlens_q: Array | None = None,
    rotary: tuple[Array, Array] | None = None,
    interleaved: bool = False,
    q: Array | None = None,
    layout: str = "bhsd",
    k_scale: Array | None = None,
    v_scale: Array | None = None,
) -> Array | None:
    """Writes new keys and values into a cache, in place; keys, and q if given, are rotated first. Gives the rotated q.

    `kv_lens`, int32 [batch], are the lengths after the call, as the kernel takes them: with n new rows, those of
    sequence b stand at kv_lens[b] - n, …, kv_lens[b] - 1. Rows before position 0 are padding: nothing is written for
    them, and in the result they are 0. k_new is [batch, kv_heads, n, head dim], v_new and q alike; with `cu_seqlens_q`,
    int32 [batch + 1], rows of all sequences are packed, [heads, all rows, head dim]. Layout "bshd" exchanges heads and
    rows. The caches are [batch, kv_heads, room, head dim], with `block_table` pools of pages, as kernels take them.
    `rotary` is (cos, sin), fp32 or of k's type, [positions, rotary dim / 2]: the first rotary dim columns are rotated
    (RoPE, Su et al. 2021), column i with column i + rotary dim / 2 (GPT-NeoX, Llama), or `interleaved`, 2i with 2i + 1
    (GPT-J). Sums are in fp32.

    Caches may have 8 bits, e4m3 or int8, and new rows more: these are divided by `k_scale` and `v_scale`, f32 [batch,
    kv_heads] or, with a block_table, [pages, kv_heads] (1 if missing), and rounded to the nearest number, ties to even.
    What is too large becomes the largest one.

    Arrays are NumPy's, CuPy's or torch's, of fp16, bf16 or fp32 (on the CPU also fp64). Those of int32 may be int64,
    with numbers that fit in int32. On a GPU it is one launch on the current stream, without a look at any contents: a
    length or page that can't be writes nothing, positions beyond cos and sin make NaN, and of numbers beyond int32 it
    takes the low 32 bits. CUDA graphs may hold it. Nothing has gradients.

    AttnccError A6xx before anything is written; A5xx where no kernel can be compiled.
    """
    given = k_cache, v_cache, k_new, v_new, kv_lens, block_table, cu_seqlens_q
    call = Append(*given, q=q, k_scale=k_scale, v_scale=v_scale)
    return _appender.run(call, rotary, interleaved=interleaved, layout=layout)


_appender = Appender(append_code)
