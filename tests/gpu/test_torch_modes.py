"""What torch itself runs or watches, on a GPU: functional gradients, traces, dispatch modes, tensors without memory."""

from __future__ import annotations

from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CAUSAL = "attn 1\nvariant watched {\n keep if q_pos >= kv_idx\n}"


def attention(*tensors: Any) -> Any:
    return attncc.compile(CAUSAL, dtype="bf16", head_dim=64)(*tensors)


def operands(seed: int = 0) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    return tuple(torch.randn(2, 4, 200, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))


@pytest.fixture(autouse=True)
def _guarded() -> None:
    """Calls that are alike are known by a guard."""
    for _ in range(3):
        attention(*operands())


def test_the_functional_interface_of_torch() -> None:
    q, k, v = operands()
    found = torch.func.grad(lambda *given: attention(*given).float().square().sum(), argnums=(0, 1, 2))(q, k, v)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    expected = torch.autograd.grad(attention(*leaves).float().square().sum(), leaves)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * other.abs().max().item())
    with pytest.raises(attncc.AttnccError, match="A650"):
        torch.vmap(attention)(*(torch.stack([x, x]) for x in operands()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_runs_on_other_tensors() -> None:
    traced = torch.jit.trace(attention, operands(), check_trace=False)
    assert torch.equal(traced(*operands(1)), attention(*operands(1)))


def test_modes_see_an_operator() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):  # type: ignore[misc]  # torch's types aren't read here
        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(operator))
            return operator(*args, **(kwargs or {}))

    seen: list[str] = []
    given = operands()
    with Names():
        out = attention(*given)
    assert any("attncc.watched" in name for name in seen)
    assert torch.equal(out, attention(*given))


def test_fake_tensors_launch_nothing() -> None:
    """Their pointers are null."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        out = attention(*(torch.empty(2, 4, 200, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)))
    assert (out.shape, out.device.type) == ((2, 4, 200, 64), "cuda")
    torch.cuda.synchronize()
    assert torch.equal(attention(*operands()), attention(*operands()))


def test_tangents_are_refused_after_calls_without() -> None:
    q, k, v = operands()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(attncc.AttnccError, match="tangent"):
        attention(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)), k, v)


def test_modes_see_what_is_wrong() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    q, k, v = operands()
    with FlopCounterMode(display=False), pytest.raises(attncc.AttnccError, match="A608"):
        attncc.compile(CAUSAL, dtype="bf16", head_dim=64)(q, k, v, slope=1.0)


def test_autograd_sees_that_out_was_written() -> None:
    kernel, (q, k, v) = attncc.compile(CAUSAL, dtype="bf16", head_dim=64), operands()
    for _ in range(4):
        out = torch.zeros_like(q)
        product = torch.ones_like(q).requires_grad_() * out
        assert kernel(q, k, v, out=out) is out
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()
