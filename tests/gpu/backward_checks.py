"""What tests ask of Hopper backward kernels: the gradients of the dense reference, and the same ones in every run."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import attncc
from attncc import reference
from tests.kernels import without_decode
from tests.plans import DTYPES

torch = pytest.importorskip("torch")


@cache
def compiled(text: str, dtype: str, head_dims: tuple[int, int]) -> Any:
    """With a backward kernel of the family hopper."""
    schedule = f"schedule asked for {attncc.parse(text).variant.name} backward on sm_90a {{ family = hopper }}\n"
    sizes = {"head_dim": head_dims[0], "value_head_dim": head_dims[1]}
    return without_decode(text + schedule, dtype=dtype, arch="sm_90a", **sizes)


def check(
    text: str, dtype: str, head_dims: tuple[int, int], arrays: list[Any], *, deterministic: bool = False, **given: Any
) -> Any:
    """`arrays` are q, k and v in fp32 on the CPU. Gradients come into memory full of NaN. Returns the kernel."""
    kernel = compiled(text, dtype, head_dims)
    variant = kernel.variant
    softmax = variant.normalize == "softmax"
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    tensors = [torch.from_numpy(array).cuda().to(kind) for array in arrays]
    on_gpu = {name: torch.from_numpy(x).cuda() if isinstance(x, np.ndarray) else x for name, x in given.items()}
    found = kernel(*tensors, return_lse=softmax, **on_gpu)
    out, lse = found if softmax else (found, None)
    dout = torch.randn(out.shape, generator=torch.Generator("cuda").manual_seed(2), device="cuda").to(kind)
    torch.full((1 << 26,), torch.nan, device="cuda")  # what the allocator hands out next
    gradients = kernel.backward(dout, *tensors, out, lse, deterministic=deterministic, **on_gpu)
    torch.cuda.synchronize()
    rounded = [x.double().cpu().numpy() for x in (dout, *tensors)]
    narrow = [x.astype(DTYPES[dtype]) for x in rounded]
    exact = reference.backward(variant, *narrow, **given)
    plain = reference.baseline_backward(variant, *narrow, **given)
    for name in ("dq", "dk", "dv"):
        own = getattr(gradients, name).double().cpu().numpy()
        judged = reference.accuracy(own, getattr(plain, name), getattr(exact, name), dtype)
        assert judged.holds, (name, judged)
    for name, gradient in gradients.inputs.items():
        judged = reference.accuracy(gradient.double().cpu().numpy(), plain.inputs[name], exact.inputs[name], dtype)
        # Of the rule the largest error: an input may have two entries, whose errors have no mean to speak of.
        assert judged.max_error <= judged.max_limit, (name, judged)
    return kernel


def normal(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _random(shapes: list[tuple[int, ...]]) -> list[Any]:
    """q, k, v and dout."""
    torch.manual_seed(0)
    return [torch.randn(shapes[i], dtype=torch.bfloat16, device="cuda") for i in (0, 1, 1, 0)]


def check_runs(text: str, shapes: list[tuple[int, ...]], **given: Any) -> None:
    """`deterministic` makes dk and dv as in other calls, and dq but for the order of its sums."""
    kernel = compiled(text, "bf16", (shapes[0][-1],) * 2)
    q, k, v, dout = _random(shapes)
    out, lse = kernel(q, k, v, return_lse=True, **given)
    plain, *runs = (kernel.backward(dout, q, k, v, out, lse, deterministic=number > 0, **given) for number in range(6))
    assert float((runs[0].dq.float() - plain.dq.float()).norm() / plain.dq.float().norm()) < 2e-3
    for run in runs:
        assert torch.equal(run.dq, runs[0].dq)
        assert torch.equal(run.dk, plain.dk) and torch.equal(run.dv, plain.dv)


def check_streams(text: str, shapes: list[tuple[int, ...]], **given: Any) -> None:
    """Calls on several streams, copied by what comes behind them there, in graphs too, give what one alone gives."""
    kernel = compiled(text, "bf16", (shapes[0][-1],) * 2)
    q, k, v, dout = _random(shapes)
    out, lse = kernel(q, k, v, return_lse=True, **given)

    def gradients() -> list[Any]:
        made = kernel.backward(dout, q, k, v, out, lse, deterministic=True, **given)
        return [made.dq.clone(), made.dk.clone(), made.dv.clone()]

    expected, streams, found = gradients(), [torch.cuda.Stream() for _ in range(3)], []
    torch.cuda.synchronize()
    for number in range(12):
        with torch.cuda.stream(streams[number % 3]):
            found.append(gradients())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found += [gradients(), gradients()]
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, y) for run in found for x, y in zip(run, expected, strict=True))
