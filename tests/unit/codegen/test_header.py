from __future__ import annotations

from dataclasses import replace

from attncc import __version__
from attncc.codegen import header
from attncc.ir import Variant, apply, const, symbol
from attncc.kernels.candidates import make_plan
from tests import plans
from tests.printed import variant


def test_it_says_what_was_built_and_from_what() -> None:
    causal = variant("keep if causal()")
    text = header.of_plan(
        make_plan(causal, dtype="bf16", head_dim=64, value_head_dim=128, target="sm_90", pass_name="decode")
    )
    lines = text.splitlines()
    assert lines[0] == "// v, decode pass: bf16, head dim 64, of values 128, for sm_90."
    assert lines[1].startswith(f"// Written by attncc {__version__} from specs/test.attn (sha256 ")
    assert "//   keep if causal()" in lines
    assert any(line.startswith("//   kv_end = ") for line in lines)
    assert any("split_kv = auto" in line for line in lines)


def test_no_line_can_end_the_comment_or_go_on_into_code() -> None:
    plan = plans.plan(Variant("v", documentation="ends in a backslash \\\n  indented */ word " + "x" * 150))
    lines = header.of_plan(plan).splitlines()
    assert all(line.startswith("//") and not line.endswith("\\") for line in lines if line)


def test_documentation_is_filled_by_paragraphs() -> None:
    text = "\n".join(["word " * 24 + "end of line", "and on", "", "  kept = as it is", "a second", "paragraph"])
    lines = header.of_plan(plans.plan(Variant("v", documentation=text))).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("// word"))
    assert lines[start + 1 : start + 5] == [
        "// word end of line and on",
        "//",
        "//   kept = as it is",
        "// a second paragraph",
    ]


def test_long_tile_rules_are_left_to_their_function() -> None:
    text = header.of_plan(plans.plan(plans.DOCUMENTS))
    assert max(map(len, text.splitlines())) <= 100
    assert "//   any_kept: see tile_kind" in text


def test_tile_rules_without_end_are_not_written_out() -> None:
    """Each level reads the one below four times: as text, 4**40 of its parts."""
    rule = symbol("q_first")
    for _ in range(40):
        rule = apply("add", apply("mul", rule, rule), apply("mul", rule, rule))
    plan = plans.plan(plans.DOCUMENTS)
    plan = replace(plan, rules=replace(plan.rules, any_kept=apply("gt", rule, const(0))))
    assert "//   any_kept: see tile_kind" in header.of_plan(plan)
