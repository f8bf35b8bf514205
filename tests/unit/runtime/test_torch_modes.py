"""Calls that torch watches, or whose tensors have no memory, are operators; what compiled calls are made anew for."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attncc
from attncc.diagnostics import AttnccError
from attncc.runtime.frameworks.arrays import framework_of

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

import torch._dynamo.testing  # noqa: E402  (needs torch)
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch calls it

CAUSAL = "attn 1\nvariant watched {\n keep if q_pos >= kv_idx\n}"
RATED = """attn 1
variant rated {
    input rate:  f32
    input width: i32
    keep if q_pos - kv_idx < width
    dropout rate
}
"""


def kernel(source: str = CAUSAL) -> attncc.Kernel:
    return attncc.compile(source, dtype="fp32", head_dim=16)


def operands(seed: int = 0, rows: int = 6, *, grad: bool = False) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(1, 2, rows, 16, generator=generator).requires_grad_(grad) for _ in range(3))


def attention(*tensors: Any) -> Any:
    return kernel()(*tensors)


# -------------------------------------------------------------------- what records operators


class Names(TorchDispatchMode):  # type: ignore[misc]  # torch's types aren't read here
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(operator))
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("grad", [False, True])
def test_modes_see_an_operator(grad: bool) -> None:
    with Names() as names:
        out = attention(*operands(grad=grad))
    assert any("attncc.watched" in name for name in names.seen)
    assert torch.equal(out, attention(*operands()))


def names_an_operator(run: Callable[[], Any]) -> bool:
    """Whether torch's dispatcher saw an operator of ours. Its profiler sees all that goes through it."""
    with torch.profiler.profile() as profile:
        run()
    return any(event.name.startswith("attncc::watched") for event in profile.events())


@pytest.mark.parametrize("watched", ["forward", "backward", ""])
def test_what_nobody_watches_is_no_operator(watched: str) -> None:
    """The way through torch's dispatcher costs more time than the rest of a call."""

    def seen(name: str, run: Callable[[], Any]) -> bool:
        with Names() if name == watched else contextlib.nullcontext():
            return names_an_operator(run)

    leaves, dout = operands(grad=True), torch.ones(1, 2, 6, 16)
    assert seen("forward", lambda: attention(*leaves)) is (watched == "forward")
    out = attention(*leaves)
    assert seen("backward", lambda: out.backward(dout)) is (watched == "backward")


def test_the_gradients_of_wrapped_tensors_go_through_the_operator() -> None:
    leaves = [Wrapper(x.detach()).requires_grad_() for x in operands()]
    attention(*leaves).sum().backward()
    expected = operands(grad=True)
    attention(*expected).sum().backward()
    assert all(torch.equal(one.grad.inner, other.grad) for one, other in zip(leaves, expected, strict=True))


RECORDERS: dict[str, Callable[..., Any]] = {
    "jit.trace": lambda *given: torch.jit.trace(attention, given, check_trace=False),
    **{mode: lambda *given, mode=mode: make_fx(attention, tracing_mode=mode)(*given) for mode in ("real", "symbolic")},
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("recorder", RECORDERS)
def test_what_was_recorded_runs_on_other_tensors(recorder: str) -> None:
    recorded = RECORDERS[recorder](*operands())
    assert torch.equal(recorded(*operands(1)), attention(*operands(1)))


# -------------------------------------------------------------------- tensors without memory


class Wrapper(torch.Tensor):  # type: ignore[misc]
    """Stands for another tensor, as DTensor does."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        opened = tree_map(lambda x: x.inner if isinstance(x, Wrapper) else x, (args, kwargs or {}))
        result = operator(*opened[0], **opened[1])
        return tree_map(lambda x: Wrapper(x) if isinstance(x, torch.Tensor) else x, result)


def test_tensors_that_stand_for_others() -> None:
    out = attention(*map(Wrapper, operands()))
    assert torch.equal(out.inner, attention(*operands()))
    with pytest.raises(AttnccError, match=r"A650.*\n.*\n.*Wrapper"):
        kernel()(*map(Wrapper, operands()), out=out)
    with pytest.raises(AttnccError, match="A654"):
        attention(operands()[0], *map(Wrapper, operands()[1:]))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_fake_tensors(device: str) -> None:
    """A pointer of theirs is null, on a GPU too."""
    with FakeTensorMode():
        q, k, v = (torch.empty(1, 2, 6, 16, device=device) for _ in range(3))
        out, lse = kernel()(q, k, v, return_lse=True)
    assert (out.shape, lse.shape) == ((1, 2, 6, 16), (1, 2, 6))
    assert str(out.device).startswith(device)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("within", [False, True])
def test_fake_tensors_are_not_mixed_with_others(within: bool, grad: bool) -> None:
    mode, (q, k, v) = FakeTensorMode(), operands(grad=grad)
    fake, other = mode.from_tensor(q), FakeTensorMode().from_tensor(k)
    with mode if within else contextlib.nullcontext():
        for mixed, came in (((fake, k, v), "q"), ((fake, other, other), "q, k, v")):
            with pytest.raises(AttnccError, match=rf"A650.*two modes\n.*\n.*came FakeTensors: {came}\n"):
                attention(*mixed)
        assert attention(fake, mode.from_tensor(k), mode.from_tensor(v)).shape == q.shape  # as the error says


def test_a_seed_for_fake_tensors_is_drawn_outside_of_their_mode_too() -> None:
    q = FakeTensorMode().from_tensor(operands()[0])
    assert kernel(RATED)(q, q, q, rate=0.5, width=3).shape == q.shape


@pytest.mark.parametrize("grad", [False, True])
def test_meta_tensors_tell_shapes(grad: bool) -> None:
    out = attention(*(torch.empty(1, 2, 6, 16, device="meta", requires_grad=grad) for _ in range(3)))
    assert (out.shape, out.device.type) == ((1, 2, 6, 16), "meta")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rate": 0.5, "width": 3, "wdith": 3}, r"A608(.|\n)*did you mean `width`\?"),
        ({"rate": 0.5}, "A607.*`width` is missing"),
        ({"rate": 0.5, "width": 3, "kv_lens": [6]}, "A622.*`kv_lens`"),
        ({"rate": 0.5, "width": 3, "scale": "1"}, "A619.*`scale`"),
    ],
)
def test_tensors_without_memory_get_the_fault_of_the_call(given: dict[str, Any], expected: str) -> None:
    """Not A650: they would do in a good call."""
    meta = torch.empty(1, 2, 6, 16, device="meta")
    with FakeTensorMode():
        fake = torch.empty(1, 2, 6, 16)
    for q in (meta, fake):
        with pytest.raises(AttnccError, match=expected):
            kernel(RATED)(q, q, q, seed=1, **given)
    with pytest.raises(AttnccError, match="A608"):
        torch.func.grad(lambda q: kernel()(q, q, q, foo=1).sum())(operands()[0])


@pytest.mark.filterwarnings("ignore:.*nested.*:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("grad", [False, True])
def test_nested_tensors_are_refused(layout: Any, grad: bool) -> None:
    parts = [torch.randn(rows, 2, 16) for rows in (3, 5)]
    nested = torch.nested.nested_tensor(parts, layout=layout, requires_grad=grad).transpose(1, 2)
    with pytest.raises(AttnccError, match=r"A650.*\n.*\n.*nested"):
        attention(nested, nested, nested)
    q = torch.zeros(2, 2, 5, 16).numpy()
    with pytest.raises(AttnccError, match="A654"):
        attention(q, nested, q)


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fnuz])
def test_types_that_numpy_lacks(dtype: Any) -> None:
    q, k, v = operands()
    with pytest.raises(AttnccError, match=r"A604.*\n.*came torch\."):
        attention(q.to(dtype), k, v)


def test_what_looks_like_a_tensor_is_none() -> None:
    with pytest.raises(AttnccError, match=r"A622.*\n.*\n.*Proxy"):
        torch.fx.symbolic_trace(lambda q: attention(q, q, q))


def test_a_call_leaves_storages_resizable() -> None:
    """FSDP frees what it has gathered by `resize_`."""
    q, k, v = (x.to(torch.bfloat16) for x in operands())
    attncc.compile(CAUSAL, dtype="bf16", head_dim=16)(q, k, v)
    x = operands()
    attention(*x)
    for tensor in (q, *x):
        tensor.untyped_storage().resize_(0)


# -------------------------------------------------------------------- transforms


@pytest.mark.parametrize(
    "transform",
    [
        lambda call, q: torch.vmap(torch.func.grad(lambda q: call(q[None]).sum()))(q),
        lambda call, q: torch.func.jacrev(call)(q),
        lambda call, q: torch.func.hessian(call)(q),
        torch.func.linearize,
    ],
)
def test_transforms_around_gradients_are_refused_by_name(transform: Callable[..., Any]) -> None:
    with pytest.raises(AttnccError, match=r"A65[02]"):
        transform(lambda q: attention(q, q, q), operands()[0])


def test_gradients_of_functions_where_a_gpu_reads_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of torch.func.grad have none; here they stand for tensors on a GPU."""

    def ordinal(tensor: Any) -> int:
        return 0 if torch._C._functorch.is_gradtrackingtensor(tensor) else -1

    q, k, v = operands()
    monkeypatch.setattr(framework_of(q, "q"), "ordinal", ordinal)
    found = torch.func.grad(lambda q: attention(q, k, v).sum())(q)
    leaf = q.clone().requires_grad_()
    assert torch.equal(found, torch.autograd.grad(attention(leaf, k, v).sum(), leaf)[0])
    of_numpy = k.numpy()
    with pytest.raises(AttnccError, match="A654"):
        torch.func.grad(lambda q: attention(q, of_numpy, v).sum())(q)


# -------------------------------------------------------------------- what is compiled anew


def test_numbers_that_are_ints_compile_once() -> None:
    own, (q, k, v) = kernel(RATED), operands()
    count = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()

    def call(seed: int, width: int) -> Any:
        return own(q, k, v, rate=0.5, seed=seed, width=width)

    compiled = torch.compile(call, backend=count, fullgraph=True)
    for seed, width in ((11, 3), (12, 4), (13, 5), (2**62, 2)):
        assert torch.equal(compiled(seed, width), call(seed, width))
    assert count.frame_count <= 2  # once as they are, once for any


def test_compiled_autograd_takes_the_backward_pass_whole() -> None:
    from torch._dynamo import compiled_autograd

    q, k, v = operands(grad=True)
    own = kernel(RATED)
    (expected,) = torch.autograd.grad(own(q, k, v, rate=0.5, seed=1, width=3).sum(), q)
    torch._dynamo.reset()
    with compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        own(q, k, v, rate=0.5, seed=1, width=3).sum().backward()
    assert torch.equal(q.grad, expected)


def test_backward_breaks_the_graph() -> None:
    own, given = kernel(), operands()
    out, lse = own(*given, return_lse=True)
    torch._dynamo.reset()
    compiled = torch.compile(lambda dout: own.backward(dout * 2, *given, out, lse).dq, backend="aot_eager")
    dout = torch.ones_like(out)
    assert torch.equal(compiled(dout), own.backward(dout * 2, *given, out, lse).dq)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="A652"):
        torch.compile(lambda dout: own.backward(dout, *given, out, lse).dq, backend="eager", fullgraph=True)(dout)


# -------------------------------------------------------------------- seeds


def test_rate_0_draws_nothing_from_the_generator() -> None:
    """As torch's own dropout: a model that is judged between steps trains as one that isn't."""
    own, given = kernel(RATED), operands()
    for call in (own, torch.compile(own, backend="eager", fullgraph=True)):
        before = torch.get_rng_state()
        out = call(*given, rate=0.0, width=3)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(out, own(*given, rate=0.0, width=3, seed=7))
        assert not torch.equal(call(*given, rate=0.5, width=3), out)
        assert not torch.equal(torch.get_rng_state(), before)


# -------------------------------------------------------------------- operators by name


ELSEWHERE = """
import pickle, sys, torch, attncc
from attncc.torch import operator
source, given, expected = pickle.load(open(sys.argv[1] + "/call.pkl", "rb"))
operator(attncc.compile(source, dtype="fp32", head_dim=16))
exported = torch.export.load(sys.argv[1] + "/exported.pt2")
assert torch.equal(exported.module()(*given), expected)
"""


def test_an_exported_program_is_read_where_its_operator_is_known(tmp_path: Path) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return attention(q, k, v)

    torch.export.save(torch.export.export(Model(), operands()), tmp_path / "exported.pt2")
    (tmp_path / "call.pkl").write_bytes(pickle.dumps((CAUSAL, operands(), attention(*operands()))))
    root = Path(attncc.__file__).parent.parent
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(tmp_path)], cwd=root, check=True, timeout=100)


def test_selective_checkpoints_keep_what_the_operator_gave() -> None:
    from functools import partial

    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    from attncc.torch import operator

    q, k, v = operands(grad=True)
    kept = partial(create_selective_checkpoint_contexts, [operator(kernel())])
    with Names() as names:
        out = checkpoint(lambda q: attention(q * 2, k, v), q, use_reentrant=False, context_fn=kept)
        out.sum().backward()
    assert sum("attncc.watched" in name and "backward" not in name for name in names.seen) == 1
    (expected,) = torch.autograd.grad(attention(q * 2, k, v).sum(), q)
    assert torch.equal(q.grad, expected)
