"""The backward pass of a call: on the CPU the executor, on a GPU the launcher."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

from ... import executor
from ...kernels.serving import executed_backward_plans
from ...problem.arrays import array_facts
from ...problem.call_arguments import FORWARD_ALONE
from ...problem.gradients import Gradients
from ...schedule.plan import KernelPlan
from ..frameworks.arrays import framework_of, is_foreign, no_stream_here, stream_handle
from ..frameworks.foreign import handed_back, opened
from ..frameworks.framework import DeviceFramework, HostFramework
from ..store.store import Configuration, KernelStore
from .backward_arguments import BackwardArguments
from .backward_launch import BackwardLauncher
from .configurations import configuration_of
from .host import seen_by


def run_backward(
    store: KernelStore, launcher: BackwardLauncher, arguments: BackwardArguments, stream: Any
) -> Gradients:
    """The gradients, in q's framework. AttnccError A5xx, A6xx before any launch."""
    if is_foreign(arguments.call.q):
        return _through_dlpack(store, launcher, arguments, stream)
    framework = framework_of(arguments.call.q, "q")
    ordinal = framework.ordinal(arguments.call.q)
    if ordinal < 0:
        if stream is not None:
            raise no_stream_here(stream)
        return run_backward_on_host(store, cast(HostFramework, framework), arguments)
    device = cast(DeviceFramework, framework)
    with nullcontext() if stream is None else device.on_stream(stream_handle(stream, ordinal), ordinal):
        return launcher.run(device, ordinal, arguments)


def run_backward_on_host(
    store: KernelStore, framework: HostFramework, arguments: BackwardArguments, own_rows: executor.OwnRows = None
) -> Gradients:
    """The gradients of a call on the CPU, in q's framework. AttnccError A6xx."""

    def seen(name: str, value: Any) -> Any:
        return seen_by(framework, name, value)

    dout, call = seen("dout", arguments.dout), arguments.call.each_read(seen)
    facts = array_facts("q", call.q), array_facts("v", call.v)
    plans = _host_plans(store, configuration_of(store.variant.name, store.configurations, *facts))
    results = {name: seen(name, getattr(arguments, name)) for name in ("out", "lse", "dlse")}
    keywords = {name: value for name, value in call.keywords().items() if name not in FORWARD_ALONE}
    bound = executor.bind_backward_for(plans[0], dout, call.q, call.k, call.v, **results, **keywords)
    found = executor.run_bound_backward(
        executed_backward_plans(plans, bound.call.problem),
        bound,
        deterministic=arguments.deterministic,
        own_rows=own_rows,
    ).gradients
    if arguments.dq is None:
        return _each(found, framework.from_numpy)
    seen("dq", arguments.dq)[...] = found.dq
    framework.written(arguments.dq)
    return replace(_each(found, framework.from_numpy), dq=arguments.dq)


def _host_plans(store: KernelStore, configuration: Configuration) -> tuple[KernelPlan, ...]:
    """The plans of the backward passes; of a package that was built without them, its forward plan in their place."""
    return store.backward_plans(configuration, None) or store.plans(configuration, None)[:1] * 2


def _through_dlpack(
    store: KernelStore, launcher: BackwardLauncher, arguments: BackwardArguments, stream: Any
) -> Gradients:
    """Arrays of another framework, seen as CuPy or NumPy arrays; the results are handed back."""
    call = arguments.call
    seen = call.each_read(opened)
    results = {name: opened(name, getattr(arguments, name)) for name in ("dout", "out", "lse", "dlse")}
    found = run_backward(store, launcher, arguments._replace(call=seen, **results), stream)
    return _each(found, lambda array: handed_back(array, call.q))


def _each(found: Gradients, change: Any) -> Gradients:
    inputs = {name: change(array) for name, array in found.inputs.items()}
    return Gradients(change(found.dq), change(found.dk), change(found.dv), inputs)
