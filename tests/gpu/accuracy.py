"""The accuracy rule, for tensors on a GPU."""

from __future__ import annotations

from typing import Any

from attncc.reference.accuracy import EPSILON, Accuracy


def judge(out: Any, plain: Any, exact: Any, dtype: str, terms: Any = None) -> Accuracy:
    """`attncc.reference.accuracy`, computed where the arrays are. `terms`: what `out` sums up in fp32, unsigned."""
    own, other = (out.double() - exact).abs(), (plain - exact).abs()
    allowance = EPSILON[dtype] * float(exact.square().mean().sqrt())
    if terms is not None:
        allowance += EPSILON["fp32"] * float(terms.square().mean().sqrt())
    return Accuracy(float(own.max()), float(own.mean()), float(other.max()), float(other.mean()), allowance)
