"""Calls with NumPy arrays and CPU tensors: the executor walks the same plan that the GPU's kernel was made from."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import executor
from ...kernels.serving import executed_plan
from ...problem.arrays import BoundCall, array_facts
from ...problem.call_arguments import Arguments
from ...problem.refusal import mixed, refused
from ...problem.swapped_axes import warn_of_swapped_axes
from ...schedule.plan import KernelPlan
from ..frameworks.arrays import framework_of, is_array
from ..frameworks.framework import HostFramework
from ..store.store import KernelStore
from .configurations import configuration_of


def run_on_host(
    store: KernelStore, framework: HostFramework, call: Arguments, own_rows: executor.OwnRows = None
) -> Any:
    """out, or (out, lse), in q's framework. AttnccError A6xx for bad arguments, A506 if this wasn't built."""
    plans, bound = bound_on_host(store, framework, call)
    result = executor.run_bound(executed_plan(plans, bound.problem), bound, own_rows)
    if call.out is not None:
        framework.written(call.out)
    out = framework.from_numpy(result.out) if call.out is None else call.out
    return out if result.lse is None or not call.return_lse else (out, framework.from_numpy(result.lse))


def bound_on_host(
    store: KernelStore, framework: HostFramework, call: Arguments
) -> tuple[tuple[KernelPlan, ...], BoundCall]:
    """The plans that may serve a call, and the call once it was checked. AttnccError as `run_on_host`."""

    def seen(name: str, value: Any) -> Any:
        return seen_by(framework, name, value)

    given = call.each_read(seen)._replace(out=seen("out", call.out))
    facts = array_facts("q", given.q), array_facts("v", given.v)
    plans = store.plans(configuration_of(store.variant.name, store.configurations, *facts), None)
    bound = executor.bind_for(plans, given.q, given.k, given.v, **given.keywords())
    warn_of_swapped_axes(store.variant.name, facts[0], bound.problem)
    return plans, bound


def seen_by(framework: HostFramework, name: str, value: Any) -> Any:
    """An array as NumPy sees it. AttnccError A605 if it is on a GPU, A654 if it is not of q's framework; what is no
    array is for `bind` to refuse."""
    if isinstance(value, np.generic) or not is_array(value):
        return value
    own = framework_of(value, name)
    if own.ordinal(value) >= 0:
        raise refused(
            "A605",
            f"`{name}` is on another device than `q`",
            expected="cpu",
            came=own.facts(value).device,
            help="all arrays of a call live on one device",
        )
    if own is not framework and value.ndim:  # a nested tensor has no shape to ask for
        raise mixed(name, type(value))
    own.facts(value)  # refuses what can't be read here
    return own.to_numpy(value)  # type: ignore[attr-defined]
