"""The cheap form of the score lines as CUDA."""

from __future__ import annotations

from typing import Any

import pytest

from attncc.analysis.grid_2d import Grid2D
from attncc.codegen.user_code import UserCode
from attncc.runtime.cuda.nvrtc import compile_text
from tests import printed
from tests.printed import body, compilable

ALIBI = "input slope: f32[head]\nscore = score - slope[h] * (q_pos - kv_idx)"
TABLE = "input table: f32[head, 17]\nscore = score + table[h, clamp(kv_idx - q_pos, -8, 8) + 8]"
CAPPED = "input cap: f32\nscore = cap * tanh(score / cap)"


def code(lines: str, **settings: Any) -> UserCode:
    return printed.code(lines, **{"dtype": "bf16", **settings})


def test_a_bias_is_evaluated_at_one_key_and_grows_by_a_step() -> None:
    holds, factor, bias = code(ALIBI).score_form.split("\n\n")
    assert body(holds) == ["return true;"]
    assert "ScoreFactor<1> score_factor" in factor and body(factor) == ["return {{fabsf(ctx.scale)}};"]
    assert "using ScoreBias = SlopedBias;" in bias
    assert body(bias) == ["return {-(ctx.slope_h * (float)(row.q_pos - kv_idx)), ctx.slope_h};"]


def test_what_all_keys_share_takes_no_step() -> None:
    bias = code("input bias: f32[head]\nscore = score + bias[h]").score_form.split("\n\n")[2]
    assert "using ScoreBias = RowBias;" in bias and body(bias) == ["return {ctx.bias_h};"]


def test_a_table_of_distances_is_read_once_where_all_pairs_read_one_entry() -> None:
    holds, _, bias = code(TABLE).score_form.split("\n\n")
    assert body(holds)[-1].startswith("return __all_sync(~0u, ")
    assert "using ScoreBias = RowBias;" in bias and "load(params.table" in bias


@pytest.mark.parametrize("more", ["", "\nkeep if q_pos >= kv_idx", "\nscore = 2 * score"])
def test_hopper_reads_a_table_of_distances_once_for_two_rows(more: str) -> None:
    hopper = {"family": "hopper", "target": "sm_90a"}
    assert code(TABLE + more, **hopper).whole_tile == "distances"
    assert code(TABLE + more).whole_tile == "form"


@pytest.mark.parametrize(
    ("line", "whole"), [("bias[abs(q_pos - kv_idx)]", "distances_apart"), ("bias[kv_idx]", "pairs")]
)
def test_hopper_reads_other_tables_of_distances_so_too(line: str, whole: str) -> None:
    lines = f"input bias: f32[_]\nscore = score + 2 * {line}"
    assert code(lines, family="hopper", target="sm_90a").whole_tile == whole
    assert code(lines).whole_tile == "pairs" and code(lines).score_form == ""


@pytest.mark.parametrize(
    "lines",
    [
        ALIBI,
        CAPPED,
        TABLE + "\nscore = score - 0.1 * kv_idx",
        f"input row: f32[batch, q]\n{TABLE}\nscore = score + row[b, q_idx]",
    ],
)
def test_what_always_holds_or_differs_from_row_to_row_is_not_shared(lines: str) -> None:
    assert code(lines, family="hopper", target="sm_90a").whole_tile == "form"


def test_tiles_that_are_tiles_2d_need_a_form_that_always_holds() -> None:
    grid_2d = Grid2D(64, 8, 8)
    assert code(TABLE, grid_2d=grid_2d).score_form == ""
    assert code(ALIBI, grid_2d=grid_2d).score_form != ""


def test_coefficients_are_computed_once_for_a_block() -> None:
    capped = code(CAPPED)
    factor = capped.score_form.split("\n\n")[1]
    assert "ScoreFactor<3> score_factor" in factor
    assert body(factor) == ["return {{ctx.linear, ctx.cubic, ctx.quintic}, ctx.reach};"]
    assert "ctx.reach = product_reach(" in capped.context


@pytest.mark.parametrize("lines", [ALIBI + "\nnormalize sigmoid", "score = score * score", "keep if q_pos >= kv_idx"])
def test_others_have_none(lines: str) -> None:
    assert code(lines).score_form == ""


def test_fp32_keeps_the_exact_form() -> None:
    assert code(CAPPED, dtype="fp32").score_form == ""


@pytest.mark.parametrize("lines", [ALIBI, TABLE, CAPPED, f"{CAPPED}\n{ALIBI}"])
def test_it_compiles(lines: str) -> None:
    compile_text(compilable(code(lines)), "sm_80")
