"""Calls that people make, on a GPU: transposed views, int64 arrays, shared keys, head dims of any size.

Each is held against a call of the same kernel in the plain form, or against torch in fp64.
"""

from __future__ import annotations

from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CAUSAL = "attn 1\nvariant adapted {\n keep if q_pos >= kv_idx\n}"
DOCUMENTS = """attn 1
variant adapted_documents {
    input doc: i32[batch, pos]
    keep if doc[b, q_pos] == doc[b, kv_idx]
}"""
BATCH, HEADS, KV_HEADS, ROWS = 3, 4, 2, 200


def operands(head_dim: int = 64, value_head_dim: int | None = None, dtype: Any = torch.bfloat16) -> list[Any]:
    torch.manual_seed(0)
    shapes = (HEADS, head_dim), (KV_HEADS, head_dim), (KV_HEADS, value_head_dim or head_dim)
    return [torch.randn(BATCH, n, ROWS, size, device="cuda").to(dtype).requires_grad_() for n, size in shapes]


def gradients(out: Any, *of: Any) -> tuple[Any, ...]:
    torch.manual_seed(1)
    found: tuple[Any, ...] = torch.autograd.grad(out, of, torch.randn(out.shape, device="cuda").to(out.dtype))
    return found


def transposed(tensor: Any) -> Any:
    """The same values, [batch, length, heads, head dim] in memory."""
    return tensor.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()


def test_out_and_gradients_have_the_order_of_their_operands() -> None:
    kernel, plain = attncc.compile(CAUSAL, dtype="bf16", head_dim=64), operands()
    turned = [transposed(x) for x in plain]
    out, expected = kernel(*turned), kernel(*plain)
    assert out.stride() == turned[0].stride() and torch.equal(out, expected)
    for found, wanted, of in zip(gradients(out, *turned), gradients(expected, *plain), turned, strict=True):
        assert found.stride() == of.stride()
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("head_dim", [64, 20])
def test_compiled_calls_agree_on_strides(head_dim: int) -> None:
    kernel = attncc.compile(CAUSAL, dtype="bf16", head_dim=head_dim)
    turned = [transposed(x) for x in operands(head_dim)]
    compiled = torch.compile(lambda q, k, v: kernel(q * 2, k, v).transpose(1, 2).flatten(2) * 2, fullgraph=True)
    expected = kernel(turned[0] * 2, *turned[1:]).transpose(1, 2).flatten(2) * 2
    out = compiled(*turned)
    torch.testing.assert_close(out, expected)
    for found, wanted in zip(gradients(out, *turned), gradients(expected, *turned), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_int64_arrays_stand_for_int32() -> None:
    kernel = attncc.compile(DOCUMENTS, dtype="bf16", head_dim=64)
    q, k, v = operands()
    doc = (torch.arange(ROWS, device="cuda") // 70).expand(BATCH, ROWS)
    assert doc.dtype == torch.int64
    narrow = doc.to(torch.int32)
    out, expected = kernel(q, k, v, doc=doc), kernel(q, k, v, doc=narrow)
    assert torch.equal(out, expected)
    for found, wanted in zip(gradients(out, q, k, v), gradients(expected, q, k, v), strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
    rows = [x.detach().transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    starts = torch.arange(BATCH + 1, device="cuda") * ROWS
    wide, thin = (
        kernel(*rows, layout="bshd", cu_seqlens_q=cu, cu_seqlens_kv=cu, doc=narrow.flatten())
        for cu in (starts, starts.to(torch.int32))
    )
    assert torch.equal(wide, thin)


def test_int64_arrays_in_a_graph() -> None:
    kernel = attncc.compile(DOCUMENTS, dtype="bf16", head_dim=64)
    kernel.load()
    q, k, v = (x.detach() for x in operands())
    doc = (torch.arange(ROWS, device="cuda") // 70).repeat(BATCH, 1)
    kernel(q, k, v, doc=doc)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(q, k, v, doc=doc)
    doc.copy_((torch.arange(ROWS, device="cuda") // 33).expand(BATCH, ROWS))  # the cast is part of the graph
    graph.replay()
    assert torch.equal(out, kernel(q, k, v, doc=doc.to(torch.int32)))


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_k_and_v_of_batch_1_serve_all_sequences(dtype: str) -> None:
    kernel = attncc.compile(CAUSAL, dtype=dtype, head_dim=64)
    q, k, v = operands(dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[dtype])
    k, v = (x.detach()[:1].requires_grad_() for x in (k, v))
    out = kernel(q, k, v)
    expected = kernel(q, k.expand(BATCH, -1, -1, -1), v.expand(BATCH, -1, -1, -1))
    assert torch.equal(out, expected)
    for found, wanted in zip(gradients(out, q, k, v), gradients(expected, q, k, v), strict=True):
        assert found.shape == wanted.shape
        torch.testing.assert_close(found, wanted, rtol=2e-2, atol=3e-2)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("head_dims", [(20, 20), (1, 1), (5, 130), (100, 36), (250, 250)])
def test_head_dims_of_any_size(dtype: str, head_dims: tuple[int, int]) -> None:
    kernel = attncc.compile(CAUSAL, dtype=dtype, head_dim=head_dims[0], value_head_dim=head_dims[1])
    own = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    q, k, v = operands(*head_dims, dtype=own)
    out = kernel(q, k, v)
    assert out.shape == (BATCH, HEADS, ROWS, head_dims[1])
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    mine = torch.empty(out.shape, dtype=out.dtype, device="cuda")
    with torch.no_grad():
        assert torch.equal(kernel(q, k, v, out=mine), out)
    scores = exact[0] @ exact[1].repeat_interleave(2, 1).mT * head_dims[0] ** -0.5
    hidden = torch.ones(ROWS, ROWS, dtype=torch.bool, device="cuda").triu(1)
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ exact[2].repeat_interleave(2, 1)
    tolerance = {"bf16": 3e-2, "fp16": 4e-3, "fp32": 2e-5}[dtype]
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    for found, wanted in zip(gradients(out, q, k, v), gradients(expected, *exact), strict=True):
        size = wanted.abs().max().item()
        torch.testing.assert_close(found.double() / size, wanted / size, rtol=tolerance, atol=tolerance)


def test_head_dims_in_8_bits() -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("kernels of e4m3 are for sm_90a")
    kernel = attncc.compile(CAUSAL, dtype="e4m3", head_dim=40)
    q, k, v = (x.detach().to(torch.float8_e4m3fn) for x in operands(40))
    out = kernel(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.float() for x in (q, k, v)), is_causal=True, enable_gqa=True
    )
    assert (out.dtype, out.shape) == (torch.bfloat16, q.shape)
    torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.1)
