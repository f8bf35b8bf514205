"""The operators of a kernel, as torch's own checks of operators see them. On the CPU executor."""

from __future__ import annotations

from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")

from tests.unit.runtime.torch.test_autograd import inputs, kernel, operands  # noqa: E402


@pytest.mark.parametrize("transposed", [False, True])
def test_the_operator_passes_torchs_own_checks(transposed: bool) -> None:
    own, (q, k, v), given = kernel(), operands(batch=2), inputs(batch=2)
    if transposed:
        q, k = (x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in (q, k))
    own(q, k, v, **given, seed=1)
    from attncc.problem.call_arguments import Arguments
    from attncc.runtime.torch.autograd import operator_name
    from attncc.runtime.torch.torch_operator import flattened

    call = Arguments(q, k, v, given, seed=1)
    operator = getattr(torch.ops.attncc, operator_name(own.token)).default
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(operator, tuple(flattened(own.variant.inputs, call, False)), test_utils=tests)


def test_k_and_v_of_batch_1_have_the_sum_of_gradients() -> None:
    own, (q, k, v), given = kernel(), operands(batch=2), inputs(batch=2)
    dout = torch.linspace(-1, 1, q.numel(), dtype=q.dtype).reshape(q.shape)

    def gradients(k: Any, v: Any) -> Any:
        out = own(q, k, v, seed=3, **given)
        return out, *torch.autograd.grad(out, (q, k, v, given["slope"]), dout)

    one = [x.detach()[:1].requires_grad_() for x in (k, v)]
    repeated = [x.detach().expand(2, -1, -1, -1).requires_grad_() for x in one]
    out, dq, dk, dv, slope = gradients(*repeated)
    expected = out, dq, dk.sum(0, keepdim=True), dv.sum(0, keepdim=True), slope
    for found, wanted in zip(gradients(*one), expected, strict=True):
        assert found.shape == wanted.shape
        torch.testing.assert_close(found, wanted)


def test_head_dims_that_kernels_fill_up() -> None:
    own = attncc.compile("attn 1\nvariant odd {\n keep if q_pos >= kv_idx\n}", dtype="fp64", head_dim=5)
    q, k, v = (x.detach()[..., :5].contiguous().requires_grad_() for x in operands(batch=2))
    out = own(q, k, v)
    mask = torch.ones(out.shape[2], out.shape[2], dtype=torch.bool).tril()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(out, expected)
    found, wanted = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, expected))
    torch.testing.assert_close(found, wanted)
