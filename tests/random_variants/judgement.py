"""The accuracy rule for random variants, whose results may be few numbers, sums that cancel, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attncc import reference
from attncc.ir import Variant
from attncc.problem.gradients import Gradients
from attncc.reference.accuracy import EPSILON
from tests.random_variants.calls import RandomCall

Array = NDArray[Any]

LSE_TOLERANCE = 2e-5  # of sums of fp32


def forward_faults(variant: Variant, given: RandomCall, out: Array, lse: Array, dtype: str) -> Iterator[str]:
    """What breaks the rule for out, and for lse where the variant has one."""
    arrays = given.q, given.k, given.v
    exact, exact_lse = reference.forward(variant, *arrays, **given.arguments)
    plain, _ = reference.baseline(variant, *arrays, **given.arguments)
    owned = _rows_of_sequences(given)
    yield from _fault("out", out[..., owned, :], plain[..., owned, :], exact[..., owned, :], dtype)
    if exact_lse is not None:
        of_rows, expected = lse[..., owned], exact_lse[..., owned]
        if not np.allclose(of_rows, expected, rtol=LSE_TOLERANCE, atol=LSE_TOLERANCE):
            yield f"lse off by {_largest(of_rows, expected)}"


def backward_faults(variant: Variant, given: RandomCall, found: Gradients, dtype: str) -> Iterator[str]:
    """What breaks the rule for dq, dk, dv and the gradients of learnable inputs."""
    call = given.q, given.k, given.v
    exact = reference.backward(variant, given.dout, *call, dlse=given.dlse, **given.arguments)
    plain = reference.baseline_backward(variant, given.dout, *call, dlse=given.dlse, **given.arguments)
    lse = _size_of_lse(variant, given) if dtype == "fp32" else 1
    for name in ("dq", "dk", "dv"):
        owned = _rows_of_sequences(given, keys=name != "dq")
        own, other, expected = (getattr(item, name)[..., owned, :] for item in (found, plain, exact))
        yield from _fault(name, own, other, expected, dtype, lse=lse)
    for name, gradient in found.inputs.items():
        kind = ml_dtypes.finfo(given.inputs[name].dtype)
        relative, absolute = max(EPSILON[dtype], float(kind.eps)), float(kind.smallest_subnormal)
        fault = _fault_of_sum(gradient, plain.inputs[name], exact.inputs[name], (relative, absolute))
        if fault:
            yield f"gradient of {name}: {fault}"


def _size_of_lse(variant: Variant, given: RandomCall) -> float:
    _, lse = reference.forward(variant, given.q, given.k, given.v, **given.arguments)
    return 1 if lse is None else max(1, float(np.abs(lse[np.isfinite(lse)]).max(initial=0)))


def _fault(name: str, found: Array, plain: Array, exact: Array, dtype: str, *, lse: float = 1) -> Iterator[str]:
    """Of fp32 twice the limits, and the roundoff of scores and of a lse of this size: no operand is rounded, so what
    counts is how functions such as tanh are computed, and that kernels find P again from scores and a lse of 24 bits,
    where the baseline divides by the sum of what has the same errors."""
    judged = reference.accuracy(found, plain, exact, dtype)
    slack, sizes = 1, np.zeros(1)
    if dtype == "fp32" and exact.size:
        slack, sizes = 2, 2.0**-22 * lse * np.abs(exact).ravel()
    in_limits = judged.max_error <= slack * judged.max_limit + sizes.max()
    if not (in_limits and judged.mean_error <= slack * judged.mean_limit + sizes.mean()):
        yield f"{name}: {judged}"


def _fault_of_sum(found: Array, plain: Array, exact: Array, rounding: tuple[float, float]) -> str:
    """Of the rule the largest error: an input may have two entries, whose errors have no mean to speak of. Sums of many
    pairs may cancel, and so may the errors of the baseline, by chance; and a gradient has the type of its input, whose
    rounding is relative, and absolute next to 0."""
    relative, absolute = rounding
    own, other = (float(np.abs(x.astype(np.float64) - exact).max(initial=0.0)) for x in (found, plain))
    limit = 2 * other + 3 * relative * float(np.abs(exact).max(initial=0.0)) + absolute
    return "" if own <= limit else f"max error {own:.3e} (limit {limit:.3e})"


def _rows_of_sequences(given: RandomCall, *, keys: bool = False) -> slice:
    """Kernels leave alone what no sequence owns."""
    return slice(None) if given.cu is None else slice(0, int(given.cu[keys][-1]))


def _largest(found: Array, expected: Array) -> float:
    with np.errstate(invalid="ignore"):
        errors = np.abs(found.astype(np.float64) - expected)
    return float(errors[~(np.isinf(found) & (found == expected))].max(initial=0.0))
