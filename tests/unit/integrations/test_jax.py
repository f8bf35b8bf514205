"""`attncc.jax.wrap` under JAX's transforms on the CPU, against attention in jnp."""

# ruff: noqa: E731
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.diagnostics import AttnccError

jax = pytest.importorskip("jax")
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_disable_most_optimizations", True)  # programs run once: to compile them is what takes time

import jax.numpy as jnp  # noqa: E402  (after importorskip)
from jax.sharding import AxisType, PartitionSpec  # noqa: E402

import attncc.jax  # noqa: E402

BATCH, HEADS, KV_HEADS, Q_LEN, KV_LEN, D = 4, 4, 2, 6, 9, 12
SLOPED = """attn 1
variant sloped {
    input slope:  f32[head] learnable
    input cap:    f32 learnable
    input offset: i32[batch]
    input doc:    i32[batch, pos]
    let distance = q_pos - kv_idx + offset[b]
    keep if distance >= 0 and doc[b, q_pos] == doc[b, kv_idx]
    score = cap * tanh((score - slope[h] * distance) / cap)
}
"""
BIASED = "attn 1\nvariant biased { input bias: f32[batch, kv]  score = score + bias[b, kv_idx] }\n"
LEARNED_BIAS = BIASED.replace("[batch, kv] ", "[batch, kv] learnable ")
DROPPED = "attn 1\nvariant dropped { dropout 0.5 }\n"
PLAIN = "attn 1\nvariant plain {}\n"
SIGMOID = "attn 1\nvariant sigmoid { keep if q_pos >= kv_idx  normalize sigmoid }\n"
BY_SEQUENCE = "attn 1\nvariant by_sequence { keep if kv_idx >= b }\n"


@cache
def wrapped(source: str, dtype: str = "fp32") -> Any:
    return attncc.jax.wrap(attncc.compile(source, dtype=dtype, head_dim=D))


@jax.jit  # one program, where each operation would be one
def attention(q: Any, k: Any, v: Any, slope: Any, cap: Any) -> Any:
    """The variant `sloped` in layout bhsd, of one document."""
    k, v = (jnp.repeat(x, HEADS // KV_HEADS, 1) for x in (k, v))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision="highest") * D**-0.5
    distance = jnp.arange(Q_LEN)[:, None] + KV_LEN - Q_LEN - jnp.arange(KV_LEN)
    scores = cap * jnp.tanh((scores - slope[:, None, None] * distance) / cap)
    scores = jnp.where((distance >= 0) & (_DOC[KV_LEN - Q_LEN :, None] == _DOC), scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, -1)
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.exp(scores - lse[..., None]), v, precision="highest"), lse


_DOC = jnp.arange(KV_LEN) // 4
OFFSET, DOC = jnp.zeros(BATCH, jnp.int32), jnp.broadcast_to(_DOC, (BATCH, KV_LEN))


@cache
def operands(dtype: Any = jnp.float32) -> tuple[Any, ...]:
    shapes = (BATCH, HEADS, Q_LEN, D), (BATCH, KV_HEADS, KV_LEN, D), (BATCH, KV_HEADS, KV_LEN, D)
    keys = jax.random.split(jax.random.key(0), 3)
    arrays = (jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes, strict=True))
    return *arrays, jnp.linspace(0.1, 0.4, HEADS), jnp.float32(3.0)


def ours(q: Any, k: Any, v: Any, slope: Any, cap: Any, **given: Any) -> Any:
    inputs = {"offset": OFFSET[: len(q)], "doc": DOC[: len(q)], **given}
    return wrapped(SLOPED)(q, k, v, slope=slope, cap=cap, return_lse=True, **inputs)


def loss(function: Callable[..., Any]) -> Callable[..., Any]:
    def of(*given: Any) -> Any:
        out, lse = function(*given)
        return jnp.sum(jnp.sin(3 * out)) + jnp.sum(jnp.cos(lse))

    return of


def assert_close(found: Any, wanted: Any, tolerance: float = 2e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), found, wanted)


ALL = (0, 1, 2, 3, 4)


@pytest.mark.parametrize("through", [lambda f: f, jax.jit, jax.checkpoint], ids=["eager", "jit", "checkpoint"])
def test_values_and_gradients_are_those_of_attention(through: Any) -> None:
    given = operands()
    assert_close(through(ours)(*given), attention(*given))
    assert_close(jax.grad(loss(through(ours)), ALL)(*given), jax.grad(loss(attention), ALL)(*given))
    assert_close(jax.jit(jax.grad(loss(through(ours)), ALL))(*given), jax.grad(loss(attention), ALL)(*given))


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, lambda function: jax.grad(lambda q: function(q).sum())])
def test_a_kernel_that_is_not_wrapped_says_so(transform: Any) -> None:
    kernel, q = attncc.compile("causal", dtype="fp32", head_dim=D), jnp.ones((1, 2, 8, D))
    with pytest.raises(AttnccError, match=r"A650(.|\n)*attncc.jax.wrap"):
        transform(lambda q: kernel(q, q, q))(q[None] if transform is jax.vmap else q)


def test_gradients_of_one_operand_alone() -> None:
    given = operands()
    assert_close(jax.grad(loss(ours), 3)(*given), jax.grad(loss(attention), 3)(*given))
    alone = jax.grad(lambda q: ours(q, *given[1:])[0].sum())(given[0])
    assert_close(alone, jax.grad(lambda q: attention(q, *given[1:])[0].sum())(given[0]))
    of_lse = jax.grad(lambda q: ours(q, *given[1:])[1].sum())(given[0])
    assert_close(of_lse, jax.grad(lambda q: attention(q, *given[1:])[1].sum())(given[0]))


def test_in_a_scan() -> None:
    q, k, v, slope, cap = operands()

    def twice(function: Any) -> Any:
        def total(q: Any, slope: Any) -> Any:
            step = lambda x, _: (function(x, k, v, slope, cap)[0], None)
            return jnp.sin(jax.lax.scan(step, q, length=2)[0]).sum()

        return jax.grad(total, (0, 1))(q, slope)

    assert_close(twice(ours), twice(attention))


def test_layout_bshd_is_jax_own() -> None:
    q, k, v, *learned = operands()
    swapped = [x.swapaxes(1, 2) for x in (q, k, v)]
    out, lse = ours(*swapped, *learned, layout="bshd")
    assert_close((out.swapaxes(1, 2), lse), attention(q, k, v, *learned))
    plain = wrapped(PLAIN)(*swapped, layout="bshd", scale=0.5)
    assert_close(plain, jax.nn.dot_product_attention(*swapped, scale=0.5))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bf16", 0.02), ("fp16", 0.003)])
def test_other_dtypes(dtype: str, tolerance: float) -> None:
    given = operands({"bf16": jnp.bfloat16, "fp16": jnp.float16}[dtype])
    exact = operands()
    found = wrapped(SLOPED, dtype)(*given[:3], slope=given[3], cap=given[4], offset=OFFSET, doc=DOC)
    assert found.dtype == given[0].dtype
    assert_close(found.astype(jnp.float32), attention(*exact)[0], tolerance)
    f = lambda q, slope: wrapped(SLOPED, dtype)(
        q, *given[1:3], slope=slope, cap=given[4], offset=OFFSET, doc=DOC
    ).astype(jnp.float32)
    dq, dslope = jax.grad(lambda q, s: jnp.sin(f(q, s)).sum(), (0, 1))(given[0], given[3])
    assert (dq.dtype, dslope.dtype) == (given[0].dtype, jnp.float32)
    wanted = jax.grad(lambda q, s: jnp.sin(attention(q, *exact[1:3], s, exact[4])[0]).sum(), (0, 1))(exact[0], exact[3])
    assert_close((dq.astype(jnp.float32), dslope), wanted, 10 * tolerance)


def test_e4m3_has_values_and_no_gradients() -> None:
    kernel = attncc.jax.wrap(attncc.compile(PLAIN, dtype="e4m3", head_dim=16))
    q, k, v = (jnp.ones((1, 1, 4, 16), jnp.float8_e4m3fn) for _ in range(3))
    out = jax.jit(kernel)(q, k, v, v_descale=jnp.full((1, 1), 2.0))
    assert out.dtype == jnp.bfloat16 and (out == 2).all()
    with pytest.raises(AttnccError, match="A652"):
        jax.grad(lambda x: kernel(x.astype(q.dtype), k, v).astype(jnp.float32).sum())(jnp.ones(q.shape))


def test_shared_keys_and_values_get_the_sum_of_gradients() -> None:
    q, k, v, *learned = operands()
    k, v = k[:1], v[:1]

    def function(of: Any) -> Any:
        return jax.grad(lambda k, v: loss(of)(q, k, v, *learned), (0, 1))(k, v)

    repeated = lambda q, k, v, *rest: attention(q, *(jnp.broadcast_to(x, (BATCH, *x.shape[1:])) for x in (k, v)), *rest)
    assert_close(function(ours), function(repeated))


def test_packed_batches() -> None:
    starts = jnp.array([0, 2, 5, 5], jnp.int32)
    q, k, v = (jax.random.normal(jax.random.key(i), (2, 6, D)) for i in range(3))
    kernel = wrapped(PLAIN)
    out = jax.jit(kernel)(q, k, v, cu_seqlens_q=starts, cu_seqlens_kv=starts)
    assert_close(out[:, 2:5], kernel(q[:, 2:5], k[:, 2:5], v[:, 2:5]))


def test_scalars_and_scale_may_be_numbers() -> None:
    q, k, v, slope, cap = operands()
    assert_close(ours(q, k, v, slope, 3.0), ours(q, k, v, slope, cap))
    assert_close(ours(q, k, v, slope, np.float32(3), scale=np.float32(D**-0.5)), ours(q, k, v, slope, cap))


def test_variants_without_softmax() -> None:
    q, k, v, *_ = operands()
    k, v = (jnp.repeat(x, HEADS // KV_HEADS, 1) for x in (k, v))
    kept = jnp.arange(Q_LEN)[:, None] + KV_LEN - Q_LEN >= jnp.arange(KV_LEN)

    def wanted(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision="highest") * D**-0.5
        return jnp.einsum("bhqk,bhkd->bhqd", kept * jax.nn.sigmoid(scores), v, precision="highest")

    total = lambda f: lambda *x: jnp.sin(f(*x)).sum()
    assert_close(wrapped(SIGMOID)(q, k, v), wanted(q, k, v))
    assert_close(jax.grad(total(wrapped(SIGMOID)), (0, 1, 2))(q, k, v), jax.grad(total(wanted), (0, 1, 2))(q, k, v))


# ------------------------------------------------------------------ vmap


def programs(function: Any, *given: Any) -> tuple[int, bool]:
    """How many calls a program has, and whether it has a loop."""
    text = str(jax.make_jaxpr(function)(*given))
    return text.count("attncc_forward[") + text.count("attncc_backward["), "scan[" in text


def test_vmap_folds_the_mapped_axis_into_the_batch() -> None:
    q, k, v, slope, cap = operands()
    one = lambda q, k, v, offset, doc: wrapped(SLOPED)(
        q, k, v, slope=slope, cap=cap, offset=offset, doc=doc, return_lse=True
    )
    mapped = jax.vmap(one)
    assert programs(mapped, q, k, v, OFFSET, DOC) == (1, False)
    assert_close(jax.jit(mapped)(q, k, v, OFFSET, DOC), attention(q, k, v, slope, cap))
    inner = jax.vmap(one, in_axes=(1, 1, 1, None, None), out_axes=1)
    pairs = [x.reshape(2, 2, *x.shape[1:]) for x in (q, k, v)]
    found = inner(*pairs, OFFSET[:2], DOC[:2])
    assert_close(found[0].reshape(q.shape), attention(q, k, v, slope, cap)[0])


def test_vmap_over_queries_alone_shares_keys_and_values() -> None:
    q, k, v, *_ = operands()
    function = jax.vmap(lambda q: wrapped(PLAIN)(q, k[:1], v[:1]))
    assert programs(function, q[:, None]) == (1, False) and "broadcast_in_dim" not in str(
        jax.make_jaxpr(function)(q[:, None])
    )
    assert_close(function(q[:, None])[:, 0], wrapped(PLAIN)(q, k[:1], v[:1]))


def test_gradients_under_vmap() -> None:
    given = operands()
    q, k, v, slope, cap = given
    rows = lambda f: (
        lambda q, k, v, slope, cap: f(*jax.vmap(lambda *x: ours(*(y[None] for y in x), slope, cap))(q, k, v))
    )
    total = rows(lambda out, lse: (jnp.sin(3 * out)).sum() + jnp.cos(lse).sum())
    assert_close(jax.grad(total, ALL)(*given), jax.grad(loss(attention), ALL)(*given))
    alone = q[:, None], k[:, None], v[:, None], slope, cap
    found, wanted = (jax.vmap(jax.grad(loss(f), ALL), in_axes=(0, 0, 0, None, None)) for f in (ours, attention))
    assert_close(found(*alone), wanted(*alone))


def test_gradients_under_vmap_fold_where_no_sum_is_lost() -> None:
    q, k, v, *_ = operands()
    bias = jax.random.normal(jax.random.key(7), (BATCH, KV_LEN))
    total = lambda q, k, v, bias: jnp.sin(wrapped(LEARNED_BIAS)(q, k, v, bias=bias)).sum()
    gradient = jax.grad(total, (0, 1, 2, 3))
    assert programs(jax.vmap(gradient), q, k, v, bias) == (2, False)
    assert_close(jax.vmap(gradient)(q, k, v, bias), gradient(q, k, v, bias))


@pytest.mark.parametrize("source", [BY_SEQUENCE, DROPPED])
def test_vmap_runs_one_by_one_where_a_larger_batch_is_another_call(source: str) -> None:
    q, k, v, *_ = operands()
    seed = {"seed": 5} if source is DROPPED else {}
    one = lambda q, k, v: wrapped(source)(q, k, v, **seed)
    mapped = jax.vmap(one)
    assert programs(mapped, q, k, v) == (1, True)
    wanted = jnp.stack([one(*row) for row in zip(q, k, v, strict=True)])
    assert_close(mapped(q, k, v), wanted)


def test_vmap_over_slopes_runs_one_by_one() -> None:
    q, k, v, slope, cap = operands()
    slopes = jnp.stack([slope, 2 * slope])
    found = jax.vmap(lambda slope: ours(q, k, v, slope, cap)[0])(slopes)
    assert_close(found, jnp.stack([attention(q, k, v, slope, cap)[0] for slope in slopes]))


# ------------------------------------------------------------------ shard_map


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_shard_map_over_the_batch(check: bool, kind: Any) -> None:
    given = operands()
    mesh, over = jax.make_mesh((2,), ("data",), axis_types=(kind,)), PartitionSpec("data")
    specs = (over, over, over, PartitionSpec(), PartitionSpec())
    sharded = jax.shard_map(ours, mesh=mesh, in_specs=specs, out_specs=over, check_vma=check)
    placed = [jax.device_put(x, jax.NamedSharding(mesh, spec)) for x, spec in zip(given, specs, strict=True)]
    assert_close(jax.jit(sharded)(*placed), attention(*given))
    found = jax.jit(jax.grad(loss(sharded), ALL))(*placed)
    assert_close(found, jax.grad(loss(attention), ALL)(*given))


def test_sharded_arrays_under_jit_alone() -> None:
    given = operands()
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    over = jax.NamedSharding(mesh, PartitionSpec("data"))
    placed = [jax.device_put(x, over) for x in given[:3]]
    assert_close(jax.jit(ours)(*placed, *given[3:]), attention(*given))


# ------------------------------------------------------------------ without a batch, and seeds


def test_one_sequence_may_leave_the_batch_out() -> None:
    q, k, v, slope, cap = operands()
    call = wrapped(SLOPED)
    rest = {"slope": slope, "cap": cap, "return_lse": True}
    found = call(q[0], k[0], v[0], offset=OFFSET[0], doc=DOC[0], **rest)
    assert_close(found, tuple(x[0] for x in attention(q, k, v, slope, cap)))


def test_a_seed_is_the_same_as_number_and_as_array() -> None:
    q, k, v, *_ = operands()
    kernel = wrapped(DROPPED)
    drop = jax.jit(lambda seed: kernel(q, k, v, seed=seed))
    assert_close(drop(jnp.int32(5)), kernel(q, k, v, seed=5))
    assert_close(drop(jnp.uint32(5)), kernel(q, k, v, seed=5))
    assert_close(drop(jnp.int32(-2)), kernel(q, k, v, seed=-2))
    keyed = drop(jax.random.key(1))
    assert not np.allclose(keyed, drop(jax.random.key(2))) and np.allclose(keyed, drop(jax.random.key(1)))


def test_the_backward_pass_drops_what_the_forward_pass_dropped() -> None:
    q, k, v, *_ = operands()
    function = lambda v: wrapped(DROPPED)(q, k, v, seed=jnp.int32(5))
    out, pull = jax.vjp(function, v)
    dout = jax.random.normal(jax.random.key(3), out.shape)
    np.testing.assert_allclose((out * dout).sum(), (v * pull(dout)[0]).sum(), rtol=1e-4)


# ------------------------------------------------------------------ refusals


def refused(code: str, function: Callable[[], Any]) -> None:
    with pytest.raises(AttnccError, match=code):
        function()


def test_refusals_come_while_jax_traces() -> None:
    q, k, v, slope, cap = operands()
    plain = wrapped(PLAIN)
    refused("A656", lambda: attncc.jax.wrap("causal"))
    refused("A604", lambda: jax.jit(plain)(q.astype(jnp.bfloat16), k, v))
    refused("A655", lambda: plain(q, k, v, out=q))
    refused("A608", lambda: plain(q, k, v, stream=None))
    refused("A618", lambda: plain(q, k, v, layout="bhds"))
    refused("A622", lambda: plain(q.tolist(), k, v))
    refused("A612", lambda: wrapped(DROPPED)(q, k, v))
    refused("A612", lambda: wrapped(DROPPED)(q, k, v, seed=jnp.float32(1)))
    refused("A619", lambda: jax.jit(lambda scale: plain(q, k, v, scale=scale))(0.5))
    refused("A614", lambda: wrapped(SIGMOID)(q, k, v, return_lse=True))
    refused("A614", lambda: plain(q, k, v, return_lse=jnp.ones(2)))
    refused("A614", lambda: jax.jit(lambda flag: plain(q, k, v, return_lse=flag))(True))
    refused("A614", lambda: plain(q, k, v, deterministic="yes"))
    refused("A607", lambda: wrapped(SLOPED)(q, k, v, slope=slope, cap=cap, doc=DOC))


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**32])
def test_numpys_int64_that_int32_does_not_hold(number: int) -> None:
    """JAX would give its low 32 bits."""
    q, k, v, slope, cap = operands()
    plain, wide = wrapped(PLAIN), np.full(BATCH, number)
    refused("A625", lambda: plain(q, k, v, kv_lens=wide))
    refused("A626", lambda: plain(q, k, v, q_offset=wide))
    refused("A626", lambda: jax.jit(lambda q: plain(q, k, v, q_offset=np.array(number)))(q))
    refused("A616", lambda: plain(q[0], k[0], v[0], cu_seqlens_q=wide, cu_seqlens_kv=wide))
    docs = np.full(DOC.shape, number)
    refused("A610", lambda: wrapped(SLOPED)(q, k, v, slope=slope, cap=cap, offset=OFFSET, doc=docs))
    assert_close(plain(q, k, v, kv_lens=np.full(BATCH, 3)), plain(q, k, v, kv_lens=np.full(BATCH, 3, np.int32)))


def test_gradients_that_would_be_lost_are_refused() -> None:
    q, k, v, *_ = operands()
    bias = jnp.zeros((BATCH, KV_LEN))
    total = lambda bias: wrapped(BIASED)(q, k, v, bias=bias).sum()
    refused("A652", lambda: jax.jit(jax.grad(total))(bias))
    assert jax.grad(lambda q: wrapped(BIASED)(q, k, v, bias=bias).sum())(q).shape == q.shape
    assert not jax.grad(lambda bias: total(jax.lax.stop_gradient(bias)))(bias).any()
    refused("A652", lambda: jax.hessian(lambda q: wrapped(PLAIN)(q, k, v).sum())(q))


def test_what_fails_while_a_program_runs_is_xlas_error_with_the_code() -> None:
    q, k, v = (jnp.zeros((2, 6, D)) for _ in range(3))
    starts = jnp.array([0, 4, 2], jnp.int32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="A616"):
        jax.jit(wrapped(PLAIN))(q, k, v, cu_seqlens_q=starts, cu_seqlens_kv=starts).block_until_ready()


UNKNOWN = """
import jax, numpy as np, attncc.jax
from attncc.jax.calls import TARGET
jax.config.update("jax_platforms", "cpu")
call = jax.ffi.ffi_call(TARGET, [jax.ShapeDtypeStruct((1,), np.float32)])
try:
    call(np.zeros(1, np.float32), call=np.int64(12))[0].block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print(error)
"""


def test_a_call_of_another_process_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", UNKNOWN], capture_output=True, text=True, check=True)
    assert "A657" in done.stdout


CACHED = """
import sys, jax, jax.numpy as jnp, attncc, attncc.jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if "cache_hits" in name else None)
attention = attncc.jax.wrap(attncc.compile("causal", dtype="fp32", head_dim=16))
x = jnp.ones((1, 1, 8, 16))
print(jax.jit(lambda x: attention(x, x, x) + 1)(x).sum(), len(hits))
"""


def test_programs_in_jax_persistent_cache_find_their_calls(tmp_path: Any) -> None:
    runs = [
        subprocess.run([sys.executable, "-c", CACHED, str(tmp_path)], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    (first, before), (second, after) = (run.stdout.split() for run in runs)
    assert float(first) == float(second) == 256 and int(before) < int(after)
