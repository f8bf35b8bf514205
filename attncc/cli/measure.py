"""`attncc explain --measure`: bytes by the counters of this machine's GPU, beside the IO model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..quoting import json_text
from .console import as_json, progress, rich_console, wrapped
from .files import check_element_types, load_specification
from .here import pass_here, target_here

if TYPE_CHECKING:
    from rich.table import Table

    from ..io_model import Predicted
    from ..measure.compare import Row
    from ..measure.ncu import Launch
    from ..runtime.cuda.driver import Device
    from ..schedule.plan import KernelPlan
    from ..tune.candidates import TunedKernel
    from ..tune.work import Work


def measure(file: Path, given: Mapping[str, Any]) -> None:
    """Counts one call, and prints what was predicted and what was measured."""
    from ..measure import ncu
    from ..measure.compare import Reasons, rows
    from ..measure.job import Job
    from ..runtime.cuda.driver import driver

    device = driver().device(0)
    executable = ncu.find(given["ncu"])
    kernel, work = _call(file, given, device)
    with progress("compiling"):
        plans = _plans(kernel, work, device)
    with progress("counting"):
        launches = ncu.count(executable, Job(kernel, work), device.capability)
    found = rows(_predicted(plans, work, device), launches)
    inputs = {name: value.nbytes for name, value in work.inputs.items() if hasattr(value, "nbytes") and value.ndim}
    reasons = list(Reasons(plans[0], work.problem, device.l2_bytes, inputs).of(found))
    _print(Measured(plans[0], work, device, found, reasons, launches))


@dataclass(frozen=True)
class Measured:
    """What is printed."""

    plan: KernelPlan
    work: Work
    device: Device
    rows: list[Row]
    reasons: list[str]
    launches: list[Launch]

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return {
            "variant": self.plan.variant.name,
            "problem": asdict(self.work.problem),
            "device": self.device.name,
            "plan": {
                "pass": self.plan.pass_name,
                "dtype": self.plan.dtype,
                "target": self.plan.target,
                **self.plan.knobs,
            },
            "rows": [row.to_json() for row in self.rows],
            "reasons": self.reasons,
            "launches": [asdict(launch) for launch in self.launches],
        }


def _call(file: Path, given: Mapping[str, Any], device: Device) -> tuple[TunedKernel, Work]:
    from ..runtime.store.store import Configuration
    from ..schedule.plan import Build
    from ..tune.candidates import TunedKernel
    from ..tune.work import Work

    problem, dtype = given["problem"], given["dtype"]
    specification = load_specification(file, {name: value for name, value in given.items() if name != "dtype"})
    target = target_here(dtype, device)
    configuration = Configuration(dtype, problem.head_dim, problem.value_head_dim)
    serving = specification.serving(dtype)
    pass_name = pass_here(serving, configuration, target, given, device)
    kernel = TunedKernel(specification, Build(pass_name, target, *configuration))
    check_element_types(kernel.variant, given["given_inputs"])
    return kernel, Work(kernel.variant, problem, dtype, pass_name, given["given_inputs"], given["seed"])


def _plans(kernel: TunedKernel, work: Work, device: Device) -> list[KernelPlan]:
    """Those that run the call, compiled: the process that is watched finds them in the cache."""
    from ..compiler import CompiledStore
    from ..explain import capacity
    from ..kernels.registry import backward_facts, facts_of
    from ..kernels.serving import backward_plan_for, plan_for
    from ..runtime.call.persistent import own_backward_kernels
    from ..runtime.store.crossings import chip_of
    from ..runtime.store.store import first_own
    from ..tune.model import device_like

    configuration, target = kernel.configuration, kernel.build.target
    store = CompiledStore(kernel.specification, configuration, (target,))
    plans = store.backward_plans(configuration, target) if work.is_backward else store.plans(configuration, target)
    store.machine_codes(plans)
    if not work.is_backward:
        usual = chip_of(device.name, device.multiprocessors)
        chip = kernel.specification.seen_by(usual, configuration, target)
        serving = plan_for(plans, work.problem, chip)
        kernels = facts_of(serving).own_kernels(work.problem, chip)
        own = first_own(store, configuration, target, kernels)
        if own is None:
            return [serving]
        store.machine_codes(store.plans(own, target))
        return list(store.plans(own, target))
    serving = backward_plan_for(plans, work.problem)
    gpu, _ = device_like(device.name, device.capability, device.multiprocessors)
    kernels = own_backward_kernels(serving, work.problem, capacity(serving, gpu), ordered=work.deterministic)
    own = first_own(store, configuration, target, kernels)
    if own is not None:
        store.machine_codes(store.backward_plans(own, target))
        return [backward_plan_for(store.backward_plans(own, target), work.problem)]
    adds = backward_facts(serving).adds_dq
    return [serving, *(plan for plan in plans if plan.pass_name == "backward_dq" and not adds)]


def _predicted(plans: list[KernelPlan], work: Work, device: Device) -> dict[str, Predicted]:
    from ..io_model import IoModel
    from ..tune.model import device_like

    gpu, _ = device_like(device.name, device.capability, device.multiprocessors)
    model = IoModel(work.problem, work.inputs, gpu, work.deterministic)
    found: dict[str, Predicted] = {}
    for plan in plans:
        found |= model.predict(plan)
    return found


def _print(measured: Measured) -> None:
    if as_json():
        click.echo(json_text(measured.to_json(), indent=2))
        return
    plan, problem = measured.plan, measured.work.problem
    title = (
        f"{plan.variant.name}, {plan.dtype}, {plan.pass_name}: batch {problem.batch}, {problem.num_heads} heads over "
        f"{problem.num_kv_heads} key heads, q_len {problem.q_len}, kv_len {problem.kv_len}, tiles {plan.tiles}, on "
        f"{measured.device.name}"
    )
    click.echo(f"{wrapped(title)}\n")
    rich_console().print(_table(measured.rows))
    if measured.reasons:
        click.echo("\nwhy they differ")
        click.echo("\n".join(wrapped(f"  {line}", 2) for line in measured.reasons))


def _table(rows: list[Row]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("kernel", "bytes", "predicted MB", "measured MB", "ratio"):
        table.add_column(name, justify="left" if name in ("kernel", "bytes") else "right", no_wrap=True)
    before = ""
    for row in rows:
        predicted = "-" if row.predicted is None else f"{row.predicted / 1e6:,.2f}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        table.add_row(
            row.kernel if row.kernel != before else "", row.what, predicted, f"{row.measured / 1e6:,.2f}", ratio
        )
        before = row.kernel
    return table
