"""The accuracy rule, for tensors on a GPU."""

from __future__ import annotations

from typing import Any

from attncc.reference.accuracy import EPSILON, Accuracy


def judge(out: Any, plain: Any, exact: Any, dtype: str, *, terms: Any = None, spread: Any = None) -> Accuracy:
    """`attncc.reference.accuracy`, computed where the arrays are. `terms`: what `out` sums up in fp32, unsigned. The
    roundoff of that counts as an error of the baseline. `spread`: how large the baseline's error typically is, which
    counts where it is less by chance."""
    own, other = (out.double() - exact).abs(), (plain - exact).abs()
    if spread is not None:
        other = other.maximum(spread)
    if terms is not None:
        other = other + EPSILON["fp32"] / 2 * terms
    allowance = EPSILON[dtype] * float(exact.square().mean().sqrt())
    return Accuracy(float(own.max()), float(own.mean()), float(other.max()), float(other.mean()), allowance)


def check_forward(out: Any, lse: Any, arguments: Any, dtype: str) -> None:
    """The rule for out, and lse, if there is one, within what the exponentials' fp32 allows."""
    import torch

    from tests.gpu.calls import DTYPES
    from tests.gpu.torch_oracle import baseline, oracle

    exact, exact_lse = oracle(arguments)
    accuracy = judge(out, baseline(arguments, DTYPES[dtype]), exact, dtype)
    assert accuracy.holds, accuracy
    if lse is not None:
        torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-3)
