"""`attncc.flex_attention` beside torch's own flex_attention, on the CPU: results, gradients, arguments."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest

import attncc
from attncc.diagnostics import AttnccError

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch.nn.attention.flex_attention import (  # noqa: E402  (needs torch)
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    or_masks,
)
from torch.nn.attention.flex_attention import flex_attention as torchs  # noqa: E402

from tests.unit.flex import mods  # noqa: E402
from tests.unit.flex.live import dense  # noqa: E402


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's flex_attention runs its dense arithmetic, without a second of Dynamo before it."""
    monkeypatch.setattr(sys.modules[torchs.__module__], "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)


pytestmark = pytest.mark.filterwarnings("ignore:.*flex_attention called without", "ignore:.*return_lse is deprecated")


def operands(
    dtype: Any = torch.float32, heads: int = mods.HEADS, kv_len: int = mods.KV_LEN, dim: int = 16
) -> list[Any]:
    torch.manual_seed(0)
    shapes = [(mods.BATCH, n, rows, dim) for n, rows in ((mods.HEADS, mods.Q_LEN), (heads, kv_len), (heads, kv_len))]
    return [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes]


def block_mask(mask_mod: Any, kv_len: int = mods.KV_LEN) -> Any:
    return mask_mod and create_block_mask(mask_mod, mods.BATCH, mods.HEADS, mods.Q_LEN, kv_len, device="cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", mods.CASES)
def test_forward(name: str, dtype: Any) -> None:
    """By the rule of torch's own tests: not much farther from fp64 than torch's eager attention in this dtype."""
    case = mods.CASES[name]
    given, masks = operands(dtype), block_mask(case.mask_mod)
    with torch.no_grad():
        exact, exact_lse = torchs(*(x.double() for x in given), case.score_mod, masks, return_lse=True)
        theirs = torchs(*given, case.score_mod, masks)
        ours, lse = attncc.flex_attention(*given, case.score_mod, masks, return_lse=True)
    assert ours.dtype == dtype
    slack = 10.0 if dtype == torch.float32 else 1.1
    least = 1e-8 if dtype == torch.float64 else 0.0  # in mods torch makes float32 of ints
    assert (ours - exact).abs().mean() <= slack * (theirs - exact).abs().mean() + least
    assert torch.equal(lse.isinf(), exact_lse.isinf())
    torch.testing.assert_close(lse.double(), exact_lse.double(), rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("name", mods.CASES)
def test_gradients(name: str) -> None:
    case = mods.CASES[name]
    ours, theirs = ([x.requires_grad_() for x in operands()] for _ in range(2))
    flowing = torch.randn(ours[0].shape)
    found = torch.autograd.grad(attncc.flex_attention(*ours, case.score_mod, mask_mod=case.mask_mod), ours, flowing)
    wanted = torch.autograd.grad(dense(*theirs, case.score_mod, case.mask_mod), theirs, flowing)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def captured_tensors() -> dict[str, tuple[Any, list[Any]]]:
    """score_mods with the tensors that they learn."""
    table = torch.linspace(-1, 1, mods.HEADS * 79).reshape(mods.HEADS, 79).requires_grad_()
    slope, cap = torch.rand(mods.HEADS).requires_grad_(), torch.tensor(3.0, requires_grad=True)
    learned = mods.Learned()

    def relative(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + table[h, q_idx - kv_idx]  # below 0 from the end: 79 = 2 * 40 - 1 distances

    def capped(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return cap * torch.tanh((score + slope[h] * (kv_idx - q_idx)) / cap)

    def computed(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score * torch.softmax(slope, 0)[h] + slope[0]

    return {
        "negative indices": (relative, [table]),
        "scalar": (capped, [cap, slope]),
        "parameter": (learned.bias, [learned.table]),
        "computed in the mod": (computed, [slope]),
    }


@pytest.mark.parametrize("name", captured_tensors())
def test_captured_tensors_get_their_gradients(name: str) -> None:
    score_mod, learned = captured_tensors()[name]
    given = operands()
    for _ in range(2):  # traced, then found
        found = torch.autograd.grad(attncc.flex_attention(*given, score_mod, mask_mod=mods.causal).sin().sum(), learned)
    wanted = torch.autograd.grad(dense(*given, score_mod, mods.causal).sin().sum(), learned)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def test_grouped_queries_other_lengths_and_a_scale() -> None:
    given = operands(heads=2, kv_len=57)
    masks = block_mask(mods.causal, 57)
    ours = attncc.flex_attention(*given, None, masks, 0.3, True)
    torch.testing.assert_close(ours, torchs(*given, None, masks, 0.3, True), rtol=1e-5, atol=1e-5)


def test_masks_are_joined() -> None:
    either = or_masks(mods.natten(8, 5, 3), and_masks(mods.causal, mods.sliding_window))
    given = operands()
    wanted = torchs(*given, None, block_mask(and_masks(either, mods.nothing_for_some)))
    ours = attncc.flex_attention(*given, None, block_mask(either), mask_mod=mods.nothing_for_some)
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_aux() -> None:
    out, aux = attncc.flex_attention(*operands(), mask_mod=mods.nothing_for_some, return_aux=AuxRequest(lse=True))
    same, lse = attncc.flex_attention(*operands(), mask_mod=mods.nothing_for_some, return_lse=True)
    assert torch.equal(out, same) and torch.equal(aux.lse, lse) and aux.max_scores is None
    assert (out[:, :, ::3] == 0).all() and (lse[:, :, ::3] == -torch.inf).all()


def test_blocks_alone_are_the_mask() -> None:
    """A BlockMask without a mask_mod: torch's compiled kernels read its blocks."""
    live = torch.tensor([[1, 0, 1], [0, 1, 0]]).bool().reshape(1, 1, 2, 3)
    count, order = live.sum(-1).int(), live.int().argsort(dim=-1, descending=True, stable=True).int()
    blocks = BlockMask.from_kv_blocks(count, order, BLOCK_SIZE=(20, 16), seq_lengths=(mods.Q_LEN, 48))
    ours = attncc.flex_attention(*operands(kv_len=48), None, blocks)
    wanted = dense(*operands(kv_len=48), None, lambda b, h, q, kv: live[0, 0][q // 20, kv // 16])
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


def test_the_positional_order_is_torchs() -> None:
    from inspect import signature

    ours, theirs = signature(attncc.flex_attention).parameters, signature(torchs).parameters
    positional = [name for name, item in theirs.items() if item.kind is item.POSITIONAL_OR_KEYWORD]
    assert list(itertools.islice(ours, len(positional))) == positional
    assert {*theirs} <= {*ours}
    assert all(ours[name].default == item.default for name, item in theirs.items())


def test_rows_need_not_be_contiguous() -> None:
    given = operands()
    turned = [x.mT.contiguous().mT for x in given]
    assert torch.equal(attncc.flex_attention(*turned), attncc.flex_attention(*given))


def test_it_stands_in_compiled_functions() -> None:
    slope = torch.rand(mods.HEADS, requires_grad=True)

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + slope[h]

    def layer(q: Any, k: Any, v: Any) -> Any:
        return attncc.flex_attention(q * 2, k, v, score_mod, mask_mod=mods.causal).sin().sum()

    given = [x.requires_grad_() for x in operands()]
    wanted = torch.autograd.grad(layer(*given), [*given, slope])
    found = torch.autograd.grad(torch.compile(layer, backend="aot_eager")(*given), [*given, slope])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert attncc.flex_spec(torch.compile(score_mod, backend="eager")) == attncc.flex_spec(score_mod)
    alone = torch.compile(attncc.flex_attention, backend="eager")
    assert torch.equal(alone(*given, score_mod), attncc.flex_attention(*given, score_mod))
    torch._dynamo.reset()


def test_the_text_can_be_kept() -> None:
    text = attncc.flex_spec(mods.alibi(4), mask_mod=mods.documents(torch.zeros(2, 40, dtype=torch.int32), mods.causal))
    assert (
        text.split("\n", 3)[3]
        == """variant mask_mod_score_mod {
    input document_id: i32[_, _]

    keep if document_id[b, q_idx] == document_id[b, kv_idx]
    keep if q_idx >= kv_idx

    let scale_ = exp2(-((h + 1) * 8.0 / 4))
    let bias = (kv_idx - q_idx) * scale_
    score = score + bias
}
"""
    )
    assert attncc.parse(text).name == "mask_mod_score_mod"


def test_torchs_own_if_asked() -> None:
    def random(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + torch.cumsum(score.reshape(1), 0)[0]

    given = operands()
    with pytest.raises(AttnccError):
        attncc.flex_attention(*given, random)
    ours = attncc.flex_attention(*given, random, mask_mod=mods.causal, fallback="torch")
    torch.testing.assert_close(ours, torchs(*given, random, block_mask(mods.causal)))


@pytest.mark.parametrize("low", [-1e9, torch.finfo(torch.float32).min, -torch.inf])
def test_low_numbers_are_warned_of(low: float, recwarn: pytest.WarningsRecorder) -> None:
    """Once, when the kernel is made. -inf becomes a `keep if`, which is exact."""

    def mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return torch.where(q_idx >= kv_idx, score, low)

    for _ in range(2):
        attncc.flex_attention(*operands(dim=24), mod)
    told = [str(item.message) for item in recwarn if "A305" in str(item.message)]
    assert len(told) == (low > -torch.inf)
    assert all("write `keep if q_idx >= kv_idx`" in text for text in told)
