"""The launch over a prefix that all sequences of a call share: what its kernel sees (kernels.shared_prefix).

Its rows are a copy of q by key heads, the operand PREFIX_Q. What it finds are partial results in the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...kernels.parameters import field_name
from ...kernels.shared_prefix import GROUP, LENGTHS, Q_LEN, over_prefix_plan, prefix_problem
from ...problem import ArrayFacts, Call, Problem
from ...problem.facts import out_dtype
from ...problem.strides import contiguous
from ...schedule.plan import KernelPlan
from ..store.loaded_kernels import LoadedKernels
from .input_prepass import input_fields
from .operands import OPERANDS, PREFIX_Q, Q
from .steps import KernelStep, StepBuilder
from .tensor_maps import OperandMap, mappable, mapped


def over_prefix(kernels: LoadedKernels, call: Call, problem: Problem) -> tuple[KernelPlan, Call, Problem] | None:
    """The kernel over the prefix, and the call and the problem that it sees. None where it can't load k and v, or has
    no tile of keys: then the kernel behind it goes over all keys."""
    plan, seen = over_prefix_plan(kernels.plans), prefix_problem(kernels.plans, problem)
    if seen is None:
        return None
    q = _by_key_head(call.q, plan.stored_head_dim, seen)
    out = _by_key_head(call.q._replace(dtype=out_dtype(call.q.dtype)), plan.stored_value_head_dim, seen)
    k, v = (facts if problem.page is not None else _first_keys(facts, seen) for facts in (call.k, call.v))
    if any(name in mapped(plan) and not mappable(plan, name, facts, seen) for name, facts in (("k", k), ("v", v))):
        return None
    found = Call(q, k, v, call.inputs, layout=call.layout, block_table=call.block_table, out=out)
    return plan, found, seen


def _by_key_head(facts: ArrayFacts, columns: int, seen: Problem) -> ArrayFacts:
    """Of rows [key head, row, column] without gaps, in the axes of the call's layout."""
    batch, head, row, column = contiguous((1, seen.num_kv_heads, seen.q_len, columns))
    if seen.layout == "bhsd":
        return facts._replace(shape=(1, seen.num_kv_heads, seen.q_len, columns), strides=(batch, head, row, column))
    return facts._replace(shape=(1, seen.q_len, seen.num_kv_heads, columns), strides=(batch, row, head, column))


def _first_keys(facts: ArrayFacts, seen: Problem) -> ArrayFacts:
    """Those of sequence 0 of k or v."""
    lengths = seen.num_kv_heads, seen.kv_len
    middle = lengths if seen.layout == "bhsd" else lengths[::-1]
    return facts._replace(shape=(1, *middle, facts.shape[-1]))


def set_rows(main: StepBuilder, plan: KernelPlan, call: Call, problem: Problem) -> None:
    """The fields that say what its rows are: of the whole call."""
    assert call.kv_lens is not None
    lengths = field_name(LENGTHS)
    main.operand(lengths, OPERANDS["kv_lens"])
    main.set(input_fields(LENGTHS, plan.variant.input(LENGTHS), call.kv_lens, problem))
    for name, value in ((Q_LEN, problem.q_len), (GROUP, problem.group)):
        main.set({f"{field_name(name)}_value": value})


def with_rows_copied(step: KernelStep) -> KernelStep:
    """The launch with PREFIX_Q in place of q."""
    writes = [write._replace(source=_ROWS.get(write.source, write.source)) for write in step.writes]
    maps = tuple(OperandMap(_ROWS.get(item.operand, item.operand), item.box) for item in step.maps)
    return replace(step, writes=writes, maps=maps)


_ROWS: Mapping[int, int] = {Q: PREFIX_Q}
