"""What backward kernels are printed of score lines: their derivative, and the sums of learnable inputs."""

from __future__ import annotations

from attncc import api
from attncc.codegen.user_code import UserCode, user_code
from attncc.kernels.candidates import make_plan


def code(*lines: str, pass_name: str = "backward") -> UserCode:
    text = "\n".join(["attn 1", "variant v {", *lines, "}"])
    plan = make_plan(
        api.parse(text + "\n").variant,
        dtype="bf16",
        head_dim=64,
        value_head_dim=64,
        target="sm_90",
        pass_name=pass_name,
    )
    return user_code(plan)


def test_the_derivative_shares_what_the_score_computes() -> None:
    found = code("input cap: f32", "score = cap * tanh(score / cap)").score
    assert found.count("tanh_branchless(") == 1
    assert "struct ScoreGradient {\n    float score, slope;\n};" in found


def test_without_score_lines_there_is_no_function() -> None:
    assert "score_gradient(" not in code().score


def test_sums_by_what_their_place_depends_on() -> None:
    found = code(
        "input slope: f32[head] learnable",
        "input rows: f32[q] learnable",
        "input keys: f32[batch, kv] learnable",
        "input table: f32[33] learnable",
        "score = score * slope[h] + rows[q_idx] + keys[b, kv_idx] + table[clamp(q_pos - kv_idx, 0, 32)]",
    ).learned
    for name, sums in (("slope", "HeadSum"), ("rows", "RowSum"), ("keys", "KeySum"), ("table", "PairSum")):
        number = next(line for line in found.splitlines() if line.startswith(f"// gradient of {name}["))
        read = found.split(number)[1].split("place_learned_")[1][0]
        assert f"{sums}<M_TILES> sum_{read};" in found


def test_only_the_kernel_that_owns_keys_learns() -> None:
    lines = ("input slope: f32[head] learnable", "score = score * slope[h]")
    assert code(*lines).learned and not code(*lines, pass_name="backward_dq").learned
    assert not code("input slope: f32[head]", lines[1]).learned
