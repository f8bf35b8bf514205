"""PyTorch's own test mods through `attncc.flex_attention`, forward and backward, by the rule of PyTorch's tests."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import attncc

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402  (needs torch)
from torch.nn.attention.flex_attention import flex_attention as torchs  # noqa: E402

from tests.unit.flex.live import dense  # noqa: E402
from tests.unit.flex.suite import BATCH, CASES, DIM, HEADS, LENGTH, SuiteCase, captured  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16)  # those of the suite on the CPU
MOST_TIMES = {torch.float32: 10.0, torch.bfloat16: 1.1}  # the mean error of torch's eager attention
MOST_TIMES_LEARNED = 1.2  # the root mean square error of attention with all scores in memory, where a bias learns

pytestmark = pytest.mark.filterwarnings("ignore:.*flex_attention called without")


@pytest.fixture(autouse=True)
def eager_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's flex_attention runs its dense arithmetic, whose backward works on the CPU, though torch refuses it."""
    module = sys.modules[torchs.__module__]
    monkeypatch.setattr(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)
    monkeypatch.setattr(module, "_validate_device", lambda *given: None)


def results(case: SuiteCase, dtype: Any, call: Any, kind: Any) -> list[Any]:
    """The output and the gradients of q, k, v and what learns, in fp64; inputs are rounded to `dtype` first."""
    drawn = torch.Generator().manual_seed(0)
    shapes = [
        (BATCH, HEADS, case.q_len, DIM),
        (case.kv_batch, case.kv_heads, LENGTH, DIM),
        (case.kv_batch, case.kv_heads, LENGTH, case.value_dim),
    ]
    given = [torch.randn(shape, generator=drawn).to(dtype).to(kind).requires_grad_() for shape in shapes]
    flowing = torch.randn((*shapes[0][:3], case.value_dim), generator=drawn).to(dtype).to(kind)
    tensors = captured(dtype=dtype)
    for name in case.learned:
        setattr(tensors, name, getattr(tensors, name).to(kind).requires_grad_())
    out = call(case, *given, *case.mods(tensors))
    learned = [getattr(tensors, name) for name in case.learned]
    return [x.detach().double() for x in (out, *torch.autograd.grad(out, [*given, *learned], flowing))]


def ours(case: SuiteCase, q: Any, k: Any, v: Any, score_mod: Any, mask_mod: Any) -> Any:  # noqa: PLR0917
    return attncc.flex_attention(q, k, v, score_mod, mask_mod=mask_mod, **case.options)


def theirs(case: SuiteCase, q: Any, k: Any, v: Any, score_mod: Any, mask_mod: Any) -> Any:  # noqa: PLR0917
    """torch's own; where a bias learns, dense attention, with which torch's tests compare."""
    if case.learned:
        return dense(q, k, v, score_mod, mask_mod)
    blocks = mask_mod and create_block_mask(mask_mod, BATCH, HEADS, case.q_len, LENGTH, device="cpu")
    return torchs(q, k, v, score_mod, blocks, **case.options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_no_farther_from_fp64_than_the_suite_allows(name: str, dtype: Any) -> None:
    case = CASES[name]
    exact, reference = (results(case, dtype, theirs, kind) for kind in (torch.float64, dtype))
    found = results(case, dtype, ours, dtype)
    places = ("out", "dq", "dk", "dv", *case.learned)
    for place, golden, other, own in zip(places, exact, reference, found, strict=True):
        error, allowed = _size(golden - own, case), _size(golden - other, case)
        limit = MOST_TIMES_LEARNED if case.learned and dtype != torch.float32 else MOST_TIMES[dtype]
        assert error <= limit * allowed, (place, error, allowed)


def _size(error: Any, case: SuiteCase) -> float:
    return float(error.square().mean().sqrt() if case.learned else error.abs().mean())
