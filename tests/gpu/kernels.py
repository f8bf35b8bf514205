"""The kernels of the suites' cases.

This module must not import torch: each of the processes that compile imports it.
"""

from __future__ import annotations

from attncc.compiler import CompiledStore, load_specification
from attncc.machine_code import settle
from attncc.runtime.kernel import Kernel
from attncc.runtime.store import Configuration
from attncc.schedule.plan import KernelPlan
from tests.gpu.backward_cases import BackwardCase
from tests.gpu.cases import Case
from tests.kernels import without_decode


def forward_kernel(case: Case, target: str) -> Kernel:
    """Without a kernel of the decode pass where it doesn't run the case. `target`: of the device's portable kernels."""
    (key, value), arch = case.head_dims, case.target(target)
    return without_decode(case.source(arch), dtype=case.dtype, head_dim=key, value_head_dim=value, arch=arch)


class _AddingDq(CompiledStore):
    """Without the kernel of dQ alone, which takes as long to compile as the one that adds dQ up."""

    def backward_plans(self, configuration: Configuration, target: str | None) -> tuple[KernelPlan, ...]:
        if target is not None and target not in self._settled_backward:
            keys, _, *patches = self._specification.backward_ladders(configuration, target)
            self._settled_backward[target] = tuple(map(settle, (keys, *patches)))
        return super().backward_plans(configuration, target)


def backward_kernel(case: BackwardCase, target: str) -> Kernel:
    """With the kernels that its backward calls launch, and none for forward calls."""
    arch, specification = case.forward.target(target), load_specification(case.source(target), None, {})[0]
    configuration = Configuration(case.forward.dtype, *case.forward.head_dims)
    store = (CompiledStore if case.separates_dq else _AddingDq)(specification, configuration, (arch,))
    store.machine_codes(store.backward_plans(configuration, arch))
    return Kernel(store)
