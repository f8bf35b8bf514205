from __future__ import annotations

from dataclasses import replace

from attncc import api
from attncc.codegen.user_code import user_code
from attncc.ir import apply, const, symbol
from attncc.kernels.candidates import make_plan
from attncc.kernels.registry import facts_of
from attncc.runtime.cuda.nvrtc import compile_text
from tests import plans
from tests.printed import body, compilable

USE = "Context c = make_context(params, Given{0, 1, 1}, 0, 0); params.lse[0] = "


def test_bounds_are_a_function_of_the_rows() -> None:
    printed = user_code(plans.plan(plans.CAUSAL))
    statements = body(printed.bounds[printed.bounds.index("__device__") :])
    assert statements[0] == "const int kv_begin = 0;"
    assert statements[-1] == "return {kv_begin, full_begin, full_end, kv_end};"
    assert printed.tile_kind == ""  # the bounds decide everything
    compile_text(compilable(printed, USE + "kv_bounds(params, c, 0, 1).kv_end;"), "sm_80")


def test_nothing_is_printed_where_nothing_is_skipped() -> None:
    assert user_code(plans.plan(plans.CAUSAL, skip="never")).bounds == ""
    assert user_code(plans.plan(plans.FULL)).bounds == ""
    printed = user_code(plans.plan(plans.DOCUMENTS, skip="never"))
    assert printed.tile_kind == "" and "doc__min" not in printed.params_struct


def test_kinds_read_zone_maps_in_range_only() -> None:
    printed = user_code(plans.plan(plans.DOCUMENTS, skip="in_kernel"))
    assert "const int *doc__min;" in printed.params_struct
    loads = [line for line in printed.tile_kind.splitlines() if "load" in line]
    assert loads and all("load_if(" in line for line in loads)
    assert printed.tile_kind.rstrip("}\n").endswith("return !any_kept ? EMPTY : all_kept ? FULL : PARTIAL;")
    compile_text(compilable(printed, USE + "tile_kind(params, c, 0, 1, 0, 1);"), "sm_80")


def test_a_kernel_with_lists_tests_no_tiles() -> None:
    """The pre-pass does, from the same `Params`."""
    plan = plans.plan(plans.DOCUMENTS)
    kernel, lists = user_code(plan), user_code(plan, tests_tiles=True)
    assert facts_of(plan).tile_lists and kernel.tile_kind == "" and "tile_kind(" in lists.tile_kind
    assert kernel.params_struct == lists.params_struct and "uint2 *tile_lists;" in kernel.params_struct


def test_lines_that_may_not_be_there_are_not_searched() -> None:
    """A search is no element that a guard makes 0: it must not begin outside the array."""
    text = "attn 1\nvariant v {\n input t: i32[8, pos] nondecreasing\n keep if t[3 * h, kv_idx] <= q_idx\n}\n"
    found = make_plan(api.parse(text).variant, dtype="bf16", head_dim=64, value_head_dim=64, target="sm_80")
    printed = user_code(found)
    searched = [line for line in printed.bounds.splitlines() if "first_above(" in line]
    assert searched and all("params.t_stride1, ctx.searched, " in line for line in searched)
    assert "ctx.searched = " in printed.context and "sorted_hint_holds(" not in printed.context
    compile_text(compilable(printed, USE + "kv_bounds(params, c, 0, 1).kv_end;"), "sm_80")


def test_bounds_that_may_pass_32_bits_are_clamped() -> None:
    wide = apply("mul", symbol("q_last"), apply("mul", symbol("kv_len"), const(3)))
    plan = plans.plan(plans.CAUSAL)
    printed = user_code(replace(plan, rules=replace(plan.rules, kv_end=wide)))
    assert "const int kv_end = (int)min(max(" in printed.bounds
    compile_text(compilable(printed, USE + "kv_bounds(params, c, 0, 1).kv_end;"), "sm_80")
