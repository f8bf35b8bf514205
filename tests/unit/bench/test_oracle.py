"""The fp64 oracle of `attncc bench`, and so the functions that FlexAttention gets, against `attncc.reference`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attncc import reference
from attncc.ir import Variant
from attncc.problem import Problem
from tests.unit.bench.benched import SHIPPED, SMALL, case, shipped, torch, variant

from attncc.bench.case import Arrays, Case, copies_needed  # isort: skip
from attncc.bench.oracle import Result, exact, limit, relative_error  # isort: skip

EXPRESSIONS = {
    "shifts": "keep if (kv_idx << 2 >> 1 & 6 | 1 ^ ~q_idx) % 3 != 0 and kv_idx << q_idx - 20 >= 0 or kv_idx >> 70 == 0",
    "divisions": "keep if (q_idx - 9) // (kv_idx - 5) <= 1 and (q_idx - 9) % (kv_idx - 5) < 7",
    "functions": "score = gelu(score) + silu(score) - softplus(score) + gelu_tanh(score) * sigmoid(score) + erf(score)",
    "roots": "score = sqrt(abs(score)) + log2(1 + exp2(score)) - log(1 + exp(score)) + sin(score) * cos(score)",
    "whole": "score = score + floor(score * 3) - round(score * 5) + sign(score)",
    "extremes": "score = max(score, -0.5) + min(score, score * score) - clamp(score, -1, kv_idx / 40)",
    "choices": "let far = q_pos - kv_idx > 7\nkeep if far or not far and b == 1\nscore = 2 * score if far else -score",
    "half": "input bias: bf16[head, kv]\ninput other: f16[q]\nscore = score + bias[h, kv_idx] * other[q_idx]",
    "scaled": "scale 3 / head_dim\nscore = score / scale",
}
VARIANTS = {name: lambda name=name: shipped(name) for name in SHIPPED}
VARIANTS |= {name: lambda lines=lines: variant(lines) for name, lines in EXPRESSIONS.items()}


def compared(found: Case) -> None:
    """Both in fp64 on the same fp32 operands, by every result of the last key head."""
    arrays = Arrays.of(found)
    wanted = exact(found, arrays)
    q, k, v = (item.numpy() for item in arrays.copies[0])
    given = dict(found.inputs) | ({} if found.variant.dropout is None else {"seed": found.seed})
    out, _ = reference.forward(found.variant, q, k, v, **given)
    assert wanted.out is not None
    torch.testing.assert_close(wanted.out, torch.from_numpy(out[-1, found.group]), rtol=1e-6, atol=1e-9)
    if wanted.gradients is None:
        return
    gradients = reference.backward(found.variant, arrays.dout.numpy(), q, k, v, **given)
    own = gradients.dq[-1, found.group], gradients.dk[-1, -1], gradients.dv[-1, -1]
    for one, other in zip(wanted.gradients, own, strict=True):
        torch.testing.assert_close(one, torch.from_numpy(np.array(other)), rtol=1e-5, atol=1e-7)
    all_heads = Result(torch.from_numpy(out), tuple(torch.from_numpy(getattr(gradients, f"d{x}")) for x in "qkv"))
    assert relative_error(found, all_heads, wanted) < 1e-6


@pytest.mark.parametrize("name", VARIANTS)
def test_oracle_is_the_reference(name: str) -> None:
    of: Variant = VARIANTS[name]()
    compared(case(of, pass_name="both"))


@pytest.mark.parametrize("name", ["causal", "alibi", "prefix_lm", "sink_attention"])
@pytest.mark.parametrize("problem", [Problem(1, 6, 2, 17, 40, 8, 24), Problem(3, 2, 2, 40, 17, 8, 8)], ids=str)
def test_other_sizes(name: str, problem: Problem) -> None:
    compared(case(shipped(name), problem, pass_name="both"))


def test_pieces_of_rows_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    of = case(shipped("documents"), pass_name="both")
    whole, kept = exact(of, Arrays.of(of)), of.kept_pairs()
    monkeypatch.setattr("attncc.bench.case._PAIRS", 300)
    again = exact(of, Arrays.of(of))
    assert len(list(of.row_pieces(2))) == 16
    torch.testing.assert_close(again.gradients, whole.gradients)
    assert of.kept_pairs() == kept


@pytest.mark.parametrize("name", ["full", "causal", "documents", "block_map", "prefix_lm"])
def test_kept_pairs_are_those_of_the_mask(name: str) -> None:
    of = case(shipped(name))
    sizes = {"batch": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16}
    mask = reference.mask(of.variant, 48, 48, **sizes, **of.inputs)
    kept = int(np.broadcast_to(mask, (2, 4, 48, 48)).sum())
    assert of.kept_pairs() == kept
    assert [replace(of, pass_name=name).useful_flops(10) for name in ("forward", "backward", "both")] == [
        10 * 4 * 16, 10 * 10 * 16, 10 * 14 * 16,
    ]  # fmt: skip


def test_what_is_off_is_told() -> None:
    of = case(shipped("causal"), pass_name="both")
    wanted = exact(of, Arrays.of(of))
    out = torch.zeros(2, 4, 48, 16)
    assert wanted.out is not None and wanted.gradients is not None
    out[-1, of.group] = wanted.out.float()
    assert relative_error(of, Result(out), wanted) < 1e-6
    assert relative_error(of, Result(out * 1.5), wanted) == pytest.approx(0.5, rel=1e-5)
    out[-1, -1, 0, 0] = torch.nan
    assert not relative_error(of, Result(out), wanted) <= limit(of)


def test_cpu_needs_no_copies() -> None:
    assert copies_needed(10, "cpu") == 1
    assert len(Arrays.of(case(shipped("causal"), SMALL)).copies) == 1
