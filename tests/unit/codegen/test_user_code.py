"""What goes where: context, row, element; names; loads; comments and places in the source."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from attncc.codegen.user_code import user_code
from attncc.diagnostics import AttnccError
from attncc.runtime.cuda.nvrtc import compile_text
from tests import plans
from tests.printed import body, code, compilable, pairwise, plan

ALIBI = """\
input slope: f32[head]
input cap: f32
let distance = q_pos - kv_idx
keep if distance >= 0
score = score - slope[h] * distance
let capped = score / cap
score = cap * tanh(capped)"""


def test_terms_stand_where_they_change() -> None:
    printed = code(ALIBI)
    assert "    float slope_h;  // slope[h]\n" in printed.context
    assert "ctx.slope_h = load(params.slope + ctx.h * params.slope_stride0);" in printed.context
    assert "row.q_pos = row.q_idx + ctx.q_offset;" in printed.row
    assert body(printed.score) == [
        "const int distance = row.q_pos - kv_idx;",
        "const float score_1 = score - ctx.slope_h * (float)distance;",
        "const float capped = score_1 * ctx.inverse_cap;",
        "return ctx.cap * tanh_branchless(capped);",
    ]


def test_the_source_stands_above_a_function() -> None:
    above = code(ALIBI).score.split("__device__")[0]
    assert above.splitlines() == [
        "// let distance = q_pos - kv_idx",
        "// score = score - slope[h] * distance",
        "// let capped = score / cap",
        "// score = cap * tanh(capped)",
    ]


def test_a_plan_without_source_shows_its_ir() -> None:
    stripped = plan(ALIBI)
    statements = tuple(replace(item, span=None) for item in stripped.variant.statements)
    printed = user_code(replace(stripped, variant=replace(stripped.variant, statements=statements)))
    assert "// keep if (distance >= 0)" in printed.keep_bits
    assert "#line" not in printed.keep_bits


def test_only_what_is_used_is_printed() -> None:
    printed = code("")
    assert printed.keep_bits == ""
    assert (printed.keep, printed.score, printed.bounds, printed.tile_kind, printed.dropout, printed.sink) == ("",) * 6
    assert printed.includes == ""
    assert "struct Row {\n    int q_idx;\n};" in printed.row


def test_functions_share_terms_and_names() -> None:
    """One load for keep and score, one let for two lines."""
    lines = "input doc: i32[batch, pos]\nkeep if doc[b, q_pos] == 1\nscore = score + doc[b, q_pos]"
    assert code(lines).row.count("load") == 1
    lines = "let far = q_pos - kv_idx > 9\nkeep if far\nkeep if far or kv_idx < 4"
    assert body(pairwise(lines).keep) == [
        "const bool far = row.q_pos - kv_idx > 9;",
        "const bool keep_2 = far | (kv_idx < 4);",
        "return far & keep_2;",
    ]


@pytest.mark.parametrize(
    ("axes", "index", "text"),
    [
        ("[batch, kv]", "x[b, kv_idx]", "load(ctx.x_base + kv_idx * params.x_stride1)"),
        ("[batch, pos]", "x[b, kv_idx]", "load(ctx.x_base + kv_idx * params.x_stride1)"),
        ("[batch, pos]", "x[b, q_pos]", "load_if(in_range(q_pos, ctx.x_length), x_row)"),
        ("[batch, pos]", "x[b, q_idx]", "load_if(row.q_idx < ctx.x_length, x_row)"),
        ("[batch, q]", "x[b, q_idx]", "load(ctx.x_base + row.q_idx * params.x_stride1)"),
        # A packed batch may have sequences that are longer than an axis that they share.
        ("[kv]", "x[kv_idx]", "load_if(kv_idx < params.x_size0, params.x + kv_idx * params.x_stride0)"),
        ("[pos]", "x[q_pos]", "load_if(in_range(q_pos, params.x_size0), x_row)"),
        ("[head]", "x[h]", "load(params.x + ctx.h * params.x_stride0)"),
        ("[_]", "x[kv_idx]", "load_if(kv_idx < params.x_size0, params.x + kv_idx * params.x_stride0)"),
        ("[64]", "x[kv_idx % 64]", "load(params.x + kv_idx % 64 * params.x_stride0)"),
        ("[_]", "x[kv_idx - 1]", "load_if(in_range(difference, params.x_size0), x_address)"),
        ("[_]", "x[0]", "load_if(0 < params.x_size0, params.x)"),
    ],
)
def test_loads_are_guarded_unless_proven(axes: str, index: str, text: str) -> None:
    printed = pairwise(f"input x: i32{axes}\nkeep if {index} == q_idx + kv_idx")
    assert text in printed.keep + printed.row + printed.context


def test_the_address_is_split_by_what_its_parts_depend_on() -> None:
    printed = code("input bias: bf16[batch, head, q, kv]\nscore = score + bias[b, h, q_idx, kv_idx]")
    assert "ctx.bias_base = params.bias + ctx.b * params.bias_stride0 + ctx.h * params.bias_stride1;" in printed.context
    assert "ctx.bias_base + row.q_idx * params.bias_stride2" in printed.row + printed.score
    assert "kv_idx * params.bias_stride3" in printed.score


def test_packed_axes_start_at_the_sequence() -> None:
    printed = code("input doc: i32[batch, pos]\nkeep if doc[b, kv_idx + 1] == 0")
    assert "ctx.kv_start * params.doc_stride1" in printed.context
    assert "ctx.doc_length = params.cu_seqlens_kv != nullptr ? ctx.kv_len : params.doc_size1;" in printed.context
    assert "ctx.doc_length" in printed.keep
    printed = code("input lengths: i32[batch]\nkeep if kv_idx < lengths[b]")
    assert "_start *" not in printed.context


# Words of C++ and CUDA, names of the kernel, of codegen, and of fields for other inputs.
NAMES = re.findall(
    r"\w+",
    "auto char double float_ template short switch blockIdx threadIdx unix params ctx row load scalar keep_1 "
    "splits kv_start EMPTY fminf Row Params p p_value p_stride0 p_size0 difference difference_2 score_1 l",
)


def test_no_name_can_clash() -> None:
    inputs = [f"input {name}: f32[kv]" for name in NAMES]
    score = " + ".join(f"{name}[kv_idx] * {name}[kv_idx + 1]" for name in NAMES)
    as_inputs = code("\n".join([*inputs, f"score = {score}", "score = score + 1", "keep if kv_idx - q_idx > 1"]))
    lets = [f"let {name} = exp(score + {number}) * {number}" for number, name in enumerate(NAMES)]
    as_lets = code("\n".join([*lets, f"score = {' + '.join(NAMES)}", f"score = score * {' * '.join(NAMES)}"]))
    for printed in (as_inputs, as_lets):
        compile_text(compilable(printed), "sm_80")


def test_dropout_and_sink() -> None:
    printed = code("input drop: f32\ninput logit: bf16[head]\ndropout drop\nsink logit")
    assert "const float rate = scalar(params.drop, params.drop_value);" in printed.dropout
    assert body(printed.sink) == ["return load(params.logit + ctx.h * params.logit_stride0);"]


def test_the_variants_scale_stands_in_where_the_call_gives_none() -> None:
    printed = code("input temperature: f32\nscale temperature / sqrt(head_dim)")
    value = "scalar(params.temperature, params.temperature_value) / sqrtf((float)16)"
    assert f"if (params.scale != params.scale) ctx.scale = {value};" in " ".join(printed.context.split())


def test_lets_that_read_the_score_keep_their_value() -> None:
    printed = code("let before = score\nscore = score * 2\nlet middle = score\nscore = score + before * middle")
    assert body(printed.score) == [
        "const float score_1 = score * 2.0f;",
        "return score_1 + score * score_1;",
    ]


def test_score_lines_read_the_line_before_that_replaced_the_score() -> None:
    printed = code("score = 0.25\nscore = score + kv_idx / 8.0\nlet s = score\nscore = score * 2.0\nscore = score + s")
    assert body(printed.score) == [
        "const float score_2 = 0.25f + (float)kv_idx / 8.0f;",
        "const float score_3 = score_2 * 2.0f;",
        "return score_3 + score_2;",
    ]
    lines = "input bias: f32[head, kv]\nscore = bias[h, kv_idx]\nscore = score * 2.0 + 1.0\nscore = score * score"
    assert body(code(lines).score)[-2:] == [
        "const float score_2 = score_1 * 2.0f + 1.0f;",
        "return score_2 * score_2;",
    ]


def test_statements_are_found_in_the_source() -> None:
    """An error inside is reported at its line of the .attn file, one behind at the kernel's own line."""
    printed = pairwise("keep if q_idx >= kv_idx\n\n\nkeep if kv_idx != 7")
    assert '#line 7 "specs/test.attn"\n    const bool keep_2' in printed.keep
    text = compilable(printed).replace("kv_idx != 7", "kv_idx != seven")
    with pytest.raises(AttnccError, match=r'specs/test.attn\(7\): error: identifier "seven" is undefined'):
        compile_text(text, "sm_80", "test.cu")
    text = compilable(printed, "int x = eight;")
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "eight" in line)
    with pytest.raises(AttnccError, match=rf"test.cu\({line}\): error"):
        compile_text(text, "sm_80", "test.cu")


def test_what_depends_on_the_head_is_a_rows_where_a_tile_holds_a_group() -> None:
    variant = replace(plans.ALIBI, inputs=(*plans.ALIBI.inputs, *plans.SINK.inputs), sink="logit")
    decode = plans.plan(variant, "bf16", pass_name="decode", block_q=64, warps=4, split_kv=None)
    code = user_code(decode)
    assert "int q_idx, h" in code.row and "int q_idx, int h)" in code.row and "slope" in code.row
    assert "slope" not in code.context and "ctx.h" not in code.functions
    assert "row.h" in code.sink and "const Row& row" in code.sink
    forward = user_code(replace(decode, pass_name="forward"))
    assert "slope" in forward.context and "row.h" not in forward.functions and "const Row& row" not in forward.sink


def test_rows_take_from_other_lanes_what_is_looked_up() -> None:
    lines = "input doc: i32[batch, pos]\nkeep if q_pos >= kv_idx\nkeep if doc[b, q_pos] == doc[b, kv_idx]"
    hopper = {"pass_name": "backward", "target": "sm_90a", "block_q": 64, "block_kv": 128, "warps": 8}
    assert body(code(lines, family="hopper", **hopper).row_values) == [
        "row.doc_q_pos = __shfl_sync(~0u, made.doc_q_pos, lane);",
        "return row;",
    ]
    assert not code("keep if q_pos >= kv_idx", family="hopper", **hopper).row_values
    assert not code(lines, pass_name="backward").row_values
