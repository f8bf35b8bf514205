"""Printed code of variants given as text, under rules that say nothing."""

from __future__ import annotations

from typing import Any

from attncc.analysis.mask.key_sets import pairwise_masks
from attncc.codegen.render import assemble
from attncc.codegen.user_code import UserCode, user_code
from attncc.ir import Variant
from attncc.schedule.plan import KernelPlan
from attncc.semantics.load import load
from attncc.source import SourceFile
from tests import plans

# The work of a block, as `make_context` takes it, where no kernel says what a call's arguments mean.
WORK = """
struct Given {
    int sequence, q_len, kv_len, q_start, kv_start;
};
template <class Params>
__device__ int query_offset(const Params&, const Given& work) { return work.kv_len - work.q_len; }
"""


def variant(lines: str, path: str = "specs/test.attn") -> Variant:
    """The variant `v` with these lines; its first line is line 4 of the file."""
    return load(SourceFile(path, f"attn 1\nimport masks\nvariant v {{\n{lines}\n}}\n")).variants[0]


def plan(lines: str, **settings: Any) -> KernelPlan:
    return plans.plan(variant(lines), **{"skip": "never", **settings})


def code(lines: str, **settings: Any) -> UserCode:
    return user_code(plan(lines, **settings))


def pairwise(lines: str, **settings: Any) -> UserCode:
    """The code of a mask that is tested pair by pair, though it may be a key set."""
    made = plan(lines, **settings)
    return user_code(made, pairwise_masks(made.variant))


def body(function: str) -> list[str]:
    """The statements of a printed function, without `#line`s."""
    inside = function[function.index("{\n") + 2 : function.rindex("}")]
    return [line.strip() for line in inside.splitlines() if not line.startswith("#line")]


def kept(condition: str, inputs: str = "") -> str:
    """What `keep` returns for one condition."""
    return body(pairwise(f"{inputs}\nkeep if {condition}").keep)[-1].removeprefix("return ").removesuffix(";")


def compilable(printed: UserCode, statements: str = "") -> str:
    """A file that NVRTC compiles: the printed code and a kernel with these statements."""
    kernel = f'extern "C" __global__ void test(const __grid_constant__ Params params) {{ {statements} }}'
    parts = ['#include "common/element.cuh"', printed.includes, printed.params_struct, WORK, printed.functions, kernel]
    return assemble("\n".join(parts), "test")


def kept_pair(printed: UserCode, plan: KernelPlan) -> str:
    """A C expression: whether `row` keeps the key `column`, by all that is printed of the mask."""
    width, _, columns = plan.tile_columns
    rows = plan.block_kv // columns
    slot = f"(column / {width} % {rows} * {columns} + column % {width} % {columns})"
    tile = f"(column / {width} / {rows} * {rows * width} + column % {width} / {columns} * {columns})"
    in_tile = f"({slot} % 8 / 2 * 2 / {columns} * {width} + {slot} % 8 / 2 * 2 % {columns})"
    bits = f"(keep_bits(params, context, row, {tile} + {in_tile}) >> ({slot} / 8 * 2 + {slot} % 2) & 1)"
    return f"({bits if printed.keep_bits else 1} & {'keep(params, context, row, column)' if printed.keep else 1})"
