"""A plan becomes one readable CUDA file that compiles alone: Jinja2 template, printed functions, leaf code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from .. import resources
from ..diagnostics import AttnccError, Diagnostic
from ..schedule import kernel_names, legality
from ..schedule.choices import FRAGMENT_ROWS
from ..schedule.hopper import hopper_facts
from ..schedule.parameters import (
    combine_parameters,
    delta_parameters,
    dq_sum_parameters,
    exact_sum_parameters,
    sink_gradient_parameters,
    transposition_parameters,
    zone_map_parameters,
)
from ..schedule.plan import MAX_SPLITS, KernelPlan
from ..schedule.target import TARGETS
from . import header
from .line_marks import restored
from .structs import params_struct
from .user_code import user_code
from .wgmma import products

_INCLUDE = re.compile(r'^#include "attncc/(\w+\.cuh)"\n', re.M)

COMBINE_THREADS = 128
ZONE_MAP_THREADS = 256
ROWS_THREADS = 128  # of kernels whose warps take 16 rows at a time
_COLUMNS_A_LANE = 8
_FLOAT_BYTES = 4
TILE_LIST_THREADS = 128
TRANSPOSITION_THREADS = 128
_BARRIER_BYTES = 8
_MAPS = "const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map, "


@dataclass(frozen=True)
class KernelSource:
    """One CUDA file: `name` is its stem, `entry` the kernel's name in it; `shared_bytes` is dynamic shared memory."""

    name: str
    text: str
    entry: str
    threads: int
    shared_bytes: int


def render(plan: KernelPlan) -> KernelSource:
    """The kernel of a plan. The text depends on the plan, the templates and the paths of the spec alone."""
    entry = f"{plan.variant.name}_{plan.pass_name}"
    name = kernel_names.kernel_name(plan)
    text = _fill(
        plan.template,
        name,
        plan=plan,
        entry=entry,
        code=user_code(plan),
        header=header.of_plan(plan),
        wgmma=products(plan),
        adder=TARGETS[plan.target].adder,
        statistics=_statistics(plan),
        hopper=hopper_facts(plan),
        maps=_MAPS if plan.loads_boxes else "",
    )
    return KernelSource(name, text, entry, plan.threads, sum(legality.shared_memory(plan).values()))


def render_tile_lists(plan: KernelPlan) -> KernelSource:
    """The pre-pass that lists the live tiles of a plan's blocks of queries; it has the same `Params`."""
    name, entry = kernel_names.tile_lists_name(plan), f"tile_lists_{plan.variant.name}"
    of_plan = name.removeprefix("tile_lists_")
    text = _fill(
        "tile_lists",
        name,
        plan=plan,
        entry=entry,
        threads=TILE_LIST_THREADS,
        code=user_code(plan, tests_tiles=True),
        header=header.of_prepass(f"tile_lists: the live tiles of each block of {plan.block_q} queries of {of_plan}"),
    )
    return KernelSource(name, text, entry, TILE_LIST_THREADS, 0)


def render_transposition(plan: KernelPlan) -> KernelSource:
    """The kernel that transposes V before the plan's own, for all plans whose tiles of keys are alike."""
    name = kernel_names.transposition_name(plan)
    columns = f"{plan.block_kv} keys and {plan.value_head_dim} columns"
    text = _fill(
        "transpose_values",
        name,
        plan=plan,
        entry="transpose_values",
        threads=TRANSPOSITION_THREADS,
        params_struct=params_struct(transposition_parameters()),
        header=header.of_prepass(
            f"transpose_values: V of 8 bits, in tiles of {columns}, as the kernel after it takes them"
        ),
    )
    shared_bytes = sum(legality.value_tiles(plan)) + _BARRIER_BYTES
    return KernelSource(name, text, "transpose_values", TRANSPOSITION_THREADS, shared_bytes)


def render_combine(dtype: str, target: str) -> KernelSource:
    """The kernel that merges the partial results of splits, for all head dims."""
    name = kernel_names.combine_name(dtype, target)
    text = _fill(
        "combine",
        name,
        entry="combine",
        dtype=dtype,
        max_head_dim=legality.HEAD_DIMS[1],
        max_splits=MAX_SPLITS,
        threads=COMBINE_THREADS,
        params_struct=params_struct(combine_parameters(dtype)),
        header=header.of_prepass(f"combine: merges the partial results of splits; {dtype}"),
    )
    shared_bytes = COMBINE_THREADS // 32 * (legality.HEAD_DIMS[1] + MAX_SPLITS) * _FLOAT_BYTES
    return KernelSource(name, text, "combine", COMBINE_THREADS, shared_bytes)


def render_zone_map(dtype: str, target: str) -> KernelSource:
    """The pre-pass over an input of this dtype: its extremes over blocks, and whether it is nondecreasing."""
    name = kernel_names.zone_map_name(dtype, target)
    text = _fill(
        "zone_map",
        name,
        entry="zone_map",
        dtype=dtype,
        threads=ZONE_MAP_THREADS,
        params_struct=params_struct(zone_map_parameters(dtype)),
        header=header.of_prepass(f"zone_map: extremes of blocks, and claims, of an {dtype} input"),
    )
    return KernelSource(name, text, "zone_map", ZONE_MAP_THREADS, 0)


def render_delta(plan: KernelPlan) -> KernelSource:
    """The kernel that makes delta = rowsum(dO O) and prepares lse, before the others of the backward pass."""
    dtype, value_head_dim = plan.dtype, plan.value_head_dim
    what = f"delta: what the backward pass needs of each row; {dtype}, head dim {value_head_dim}"
    return _of_rows(
        "delta",
        kernel_names.delta_name(plan),
        plan,
        params_struct=params_struct(delta_parameters(dtype)),
        header=header.of_prepass(what),
        value_head_dim=value_head_dim,
        lanes=1 << (value_head_dim // _COLUMNS_A_LANE - 1).bit_length(),
        statistics=_statistics(plan),
    )


def render_dq_sum(plan: KernelPlan) -> KernelSource:
    """The kernel that rounds the sum of dQ, after the others of the backward pass."""
    dtype, head_dim = plan.dtype, plan.head_dim
    return _of_rows(
        "dq_sum",
        kernel_names.dq_sum_name(plan),
        plan,
        params_struct=params_struct(dq_sum_parameters(dtype)),
        header=header.of_prepass(f"dq_sum: rounds the sum of dQ; {dtype}, head dim {head_dim}"),
        head_dim=head_dim,
        column_blocks=-(-head_dim // FRAGMENT_ROWS),
        adder=TARGETS[plan.target].adder,
        finished="finished" if plan.family == "hopper" else "finished_before",
    )


def render_sink_gradient(plan: KernelPlan) -> KernelSource:
    """The kernel that makes the gradient of a plan's learnable sink."""
    assert plan.learned_sink is not None
    sink_dtype = plan.learned_sink.dtype
    return _of_rows(
        "sink_gradient",
        kernel_names.sink_gradient_name(plan),
        plan,
        params_struct=params_struct(sink_gradient_parameters(sink_dtype)),
        header=header.of_prepass(f"sink_gradient: of an {sink_dtype} sink; {plan.dtype}"),
        statistics=_statistics(plan),
    )


def render_exact_sum(plan: KernelPlan) -> KernelSource:
    """The kernel that rounds sums which don't depend on the order of their additions."""
    return _of_rows(
        "exact_sum",
        kernel_names.exact_sum_name(plan),
        plan,
        params_struct=params_struct(exact_sum_parameters()),
        header=header.of_prepass("exact_sum: rounds the sums of gradients of learnable inputs"),
    )


def _statistics(plan: KernelPlan) -> str:
    """The leaf file that stores what the backward pass needs of each row."""
    if plan.family == "hopper":
        return "statistics_pieces"
    return "statistics_rests" if plan.dtype == "fp32" else "statistics_floats"


def _of_rows(entry: str, name: str, plan: KernelPlan, **values: Any) -> KernelSource:
    """A kernel whose warps take 16 rows at a time."""
    common = {"entry": entry, "dtype": plan.dtype, "row_alignment": plan.row_alignment, "threads": ROWS_THREADS}
    common |= {"tile_order": plan.tile_order, "tile_columns": plan.tile_columns}
    return KernelSource(name, _fill(entry, name, **common, **values), entry, ROWS_THREADS, 0)


def _fill(template: str, name: str, **values: Any) -> str:
    try:
        text = _environment().get_template(f"{template}.cu.j2").render(values)
    except jinja2.TemplateError as error:
        raise AttnccError(
            Diagnostic(
                "A903",
                f"the template {template}.cu.j2 failed: {type(error).__name__}: {error}",
                help="this is a defect of attncc: please report it with the .attn file",
            )
        ) from error
    return assemble(text, name)


def assemble(text: str, name: str) -> str:
    """A whole file from its text: leaf files in place of their `#include`s, `#line` marks resolved to `name`.cu."""
    return restored(_squeezed(_inlined(text)), f"{name}.cu")


def _inlined(text: str) -> str:
    """The text with each leaf file in place of its first `#include`, under its name."""
    seen: set[str] = set()

    def leaf(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        content = resources.read("templates", "include", "attncc", name)
        before = _INCLUDE.match(content)  # what a leaf needs stands above it
        needed = ""
        while before is not None:
            needed += leaf(before)
            content = content[before.end() :]
            before = _INCLUDE.match(content)
        return f"{needed}\n// ---- {name}\n\n{content.strip()}\n\n"

    return _INCLUDE.sub(leaf, text)


def _squeezed(text: str) -> str:
    """One empty line where several would follow each other, no blanks at the ends of lines."""
    text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


@cache
def _environment() -> jinja2.Environment:
    """Line statements and `${}`, so that a template stays CUDA to an editor. Undefined names are errors."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.folder("templates")),
        undefined=jinja2.StrictUndefined,
        line_statement_prefix="//%",
        variable_start_string="${",
        variable_end_string="}",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
