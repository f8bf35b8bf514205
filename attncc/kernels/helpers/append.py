"""`append_bf16_f32_sm_80`: rotates new keys and queries, and writes new keys and values into a cache.

`attncc.append` launches it, and calls of kernels that bring `k_new`.
"""

from __future__ import annotations

from ..facts import Facts
from ..parameters import ELEMENT_TYPES, Parameter, ints, ordered, page_parameters, pointers, strides
from ..quantized import scale_parameters
from .helper import HelperKernel

DTYPES = ("fp16", "bf16", "fp32")
THREADS = 128
WIDE = 8  # columns that a thread takes where all accesses are aligned


def kernel(dtype: str, angles: str, target: str, kv_dtype: str | None = None) -> HelperKernel:
    """Of new rows of fp16, bf16 or fp32; `angles` is the type of cos and sin, fp32 or the same, `kv_dtype` that of the
    cache, if it is another."""
    cache = "" if kv_dtype is None else f", quantised to {kv_dtype}"
    return HelperKernel(
        name=f"{prefix(dtype, angles, kv_dtype)}{target}",
        template="helpers/append.cu.j2",
        what=f"append: rotates new keys and writes them into a cache; {dtype}, angles in {angles}{cache}",
        parameters=parameters(dtype, angles, kv_dtype),
        threads=THREADS,
        values={"dtype": dtype, "angle_type": ELEMENT_TYPES[angles], "kv_dtype": kv_dtype},
    )


def prefix(dtype: str, angles: str, kv_dtype: str | None) -> str:
    """The name without its target."""
    return f"append_{dtype}_{angles}_" + ("" if kv_dtype is None else f"kv_{kv_dtype}_")


def needed(facts: Facts) -> tuple[HelperKernel, ...]:
    """Where there are kernels for pages, calls bring new rows too: with each type of angles that they may have."""
    plan = facts.plan
    angles = dict.fromkeys(("fp32", plan.dtype)) if plan.paged and plan.dtype in DTYPES else ()
    return tuple(kernel(plan.dtype, item, plan.target, plan.kv_dtype) for item in angles)


def parameters(dtype: str, angles: str, kv_dtype: str | None = None) -> tuple[Parameter, ...]:
    """`rows` are the new rows of each sequence, of a packed batch those of all; `parts` the blocks that share a row.

    `block_table`, `cu_seqlens_q`, `cos`, `sin`, `q` and `q_out` may be null; `pairs` is 0 then without `cos`, and
    `num_heads` without `q`. `room`: keys that a sequence has room for. `wide`: all accesses to rows are aligned.
    """
    element, angle = ELEMENT_TYPES[dtype], ELEMENT_TYPES[angles]
    cached = element if kv_dtype is None else ELEMENT_TYPES[kv_dtype]
    fields = [*pointers(cached, "k_cache", "v_cache"), *pointers(f"const {element}", "k_new", "v_new", "q")]
    fields += [*pointers(element, "q_out"), *pointers(f"const {angle}", "cos", "sin")]
    fields += [*pointers("const int", "kv_lens", "block_table", "cu_seqlens_q")]
    for name in ("k_cache", "v_cache", "k_new", "v_new", "q", "q_out"):
        fields += strides(name)
    fields += [Parameter(name, "long long") for name in ("cos_stride_row", "sin_stride_row")]
    fields += ints("batch", "num_heads", "num_kv_heads", "rows", "room", "head_dim", "value_head_dim")
    fields += ints("pairs", "positions", "interleaved", "parts", "wide")
    if kv_dtype is not None:
        fields += scale_parameters()
    return ordered([*fields, *page_parameters()])
