"""Calls of JAX on a GPU, against attention in jnp: prints the relative error of each result as JSON.

A process of its own, since JAX keeps the GPU's memory to itself until the process ends:

    XLA_PYTHON_CLIENT_PREALLOCATE=false XLA_FLAGS=--xla_gpu_autotune_level=0 python -m tests.gpu.jax_checks

What takes time is compilation: that of kernels, here all beside each other, and that of XLA's programs, which are few:
one for each function and shape. The seconds of each check go to stderr.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attncc
import attncc.jax
from attncc.runtime.call.backward_launch import BackwardLauncher
from attncc.runtime.kernel import Kernel
from tests.kernels import without_decode

SLOPED = """attn 1
variant jax_sloped {
    input slope: f32[head] learnable
    keep if q_pos >= kv_idx
    score = score - slope[h] * (q_pos - kv_idx)
}
"""
DROPPED = "attn 1\nvariant jax_dropped { dropout 0.5 }\n"
KERNELS = ("causal", "bf16", 128), (SLOPED, "bf16", 128), (SLOPED, "fp16", 100), ("causal", "fp32", 128), (
    DROPPED, "fp32", 128
)  # fmt: skip
CHECKS: dict[str, Callable[[], Any]] = {}


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    """Gives pairs of a result and what is wanted, by name."""
    CHECKS[function.__name__] = function
    return function


@cache
def compiled(spec: str, dtype: str, head_dim: int) -> Kernel:
    """With kernels for one query where a check has calls of one."""
    if (spec, dtype) == ("causal", "bf16"):
        return attncc.compile(spec, dtype=dtype, head_dim=head_dim)
    return without_decode(spec, dtype=dtype, head_dim=head_dim, value_head_dim=head_dim, arch=None)


def compile_all() -> None:
    """The kernels of all checks, forward and backward."""
    with ThreadPoolExecutor(2 * len(KERNELS)) as pool:
        kernels = [pool.submit(compiled, *given) for given in KERNELS]
        for future in [
            pool.submit(lambda made: BackwardLauncher(made.result().store).load(0), made) for made in kernels
        ]:
            future.result()


def kernel(spec: str, dtype: str = "bf16", head_dim: int = 128) -> Any:
    return attncc.jax.wrap(compiled(spec, dtype, head_dim))


def arrays(*shapes: tuple[int, ...], dtype: Any = jnp.bfloat16) -> list[Any]:
    keys = jax.random.split(jax.random.key(len(shapes[0])), len(shapes))
    return [jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes, strict=True)]


def qkv(heads: int = 4, kv_heads: int = 2, length: int = 777, head_dim: int = 128, dtype: Any = jnp.bfloat16) -> Any:
    kv = (2, length, kv_heads, head_dim)
    return arrays((2, length, heads, head_dim), kv, kv, dtype=dtype)


@jax.jit  # one program, where each operation would be one
def attention(q: Any, k: Any, v: Any, slope: Any = 0.0) -> Any:
    """Causal in layout bshd, in fp32."""
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    k, v = (jnp.repeat(x, q.shape[2] // k.shape[2], 2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") * q.shape[-1] ** -0.5
    distance = jnp.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - jnp.arange(k.shape[1])
    scores = scores - jnp.reshape(slope, (-1, 1, 1)) * distance
    weights = jax.nn.softmax(jnp.where(distance >= 0, scores, -jnp.inf))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v, precision="highest")


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: jnp.sin(3 * function(*given).astype(jnp.float32)).sum()


@cache
def gradient_of(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    return jax.jit(jax.grad(total(function), tuple(range(count))))


def gradients(function: Callable[..., Any], given: Any) -> Any:
    return gradient_of(function, len(given))(*given)


def named(found: Any, wanted: Any) -> dict[str, Any]:
    return {name: pair for name, *pair in zip(("dq", "dk", "dv", "dslope"), found, wanted, strict=False)}


@check
def causal() -> Any:
    given = qkv()
    call = kernel("causal")
    eager, compiled = call(*given, layout="bshd"), jax.jit(lambda *x: call(*x, layout="bshd"))(*given)
    return {"eager": (eager, attention(*given)), "jit": (compiled, attention(*given))}


@check
def alibi_gradients() -> Any:
    given = [*qkv(), jnp.linspace(0.01, 0.1, 4)]
    call = kernel(SLOPED)
    return named(gradients(lambda *x: call(*x[:3], slope=x[3], layout="bshd"), given), gradients(attention, given))


@check
def filled_rows() -> Any:
    given = [*qkv(head_dim=100, dtype=jnp.float16), jnp.linspace(0.01, 0.1, 4)]
    call = kernel(SLOPED, "fp16", 100)
    return named(gradients(lambda *x: call(*x[:3], slope=x[3], layout="bshd"), given), gradients(attention, given))


@check
def fp32() -> Any:
    given = qkv(length=200, dtype=jnp.float32)
    call = kernel("causal", "fp32")
    ours = lambda *x: call(*x, layout="bshd")  # noqa: E731
    return {"out": (ours(*given), attention(*given)), **named(gradients(ours, given), gradients(attention, given))}


@check
def mapped() -> Any:
    given = qkv()
    call = kernel("causal")
    ours = jax.vmap(lambda *x: call(*(y[None] for y in x), layout="bshd")[0])
    out = jax.jit(ours)(*given), attention(*given)
    return {"out": out, **named(gradients(ours, given), gradients(attention, given))}


@check
def one_query() -> Any:
    """Keys are split, through a workspace of XLA."""
    q, k, v = arrays((1, 1, 4, 128), (1, 8192, 2, 128), (1, 8192, 2, 128))
    call = kernel("causal")
    return {"out": (jax.jit(lambda *x: call(*x, layout="bshd"))(q, k, v), attention(q, k, v))}


@check
def shared_keys() -> Any:
    q, k, v = qkv()
    given = [q, k[:1], v[:1]]
    call = kernel("causal")
    repeated = lambda q, k, v: attention(q, *(jnp.repeat(x, 2, 0) for x in (k, v)))  # noqa: E731
    return named(gradients(lambda *x: call(*x, layout="bshd"), given), gradients(repeated, given))


@check
def dropout() -> Any:
    """What the backward pass drops is what the forward pass dropped: out is linear in v."""
    q, k, v = qkv(dtype=jnp.float32, length=256)
    call = kernel(DROPPED, "fp32")
    out, pull = jax.vjp(lambda v: call(q, k, v, seed=jax.random.key(3), layout="bshd"), v)
    number, array = (call(q, k, v, seed=seed, layout="bshd") for seed in (7, jnp.int32(7)))
    dout = 1 + jax.random.uniform(jax.random.key(5), out.shape)
    linear = (out * dout).sum(keepdims=True), (v * pull(dout)[0]).sum(keepdims=True)
    return {"linear": linear, "seed": (number, array)}


@check
def deterministic() -> Any:
    """Twice the same bits."""
    given = [*qkv(heads=8, length=2048), jnp.linspace(0.01, 0.1, 8)]
    call = kernel(SLOPED)
    ours = lambda *x: call(*x[:3], slope=x[3], layout="bshd", deterministic=True)  # noqa: E731
    first = gradients(ours, given)
    runs = [named(gradients(ours, given), first) for _ in range(3)]
    return {f"run {number}, {name}": pair for number, run in enumerate(runs) for name, pair in run.items()}


@check
def replayed() -> Any:
    """A program of several calls, run again and again on other values: XLA may replay a CUDA graph of it."""
    q, k, v = qkv(heads=32, length=4096)
    call = kernel("causal")
    ours = jax.jit(lambda q, k, v: call(call(q, k, v, layout="bshd"), k, v, layout="bshd"))
    found = {}
    for run in range(6):
        scaled = q * (1 + run)
        first = attention(scaled[:, :512], k[:, :512], v[:, :512]).astype(q.dtype)
        found[f"run {run}"] = ours(scaled, k, v)[:, :512], attention(first, k[:, :512], v[:, :512])
    return found


@check
def decoded_again() -> Any:
    """Decode kernels one after the other, in a program that XLA may replay as a graph: each finds its counters at 0."""
    q, k, v = arrays((9, 1, 4, 128), (9, 8192, 2, 128), (9, 8192, 2, 128))
    call = kernel("causal")

    def chain(attend: Callable[..., Any], q: Any) -> Any:
        for _ in range(4):
            q = attend(q, k, v).astype(q.dtype) + q
        return q

    ours = jax.jit(lambda q: chain(lambda *x: call(*x, layout="bshd"), q))
    return {f"run {run}": (ours(q * (1 + run)), chain(attention, q * (1 + run))) for run in range(4)}


def relative_error(found: Any, wanted: Any) -> float:
    """RMS of the difference over that of what is wanted."""
    found, wanted = (np.asarray(x).astype(np.float64) for x in (found, wanted))
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def errors(name: str) -> dict[str, float]:
    return {what: relative_error(*pair) for what, pair in CHECKS[name]().items()}


def timed(what: str, run: Callable[..., Any], *given: Any) -> Any:
    begin = time.perf_counter()
    found = run(*given)
    print(f"{what}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    timed("kernels", compile_all)
    print(json.dumps({name: timed(name, errors, name) for name in CHECKS}))
