from __future__ import annotations

import pytest

from tests.unit.import_flex.snippets import codes, lines, mask, score  # noqa: F401

CASTS = [
    ("(q_idx / 2).int() > 1", "floor(q_idx / 2) > 1"),
    ("(q_idx >= 1).int() + h > 1", "(1 if q_idx >= 1 else 0) + h > 1"),
    ("h.bool()", "h != 0"),
    ("h.to(torch.bool) & (q_idx > 0)", "h != 0"),
    ("torch.logical_not(h)", "not h != 0"),
    ("q_idx.to(torch.float32) // 2 > 1", "floor(q_idx / 2) > 1"),
    ("q_idx.long() // 2 > 1", "q_idx // 2 > 1"),
    ("q_idx.to(h.dtype) // 2 > 1", "q_idx // 2 > 1"),
    ("q_idx.float() * kv_idx.float() > 5", "1.0 * q_idx * kv_idx > 5"),
    ("int(q_idx / 4) == 1", "floor(q_idx / 4) == 1"),
    ("torch.tensor(3) > h", "3 > h"),
    ("q_idx.item() > 1", "q_idx > 1"),
]

BOOLS = [
    ("(q_idx > 1) == True", "q_idx > 1"),
    ("(q_idx > 1) == 0", "q_idx <= 1"),
    ("(q_idx > 1) != False", "q_idx > 1"),
    ("~(q_idx == 1)", "q_idx != 1"),
    ("~(q_idx / 2 > 1)", "not q_idx / 2 > 1"),
    ("(q_idx > 1) ^ (h > 1)", "(q_idx > 1) != (h > 1)"),
    ("(q_idx & 3) > 1", "q_idx & 3 > 1"),
    ("~q_idx > 1", "~q_idx > 1"),
    ("((h > 1) | False) | (b > 1)", "h > 1 or b > 1"),
    ("(h > 1) | ((b > 1) | (q_idx > 1))", "h > 1 or b > 1 or q_idx > 1"),
    ("(h > 1) + (b > 1)", "h > 1 or b > 1"),
    ("torch.where(h > 1, b > 1, b > 2)", "b > 1 if h > 1 else b > 2"),
    ("torch.where(h > 1, b > 1, 2) > 0", "((1 if b > 1 else 0) if h > 1 else 2) > 0"),
    ("q_idx > 1 or not kv_idx > 2", "q_idx > 1 or kv_idx <= 2"),
    ("2 < q_idx <= 7", "2 < q_idx <= 7"),
]

NUMBERS = [
    ("score * 2", "score * 2"),
    ("score ** 2", "score * score"),
    ("score ** -1", "1 / score"),
    ("score ** 0.5", "sqrt(score)"),
    ("2 ** score", "exp2(score)"),
    ("1.5 ** score", "exp(score * log(1.5))"),
    ("score + 2 ** h", "score + (1 << h)"),
    ("score + 8 ** h", "score + (1 << 3 * h)"),
    ("score + 0.25 ** h", "score + exp2(-2 * h)"),
    ("score + (-1) ** h", "score + (-1 if h & 1 != 0 else 1)"),
    ("score + torch.div(h, 3, rounding_mode='trunc')", "score + h // 3"),
    ("torch.div(score, 2, rounding_mode='trunc')", "floor(score / 2) if score / 2 >= 0 else -floor(-(score / 2))"),
    ("score + torch.fmod(h, 3)", "score + (h - h // 3 * 3)"),
    ("score / 1_000 + 1e-3 - .5 + 0x10", "score / 1_000 + 1e-3 - .5 + 0x10"),
    ("score * math.pi", "score * 3.141592653589793"),
    ("torch.rsqrt(score)", "1 / sqrt(score)"),
    ("torch.log2(score)", "log2(score)"),
    ("torch.round(score)", "round(score)"),
    ("score.round(decimals=2)", "round(score * (10.0 * 10.0)) / (10.0 * 10.0)"),
    ("torch.nn.functional.softplus(score)", "softplus(score)"),
    ("torch.nn.functional.softplus(score, beta=2)", "softplus(score * 2) / 2"),
    ("torch.nn.functional.softplus(score, 1, 2)", "score if score * 1 > 2 else softplus(score)"),
    ("torch.nn.functional.silu(score)", "silu(score)"),
    ("torch.nn.functional.logsigmoid(score)", "-softplus(-score)"),
    ("torch.nn.functional.gelu(score)", "gelu(score)"),
    ("torch.nn.functional.gelu(score, approximate='tanh')", "gelu_tanh(score)"),
    ("torch.sign(score)", "sign(score)"),
    ("torch.sign(q_idx - kv_idx) * 0.5", "sign(q_idx - kv_idx) * 0.5"),
    ("torch.minimum(score, torch.tensor(3.0))", "min(score, 3.0)"),
    ("score.clamp(max=5)", "min(score, 5)"),
    ("torch.clip(score, -1, 1)", "clamp(score, -1, 1)"),
    ("max(score, 1.0, h)", "max(max(score, 1.0), h)"),
    ("torch.add(score, h, alpha=2)", "score + 2 * h"),
    ("torch.div(score, 2, rounding_mode='floor')", "floor(score / 2)"),
    ("score - sum(i * h for i in range(3))", "score - sum(i * h for i in range(3))"),
    ("score * -(-3)", "score * --3"),
]


@pytest.mark.parametrize(("python", "expected"), CASTS + BOOLS)
def test_conditions(lines, python: str, expected: str) -> None:  # noqa: F811
    assert lines(mask(python))[0] == f"keep if {expected}"


@pytest.mark.parametrize(("python", "expected"), NUMBERS)
def test_numbers(lines, python: str, expected: str) -> None:  # noqa: F811
    assert lines(score(python)) == [f"score = {expected}"]


@pytest.mark.parametrize(
    "python", ["score | 1", "score ** h", "score ** 2.5", "score and h", "score + math.inf", "score * 2**70"]
)
def test_what_has_no_form(lines, python: str) -> None:  # noqa: F811
    assert codes(lines, score(python)) == ["A705"]
