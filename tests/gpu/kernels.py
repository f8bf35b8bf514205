"""The kernels of the suites' cases.

This module must not import torch: each of the processes that compile imports it.
"""

from __future__ import annotations

from dataclasses import replace

from attncc.compiler import CompiledStore, load_specification
from attncc.runtime.kernel import Kernel
from attncc.runtime.store.store import Configuration
from attncc.schedule.plan import KernelPlan
from attncc.settle import settle
from tests.gpu.backward_cases import BackwardCase
from tests.gpu.cases import Case


def forward_kernel(case: Case, target: str) -> Kernel:
    """With the kernel of the pass that runs the case: no lengths here fit a grid. `target`: of the device's portable
    kernels."""
    arch = case.target(target)
    specification = load_specification(case.source(arch), None, {})[0]
    specification = replace(specification, passes=("decode" if case.decodes else "forward",))
    store = CompiledStore(specification, Configuration(case.dtype, *case.head_dims), (arch,))
    store.compile_now()
    return Kernel(store)


class _AddingDq(CompiledStore):
    """Without the kernel of dQ alone, which takes as long to compile as the one that adds dQ up."""

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        own = configuration.own_kernel or target is None
        if not own and (configuration, target) not in self._settled_backward:
            keys, _, *tiles_2d = self._specification.backward_candidates(configuration, target)
            self._settled_backward[configuration, target] = tuple(map(settle, (keys, *tiles_2d)))
        return super().backward_plans(configuration, target)


def backward_kernel(case: BackwardCase, target: str) -> Kernel:
    """With the kernels that its backward calls launch, and none for forward calls."""
    arch, specification = case.forward.target(target), load_specification(case.source(target), None, {})[0]
    configuration = Configuration(case.forward.dtype, *case.forward.head_dims)
    store = (CompiledStore if case.separates_dq else _AddingDq)(specification, configuration, (arch,))
    store.machine_codes(store.backward_plans(configuration, arch))
    return Kernel(store)
