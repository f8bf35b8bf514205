"""Calls that torch records: gradients, torch.compile, autocast, checkpoints, seeds. On the CPU executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attncc
from attncc.diagnostics import AttnccError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

EVERYTHING = """attn 1
variant recorded {
    input slope: f32[head] learnable
    input cap:   f32 learnable
    input doc:   i32[batch, pos]
    input logit: f32[head] learnable
    input rate:  f32

    keep if q_pos >= kv_idx
    keep if doc[b, q_pos] == doc[b, kv_idx]
    score = cap * tanh((score - slope[h] * (q_pos - kv_idx)) / cap)
    sink logit
    dropout rate
}
"""
SIGMOID = "attn 1\nvariant recorded_sigmoid {\n normalize sigmoid\n keep if q_pos >= kv_idx\n}"
TABLES = """attn 1\nvariant recorded_tables {
    input table: f32[kv_head, 2, _, 3] learnable
    keep if kv_idx > q_idx - 4 and q_idx != 2
    score = score + table[kv_h, q_idx % 2, kv_idx, q_idx % 3]\n}"""
DROPPED = "attn 1\nvariant recorded_dropped {\n dropout 0.5\n}"
ROWS = 6


def kernel(source: str = EVERYTHING, dtype: str = "fp64") -> attncc.Kernel:
    return attncc.compile(source, dtype=dtype, head_dim=16)


def operands(dtype: Any = torch.float64, rows: int = ROWS, batch: int = 1) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((batch, 2, rows, 16), (batch, 1, rows, 16), (batch, 1, rows, 16))
    return tuple(torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes)


def inputs(dtype: Any = torch.float64, rows: int = ROWS, batch: int = 1) -> dict[str, Any]:
    return {
        "slope": torch.linspace(0.1, 0.4, 2, dtype=dtype).requires_grad_(),
        "cap": torch.tensor(3.0, dtype=dtype, requires_grad=True),
        "doc": (torch.arange(rows, dtype=torch.int32) // 4).expand(batch, rows).contiguous(),
        "logit": torch.linspace(-1, 1, 2, dtype=dtype).requires_grad_(),
        "rate": 0.25,
    }


def learned(given: dict[str, Any]) -> list[Any]:
    return [value for value in given.values() if getattr(value, "requires_grad", False)]


def gradients(call: Callable[..., Any], dtype: Any = torch.float64, **more: Any) -> list[Any]:
    """What one call and its backward pass give, from fresh leaves."""
    q, k, v = operands(dtype)
    given = {**inputs(torch.float32 if dtype != torch.float64 else dtype), **more}
    out = call(q, k, v, **given)
    leaves = [q, k, v, *learned(given)]
    return [out.detach(), *torch.autograd.grad((out.double() ** 2).sum(), leaves)]


def alike(one: list[Any], other: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# -------------------------------------------------------------------- gradients


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_gradcheck_of_all_that_is_learnable_and_of_lse(layout: str) -> None:
    given = inputs()
    names = [name for name, value in given.items() if getattr(value, "requires_grad", False)]

    def call(q: Any, k: Any, v: Any, *values: Any) -> Any:
        own = {**given, **dict(zip(names, values, strict=True))}
        if layout == "bshd":
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return kernel()(q, k, v, **own, seed=5, return_lse=True, layout=layout)

    leaves = (*operands(), *(given[name] for name in names))
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)


def test_gradcheck_without_softmax() -> None:
    assert torch.autograd.gradcheck(kernel(SIGMOID), operands(), fast_mode=True)


def test_gradcheck_of_a_table_an_empty_row_and_wider_values() -> None:
    (q, k, v), own = operands(), attncc.compile(TABLES, dtype="fp64", head_dim=16, value_head_dim=24)
    wide = torch.cat([v.detach()] * 3, -1)[..., ::2].cos().requires_grad_()
    table = torch.arange(36.0, dtype=torch.float64).sin().reshape(1, 2, ROWS, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda *x: own(*x[:3], table=x[3]), (q, k, wide, table), fast_mode=True)


def test_gradcheck_of_packed_batches() -> None:
    starts = torch.tensor([0, 2, 6], dtype=torch.int32)
    doc = torch.zeros(6, dtype=torch.int32)
    given = {**inputs(), "doc": doc}

    def call(q: Any, k: Any, v: Any, slope: Any) -> Any:
        own = {**given, "slope": slope}
        return kernel()(q, k, v, **own, seed=5, cu_seqlens_q=starts, cu_seqlens_kv=starts)

    flat = tuple(x.detach()[0].requires_grad_() for x in operands())
    assert torch.autograd.gradcheck(call, (*flat, given["slope"]), fast_mode=True)


def test_lse_alone_has_a_gradient() -> None:
    q, k, v = operands()
    _, lse = kernel(SIGMOID.replace("normalize sigmoid", ""))(q, k, v, return_lse=True)
    dq, dv = torch.autograd.grad(lse.sum(), (q, v), allow_unused=True, materialize_grads=True)
    assert dq.any()
    assert not dv.any()


def test_only_what_is_wanted_is_returned() -> None:
    q, k, v = (x.detach() for x in operands())
    given = inputs()
    out = kernel()(q, k, v, **{**given, "cap": 3.0}, seed=1)
    out.sum().backward()
    assert given["slope"].grad.any()
    assert q.grad is None


def test_without_gradients_nothing_is_recorded() -> None:
    with torch.no_grad():
        assert kernel()(*operands(), **inputs(), seed=1).grad_fn is None
    detached = {name: getattr(value, "detach", lambda value=value: value)() for name, value in inputs().items()}
    assert kernel()(*(x.detach() for x in operands()), **detached, seed=1).grad_fn is None


def test_expanded_gradients_and_inputs_of_the_plain_call() -> None:
    """`sum` hands on a gradient of stride 0; the results are those of the call that isn't recorded, bit for bit."""
    recorded = gradients(lambda *args, **given: kernel()(*args, **given, seed=3))[0]
    with torch.no_grad():
        assert torch.equal(recorded, kernel()(*operands(), **inputs(), seed=3))


def test_the_functional_interface_of_torch() -> None:
    q, k, v = operands()

    def loss(q: Any, k: Any, v: Any) -> Any:
        return kernel(SIGMOID)(q, k, v).square().sum()

    found = torch.func.grad(loss, argnums=(0, 1, 2))(*(x.detach() for x in (q, k, v)))
    assert alike(list(found), list(torch.autograd.grad(loss(q, k, v), (q, k, v))))


# -------------------------------------------------------------------- what is refused


def test_a_gradient_is_never_lost_silently() -> None:
    given = {**inputs(), "rate": torch.tensor(0.25, dtype=torch.float64, requires_grad=True)}
    with pytest.raises(AttnccError, match=r"A652.*`rate`"):
        kernel()(*operands(), **given, seed=1)
    q, k, v = operands()
    with pytest.raises(AttnccError, match="A652"):
        kernel()(q, k, v, **inputs(), seed=1, out=torch.empty_like(q))


def test_gradients_over_pages_and_packed_queries_of_a_cache_are_refused_when_called() -> None:
    """Not by the backward pass, whose user doesn't see the call."""
    own = kernel(SIGMOID, "fp32")
    lens, table = torch.tensor([5], dtype=torch.int32), torch.arange(3, dtype=torch.int32)[None]
    q, pool = torch.randn(1, 2, 1, 16), torch.randn(3, 1, 4, 16)
    given: dict[str, Any] = {"kv_lens": lens, "block_table": table}
    out = own(q, pool, pool, **given)
    with pytest.raises(AttnccError, match=r"A652.*over pages has no gradients"):
        own(q.requires_grad_(), pool, pool, **given)
    with torch.no_grad():
        assert torch.equal(own(q, pool, pool, **given), out)
    starts = torch.tensor([0, 1], dtype=torch.int32)
    with pytest.raises(AttnccError, match=r"A652.*packed queries and a cache"):
        own(q[0], pool[:1], pool[:1], kv_lens=lens - 1, cu_seqlens_q=starts)
    own(q, pool[:1], pool[:1], kv_lens=lens - 1).sum().backward()
    assert q.grad is not None


def squares(q: Any) -> Any:
    """Of a call, and of its gradients."""
    given = {name: getattr(value, "detach", lambda value=value: value)() for name, value in inputs().items()}
    _, k, v = operands()
    out = kernel()(q, k.detach(), v.detach(), **given, seed=1)
    (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    return out, dq.square().sum()


def test_second_derivatives_are_refused_and_not_0() -> None:
    q = operands()[0]
    with pytest.raises(AttnccError, match="A652"):
        torch.autograd.grad(squares(q)[1], q, allow_unused=True)
    out, penalty = squares(q)
    with pytest.raises(AttnccError, match="A652"):
        (out.sum() + penalty).backward()
    with pytest.raises(AttnccError, match="A652"):
        torch.autograd.functional.hessian(lambda q: squares(q)[0].square().sum(), q)
    own = kernel(SIGMOID)
    compiled = torch.compile(lambda q: own(q, q[:, :1], q[:, :1]), backend="eager")
    (dq,) = torch.autograd.grad(compiled(q).sum(), q, create_graph=True)
    with pytest.raises(AttnccError, match="A652"):
        torch.autograd.grad(dq.sum(), q)


def test_second_derivatives_of_the_functional_interface_are_refused() -> None:
    def slope(q: Any) -> Any:
        return torch.func.grad(lambda q: kernel(SIGMOID)(q, q[:, :1], q[:, :1]).square().sum())(q)

    q = operands()[0].detach()
    assert slope(q).any()
    with pytest.raises(AttnccError, match="A652"):
        torch.func.grad(lambda q: slope(q).square().sum())(q)


def test_transforms_and_tangents_are_refused() -> None:
    q = operands()[0].detach()
    for transform in (
        lambda call: torch.vmap(call)(torch.stack([q, q])),
        lambda call: torch.func.jvp(call, (q,), (q,)),
    ):
        with pytest.raises(AttnccError, match="A650"):
            transform(lambda q: kernel(SIGMOID)(q, q[:, :1], q[:, :1]))
    for grad in (True, False):
        with torch.autograd.forward_ad.dual_level(), pytest.raises(AttnccError, match="A652"):
            dual = torch.autograd.forward_ad.make_dual(operands()[0].detach().requires_grad_(grad), q)
            kernel(SIGMOID)(dual, q[:, :1], q[:, :1])


def test_a_scale_that_requires_a_gradient_is_refused_as_in_any_call() -> None:
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    with pytest.raises(AttnccError, match="A619"):
        kernel(SIGMOID)(*operands(), scale=scale)


def test_kernels_of_8_bits_record_nothing() -> None:
    own = attncc.compile(
        "attn 1\nvariant eight {\n input slope: f32[head] learnable\n score = score * slope[h]\n}",
        dtype="e4m3",
        head_dim=64,
    )
    q = torch.randn(1, 2, 8, 64).to(torch.float8_e4m3fn)
    ones = torch.ones(2)
    with pytest.raises(AttnccError, match=r"A652.*e4m3"):
        own(q, q, q, slope=ones.requires_grad_())
    with pytest.raises(AttnccError, match=r"A652.*e4m3"):
        own(q.clone().requires_grad_(), q, q, slope=ones.detach())
    with torch.no_grad():
        expected = own(q, q, q, slope=ones)
    compiled = torch.compile(lambda q, slope: own(q, q, q, slope=slope), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, ones.detach()), expected)


BAD = [
    {"slope": None}, {"slope": torch.ones(3)}, {"doc": np.zeros((1, ROWS), np.int32)}, {"cap": True}, {"other": 1},
    {"scale": "big"}, {"layout": "sbhd"}, {"layout": 3}, {"seed": "x"}, {"cu_seqlens_q": [0, ROWS]}, {"seed": 2**65},
    {"seed": -(2**63) - 1}, {"scale": torch.tensor(0.5)}, {"scale": float("inf")},
    {"doc": torch.zeros(1, ROWS, requires_grad=True)},
]  # fmt: skip


@pytest.mark.parametrize("changed", BAD, ids=str)
def test_bad_arguments_are_named_as_in_any_call(changed: dict[str, Any]) -> None:
    given = {**inputs(), "seed": 1, **changed}
    with pytest.raises(AttnccError) as recorded:
        kernel()(*operands(), **given)
    with pytest.raises(AttnccError) as plain, torch.no_grad():
        kernel()(*operands(), **given)
    assert str(recorded.value) == str(plain.value)


def test_lse_without_softmax() -> None:
    with pytest.raises(AttnccError, match="A614"):
        kernel(SIGMOID)(*operands(), return_lse=True)


def compiled_call(own: attncc.Kernel, more: dict[str, Any], *, fullgraph: bool) -> Any:
    torch._dynamo.reset()
    return torch.compile(lambda q, k, v, given: own(q, k, v, **given, **more), fullgraph=fullgraph, backend="eager")


@pytest.mark.parametrize("changed", BAD, ids=str)
def test_bad_arguments_of_compiled_calls(changed: dict[str, Any]) -> None:
    """Where the graph must not break, torch's error has the code, if it isn't the error itself."""
    whole = {**inputs(), "seed": 1, **changed}
    with pytest.raises(AttnccError) as plain:
        kernel()(*operands(), **whole)
    given = {name: whole.pop(name) for name in inputs() if name not in changed}
    with pytest.raises(Exception, match=plain.value.diagnostics[0].code):
        compiled_call(kernel(), whole, fullgraph=True)(*operands(), given)


@pytest.mark.parametrize("changed", [{"other": 1}, {"cap": True}], ids=str)
def test_bad_arguments_break_the_graph_and_are_named_as_in_any_call(changed: dict[str, Any]) -> None:
    given = {**inputs(), "seed": 1}
    with pytest.raises(AttnccError) as plain:
        kernel()(*operands(), **{**given, **changed})
    given = {name: value for name, value in given.items() if name not in changed}
    with pytest.raises(AttnccError) as broken:
        compiled_call(kernel(), changed, fullgraph=False)(*operands(), given)
    assert str(broken.value) == str(plain.value)


def test_compiled_calls_with_too_little_and_too_much() -> None:
    given = inputs()
    del given["slope"]
    with pytest.raises(AttnccError, match=r"A607.*`slope`"):
        compiled_call(kernel(), {"seed": 1}, fullgraph=False)(*operands(), given)
    for more, code in (({"return_lse": True}, "A614"), ({"stream": 7}, "A651")):
        with pytest.raises(Exception, match=code):
            compiled_call(kernel(SIGMOID), more, fullgraph=True)(*operands(), {})
    q, k, v = (x.detach() for x in operands())
    out = torch.empty_like(q)
    assert compiled_call(kernel(SIGMOID), {"out": out}, fullgraph=False)(q, k, v, {}) is out
    assert torch.equal(out, kernel(SIGMOID)(q, k, v))


# -------------------------------------------------------------------- seeds


def test_seeds_come_from_torchs_generator() -> None:
    q, k, v = (x.detach() for x in operands())

    def drawn(seed: int) -> Any:
        torch.manual_seed(seed)
        return kernel(DROPPED)(q, k, v)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert not torch.equal(kernel(DROPPED)(q, k, v), kernel(DROPPED)(q, k, v))


def test_the_backward_pass_drops_what_the_forward_pass_dropped() -> None:
    torch.manual_seed(3)
    q, k, v = operands()
    (dv,) = torch.autograd.grad(kernel(DROPPED)(q, k, v).sum(), v)
    torch.manual_seed(3)
    seed = torch.randint(2**63 - 1, (), dtype=torch.int64)
    (expected,) = torch.autograd.grad(kernel(DROPPED)(q, k, v, seed=seed).sum(), v)
    assert torch.equal(dv, expected)


@pytest.mark.parametrize("seed", [2**64 - 1, -1, 2**63])
def test_seeds_of_64_bits(seed: int) -> None:
    recorded = gradients(lambda *args, **given: kernel()(*args, **given, seed=seed))[0]
    with torch.no_grad():
        assert torch.equal(recorded, kernel()(*operands(), **inputs(), seed=seed))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_replay_dropout(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def plain(*args: Any, **given: Any) -> Any:
        torch.manual_seed(4)
        return kernel()(*args, **given)

    def again(q: Any, k: Any, v: Any, **given: Any) -> Any:
        torch.manual_seed(4)
        values = list(given.values())

        def own(q: Any, k: Any, v: Any, *values: Any) -> Any:
            return kernel()(q, k, v, **dict(zip(given, values, strict=True)))

        return checkpoint(own, q, k, v, *values, use_reentrant=reentrant)

    if reentrant:  # it can't be asked for the gradients of chosen leaves
        (q, k, v), given = operands(), inputs()
        again(q, k, v, **given).square().sum().backward()
        found = [x.grad for x in (q, k, v, *learned(given))]
        assert alike(found, gradients(plain)[1:])
    else:
        assert alike(gradients(again), gradients(plain))


# -------------------------------------------------------------------- torch.compile, autocast


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_a_graph_break(backend: str) -> None:
    own = attncc.compile(EVERYTHING.replace("recorded", f"first_{backend}"), dtype="fp64", head_dim=16)

    def model(q: Any, k: Any, v: Any, **given: Any) -> Any:
        return own(q * 2, k, v, seed=7, **given) * 0.5

    compiled = torch.compile(model, fullgraph=True, backend=backend)  # the kernel's first call
    assert alike(gradients(compiled), gradients(model))


def test_compiled_calls_without_gradients_and_with_drawn_seeds() -> None:
    def model(q: Any, k: Any, v: Any) -> Any:
        return kernel(DROPPED)(q, k, v)

    own = kernel(DROPPED)
    compiled = torch.compile(lambda q, k, v: own(q, k, v, return_lse=True), fullgraph=True, backend="aot_eager")
    q, k, v = (x.detach() for x in operands())
    torch.manual_seed(2)
    out, lse = compiled(q, k, v)
    torch.manual_seed(2)
    assert torch.equal(out, model(q, k, v))
    assert lse.shape == (1, 2, ROWS)


def test_compiled_for_any_length() -> None:
    own = kernel(SIGMOID)
    compiled = torch.compile(lambda q, k, v: own(q, k, v).sum(), fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (5, 8, 13):
        q, k, v = operands(rows=rows)
        compiled(q, k, v).backward()
        expected = torch.autograd.grad(own(q, k, v).sum(), q)[0]
        torch.testing.assert_close(q.grad, expected, rtol=0, atol=0)


def test_compiled_for_any_number() -> None:
    own = kernel()
    q, k, v = operands()
    given = inputs()
    compiled = torch.compile(
        lambda seed, scale, rate: own(q, k, v, **{**given, "rate": rate}, seed=seed, scale=scale),
        fullgraph=True, backend="eager", dynamic=True,
    )  # fmt: skip
    for seed, scale, rate in ((5, 0.5, 0.25), (-7, 2, 0.5)):
        assert torch.equal(compiled(seed, scale, rate), own(q, k, v, **{**given, "rate": rate}, seed=seed, scale=scale))


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    own = kernel(SIGMOID)

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return own(q, k, v)

    exported = torch.export.export(Model(), operands(), strict=strict)
    assert torch.equal(exported.module()(*operands()), own(*operands()))


@pytest.mark.parametrize("grad", [True, False])
def test_autocast(grad: bool) -> None:
    own = kernel(dtype="bf16")
    q, k, v = operands(torch.float32)
    given = inputs(torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(grad):
        out = own(q, k, v, **given, seed=1)
    assert out.dtype == torch.bfloat16
    with torch.no_grad():
        plain = own(*(x.bfloat16() for x in (q, k, v)), **given, seed=1)
    assert torch.equal(out, plain)
    if grad:
        out.float().sum().backward()
        assert q.grad.dtype == given["slope"].grad.dtype == torch.float32


@pytest.mark.parametrize("grad", [True, False])
def test_autocast_to_a_type_that_was_not_built(grad: bool) -> None:
    own = kernel(dtype="bf16")
    refused = pytest.raises(AttnccError, match=r"(?s)A604.*autocast.*dtype=torch.bfloat16")
    with torch.autocast("cpu", torch.float16), torch.set_grad_enabled(grad), refused:
        own(*operands(torch.float32), **inputs(torch.float32), seed=1)
    single = kernel(SIGMOID, "fp32")  # as it is without autocast
    with torch.autocast("cpu", torch.float16), torch.set_grad_enabled(grad):
        assert single(*operands(torch.float32)).dtype == torch.float32


def test_what_calls_write_in_place_can_not_be_differentiated_through() -> None:
    """As of torch's own operators in place: a graph that saved the tensor before is refused."""
    q, k, v = (x.detach() for x in operands())
    given = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in inputs().items()}
    caches = [torch.zeros(1, 1, ROWS, 16) for _ in range(2)]
    new, lens = torch.ones(1, 1, 1, 16), torch.tensor([3], dtype=torch.int32)
    out = torch.zeros_like(q)
    for written, write in (
        (out, lambda: kernel()(q, k, v, **given, seed=1, out=out)),
        (caches[0], lambda: attncc.append(*caches, new, new, lens)),
        (caches[1], lambda: attncc.append(*caches, new, new, lens)),
    ):
        product = torch.ones_like(written).requires_grad_() * written
        write()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()
    with torch.inference_mode():  # such tensors have no account of changes
        inferred = torch.empty_like(q)
        assert kernel()(q, k, v, **given, seed=1, out=inferred) is inferred
