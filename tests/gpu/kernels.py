"""The kernels of the suites' cases.

This module must not import torch: each of the processes that compile imports it.
"""

from __future__ import annotations

from attncc.runtime.kernel import Kernel
from tests.gpu.backward_cases import BackwardCase
from tests.gpu.cases import Case
from tests.kernels import without_decode


def forward_kernel(case: Case, target: str) -> Kernel:
    """Without a kernel of the decode pass where it doesn't run the case. `target`: of the device's portable kernels."""
    (key, value), arch = case.head_dims, case.target(target)
    return without_decode(case.source(arch), dtype=case.dtype, head_dim=key, value_head_dim=value, arch=arch)


def backward_kernel(case: BackwardCase, target: str) -> Kernel:
    """With the kernels that make out and lse."""
    (key, value), arch = case.forward.head_dims, case.forward.target(target)
    kernel = without_decode(
        case.source(target), dtype=case.forward.dtype, head_dim=key, value_head_dim=value, arch=arch
    )
    kernel._store.machine_codes(kernel._store.backward_plans(kernel.configurations[0], arch))
    return kernel
