"""The cheap form of the score lines as CUDA."""

from __future__ import annotations

import pytest

from attncc.codegen.user_code import UserCode
from attncc.runtime.nvrtc import library
from tests import printed
from tests.printed import body, compilable

ALIBI = "input slope: f32[head]\nscore = score - slope[h] * (q_pos - kv_idx)"
CAPPED = "input cap: f32\nscore = cap * tanh(score / cap)"


def code(lines: str, dtype: str = "bf16") -> UserCode:
    return printed.code(lines, dtype=dtype)


def test_a_bias_is_evaluated_at_one_key_and_grows_by_a_step() -> None:
    factor, bias = code(ALIBI).score_form.split("\n\n")
    assert "ScoreFactor<1> score_factor" in factor and body(factor) == ["return {{fabsf(ctx.scale)}};"]
    assert "SlopedBias score_bias" in bias
    assert body(bias) == ["return {-(ctx.slope_h * (float)(row.q_pos - kv_idx)), ctx.slope_h};"]


def test_what_all_keys_share_takes_no_step() -> None:
    bias = code("input bias: f32[head]\nscore = score + bias[h]").score_form.split("\n\n")[1]
    assert "RowBias score_bias" in bias and body(bias) == ["return {ctx.bias_h};"]


def test_coefficients_are_computed_once_for_a_block() -> None:
    capped = code(CAPPED)
    factor = capped.score_form.split("\n\n")[0]
    assert "ScoreFactor<3> score_factor" in factor
    assert body(factor) == ["return {{ctx.linear, ctx.cubic, ctx.quintic}, ctx.reach};"]
    assert "ctx.reach = product_reach(" in capped.context


@pytest.mark.parametrize("lines", [ALIBI + "\nnormalize sigmoid", "score = score * score", "keep if q_pos >= kv_idx"])
def test_others_have_none(lines: str) -> None:
    assert code(lines).score_form == ""


def test_fp32_keeps_the_exact_form() -> None:
    assert code(CAPPED, dtype="fp32").score_form == ""


@pytest.mark.parametrize("lines", [ALIBI, CAPPED, f"{CAPPED}\n{ALIBI}"])
def test_it_compiles(lines: str) -> None:
    library().compile(compilable(code(lines)), "sm_80")
