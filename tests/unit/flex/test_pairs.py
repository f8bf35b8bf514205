"""Live mods keep what torch keeps, and score as torch does, at every pair: the functions that `import-flex` is tested
with, and random ones."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from attncc.diagnostics import AttnccError  # noqa: E402
from tests.unit.flex.live import check  # noqa: E402  (needs torch)
from tests.unit.import_flex.catalogue import BATCH, CASES, HEADS, LENGTH  # noqa: E402
from tests.unit.import_flex.test_random import Writer, compiled  # noqa: E402

ASKS_FOR_A_VALUE = {
    "chained",
    "top_k",
    "factory_limited",
}  # `0 <= x < 9`, `any(...)`, `and`: torch can't trace them either


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's vmap, of `isin`
@pytest.mark.parametrize("name", CASES)
def test_the_functions_of_the_importer(name: str) -> None:
    case = CASES[name]
    module = importlib.import_module(f"tests.unit.import_flex.cases.{case.file}")
    names = {**vars(module), "torch": torch, "BATCH": BATCH, "HEADS": HEADS, "LENGTH": LENGTH}
    given = {name: eval(text, names) for name, text in case.inputs.items()}
    found: Any = eval(case.call or case.target, {**names, **given})
    mods = found if isinstance(found, tuple) else (found,)
    for q_len, kv_len in [(LENGTH, LENGTH)] if case.square else [(LENGTH, LENGTH), (9, 17), (20, 6)]:
        if name not in ASKS_FOR_A_VALUE:
            check(*mods, sizes=(BATCH, HEADS, q_len, kv_len), loops=case.loops)
            continue
        with pytest.raises(AttnccError) as refused:
            check(*mods, sizes=(BATCH, HEADS, q_len, kv_len))
        assert refused.value.diagnostics[0].code == "A713"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("is_mask", [True, False], ids=["mask", "score"])
def test_random_mods(seed: int, is_mask: bool) -> None:
    source = Writer(seed).function(is_mask).replace("{}", "-float('inf')")
    mod, _ = compiled(source)
    check(mod, sizes=(2, 2, 12, 12), seed=seed, exact=True)


TABLE = torch.randint(0, 9, (2, 4, 24), generator=torch.Generator().manual_seed(1))
WEIGHT = torch.linspace(-1, 2, 72).reshape(24, 3).sin()
VECTORS = torch.linspace(-2, 2, 2 * 24 * 6).reshape(2, 24, 6).cos()
BITS = torch.arange(24) * 123457 % 2**31
SMALL = (torch.arange(24) * 37 % 200).to(torch.uint8)

MORE: dict[str, Any] = {
    "ellipses": lambda b, h, q_idx, kv_idx: TABLE[..., q_idx][b, h] > TABLE[b, ...][h, kv_idx],
    "slices": lambda b, h, q_idx, kv_idx: TABLE[:, 1:, ::2][b, h % 3, q_idx // 2] > 3,
    "rows": lambda b, h, q_idx, kv_idx: (TABLE[b][:, q_idx] == TABLE[b, :, kv_idx]).any(),
    "counted": lambda b, h, q_idx, kv_idx: (TABLE[b, :, q_idx] == TABLE[b, :, kv_idx]).sum() >= 1,
    "vector indices": lambda b, h, q_idx, kv_idx: (TABLE[b, h, torch.arange(3) + q_idx] == 4).any() | (kv_idx < 3),
    "embedding": lambda b, h, q_idx, kv_idx: (
        torch.nn.functional.embedding(q_idx, WEIGHT).sum() > torch.nn.functional.embedding(kv_idx, WEIGHT).amax()
    ),
    "index_select": lambda b, h, q_idx, kv_idx: torch.index_select(WEIGHT, 0, q_idx.reshape(1)).squeeze(0)[0] > 0,
    "bits": lambda b, h, q_idx, kv_idx: ((BITS[q_idx] >> (kv_idx % 31)) & 1) == 1,
    "narrow ints": lambda b, h, q_idx, kv_idx: (SMALL[q_idx].int() - SMALL[kv_idx].int()).abs() < 40,
    "bucketize": lambda b, h, q_idx, kv_idx: (
        torch.bucketize(q_idx, torch.tensor([3, 7, 11]))
        == torch.bucketize(kv_idx, torch.tensor([3, 7, 11]), right=True)
    ),
    "searchsorted": lambda b, h, q_idx, kv_idx: torch.searchsorted(torch.tensor([3, 7]), q_idx, side="right") > 0,
    "isin": lambda b, h, q_idx, kv_idx: torch.isin(kv_idx, torch.tensor([1, 4, 9])),
    "stack": lambda b, h, q_idx, kv_idx: torch.stack([q_idx > 3, kv_idx > 3]).any(),
    "truncated quotients": lambda b, h, q_idx, kv_idx: (
        torch.div(q_idx - kv_idx, -3, rounding_mode="trunc") > torch.fmod(q_idx - kv_idx, 5)
    ),
    "powers of ints": lambda b, h, q_idx, kv_idx: (
        ((q_idx - kv_idx) % 3**h == 0) | (5 ** (q_idx - 9) == kv_idx) | (TABLE[b, h, 3 ** (h % 3)] == kv_idx % 9)
    ),
    "signs": lambda b, h, q_idx, kv_idx: (-1) ** (q_idx - kv_idx) * (kv_idx - 4) + 0 ** (q_idx % 3) > 0,
    "remainders below an int": lambda b, h, q_idx, kv_idx: (1 - (q_idx / 4) % 1.5).int() == kv_idx % 2,
    "remainders by negative ints": lambda b, h, q_idx, kv_idx: TABLE[b, h, -2 - (q_idx % -3)] > kv_idx % 9,
    "ints filled with floats": lambda b, h, q_idx, kv_idx: q_idx.masked_fill(q_idx > kv_idx, 2.7) == 2,
    "views": lambda b, h, q_idx, kv_idx: TABLE.view(-1)[q_idx + kv_idx] > TABLE[0].T[q_idx, h],
    "bounds of tensors": lambda b, h, q_idx, kv_idx: torch.clamp(q_idx, TABLE[b, h, 0], TABLE[b, h, 1] + 9) > kv_idx,
    "negative numbers": lambda b, h, q_idx, kv_idx: TABLE[b, -1, q_idx] > TABLE[-2, h, kv_idx - 24],
    "products": lambda score, b, h, q_idx, kv_idx: score + (VECTORS[b, q_idx] * VECTORS[b, kv_idx]).sum(-1),
    "dot": lambda score, b, h, q_idx, kv_idx: score + torch.dot(VECTORS[b, q_idx], VECTORS[b, kv_idx]),
    "mean": lambda score, b, h, q_idx, kv_idx: score + VECTORS[b, q_idx].mean() - VECTORS[b, kv_idx].amin(),
    "activations": lambda score, b, h, q_idx, kv_idx: (
        torch.nn.functional.elu(score) + torch.nn.functional.hardtanh(score) + torch.nn.functional.mish(score)
    ),
    "softplus up to a threshold": lambda score, b, h, q_idx, kv_idx: (
        torch.nn.functional.softplus(score, 2.0, 0.5) + torch.nn.functional.softplus(score, threshold=1)
    ),
    "more functions": lambda score, b, h, q_idx, kv_idx: (
        torch.lerp(score, score * 2, 0.3) + torch.addcmul(score, score, score, value=0.1) + torch.expm1(score / 9)
    ),
    "powers": lambda score, b, h, q_idx, kv_idx: score * 0.9 ** (q_idx - kv_idx).abs() + score**2 - score.abs() ** 0.5,
    "a mask inside": lambda score, b, h, q_idx, kv_idx: torch.where(
        (q_idx > 3) & (kv_idx > 2),
        torch.where(h > 1, score, -torch.inf),
        torch.where(kv_idx == 1, -torch.inf, score * 2),
    ),
    "added infinity": lambda score, b, h, q_idx, kv_idx: score + torch.where(q_idx < kv_idx, float("-inf"), 0.0),
    "the least float": lambda score, b, h, q_idx, kv_idx: score.masked_fill(
        q_idx < kv_idx, torch.finfo(score.dtype).min
    ),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's vmap, of `isin`
@pytest.mark.parametrize("name", MORE)
def test_more_of_torch(name: str) -> None:
    check(MORE[name], sizes=(2, 4, 20, 20))
