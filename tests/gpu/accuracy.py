"""The accuracy rule, for tensors on a GPU."""

from __future__ import annotations

from typing import Any

from attncc.reference.accuracy import EPSILON, Accuracy


def judge(out: Any, plain: Any, exact: Any, dtype: str) -> Accuracy:
    """`attncc.reference.accuracy`, computed where the arrays are."""
    own, other = (out.double() - exact).abs(), (plain - exact).abs()
    allowance = EPSILON[dtype] * float(exact.square().mean().sqrt())
    return Accuracy(float(own.max()), float(own.mean()), float(other.max()), float(other.mean()), allowance)
